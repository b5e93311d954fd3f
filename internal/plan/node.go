// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// imageFinding says why there is no image for a node. It points at the
// attribute in any case: where that is not at fault, it is the way out.
func imageFinding(node string, target cluster.Target, err error) cluster.Finding {
	finding := cluster.Finding{
		Check: "schematic", Severity: cluster.Permanent, Node: node, Attribute: attributeImage, Err: err,
		Found: err.Error(),
	}

	if !errors.Is(err, image.ErrReference) {
		return finding
	}

	finding.Check = "installer-image"
	finding.Remedy = "Correct installer_image, or leave it out to keep each node's own repository."

	if target.InstallerImage == "" {
		finding.Remedy = "Correct machine.install.image in the machine configuration, or set installer_image."
	}

	return finding
}

// checkNode looks at what one node's own upgrade needs.
func checkNode(snapshot cluster.Snapshot, node cluster.Node, step Step, policy cluster.Policy) []cluster.Finding {
	var findings []cluster.Finding

	if finding, ok := checkFallback(snapshot, node, step, policy); ok {
		findings = append(findings, finding)
	}

	// The defaults move with the version of Talos alone.
	if !step.From.Equal(step.To) {
		if finding, ok := checkPins(node); ok {
			findings = append(findings, finding)
		}
	}

	if step.API == cluster.LegacyAPI && !policy.Drain.Enabled {
		findings = append(findings, cluster.Finding{
			Check: "versions", Severity: cluster.Permanent, Node: node.Name, Attribute: attributeDrain,
			Found:  fmt.Sprintf("the node runs Talos %s, which always drains itself during an upgrade, so drain.enabled = false cannot be honoured", step.From),
			Remedy: "Leave drain.enabled at true until the nodes run Talos 1.13.",
		})
	}

	return findings
}

// checkFallback refuses an image from which the node already fell back, until
// the target or the image changes or the user asks for another try.
func checkFallback(snapshot cluster.Snapshot, node cluster.Node, step Step, policy cluster.Policy) (cluster.Finding, bool) {
	if snapshot.Journal == nil {
		return cluster.Finding{}, false
	}

	entry, found := snapshot.Journal.Entries[node.UUID()]
	if !found || entry.Phase != cluster.PhaseFallback || entry.Image != step.Image {
		return cluster.Finding{}, false
	}

	// An entry without a boot ID must not pass for a retry that nobody asked
	// for.
	if retry, asked := policy.Retry[node.Name]; asked && retry == entry.BootID {
		return cluster.Finding{}, false
	}

	return cluster.Finding{
		Check: "pending-install", Severity: cluster.Observed, Node: node.Name, Attribute: attributeOverrides,
		Found: fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself", entry.Image, entry.Previous),
		Remedy: fmt.Sprintf("Find out why (talosctl dmesg and logs machined), then choose another talos_version or installer_image, or set node_overrides = { %q = { retry = %q } } to try the same image again.",
			node.Name, entry.BootID),
	}, true
}

// checkPins refuses an upgrade that would move Kubernetes components along:
// what the machine configuration leaves unset follows the Talos version.
func checkPins(node cluster.Node) (cluster.Finding, bool) {
	if node.Machine.Config == nil {
		return cluster.Finding{}, false
	}

	var unset []string

	for _, component := range cluster.Components(node.Role) {
		if component == cluster.Proxy && (node.Role == cluster.Worker || node.Machine.Config.ProxyDisabled) {
			continue
		}

		if node.Machine.Config.Images[component] == "" {
			unset = append(unset, string(component))
		}
	}

	if len(unset) == 0 {
		return cluster.Finding{}, false
	}

	return cluster.Finding{
		Check: "component-images", Severity: cluster.Observed, Node: node.Name,
		Found:  fmt.Sprintf("the machine configuration does not pin the image of %s, so it would move to the default of the new Talos version during the upgrade, kubelets before API servers", strings.Join(unset, ", ")),
		Remedy: "Pin what runs, for example: talosctl patch machineconfig with machine.kubelet.image (and cluster.apiServer.image, cluster.controllerManager.image, cluster.scheduler.image, cluster.proxy.image on control planes).",
	}, true
}
