// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkStep looks at what one node's own upgrade needs.
func (p *planner) checkStep(node *subject, step Step) {
	if node.moves == 0 {
		p.checkImage(node)
		p.checkBoot(node)
		p.checkPinned(node, step)
	}

	if finding, ok := p.checkFallback(node, step); ok {
		p.find(finding)
	}

	// The defaults move with the version of Talos alone, and the first time is
	// the one to speak of.
	if !step.From.Equal(step.To) && node.Machine.Talos.Equal(step.From) {
		if finding, ok := checkPins(node); ok {
			p.find(finding)
		}
	}

	if step.API == cluster.LegacyAPI && !p.policy.Drain.Enabled && node.moves == 0 {
		p.find(cluster.Finding{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeDrain,
			Found:  fmt.Sprintf("the node runs Talos %s, which always drains itself during an upgrade, so drain.enabled = false cannot be honoured", step.From),
			Remedy: "Leave drain.enabled at true until the nodes run Talos 1.13.",
		})
	}
}

// checkContainers refuses to upgrade Talos where it runs in containers.
func (p *planner) checkContainers() {
	var names []string

	for i := range p.nodes {
		if node := &p.nodes[i]; node.moves > 0 && node.Machine != nil && node.Machine.Platform == "container" {
			names = append(names, node.Name)
		}
	}

	if len(names) == 0 {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeTalos,
		Found:  "Talos has no upgrade where it runs in a container (platform container), as it does on " + listed(names),
		Remedy: "Make new containers of the new version (talosctl cluster create docker), or leave talos_version out and upgrade Kubernetes alone.",
	})
}

// checkFallback refuses an image from which the node already fell back, or was
// sent back, until the target or the image changes or the user asks for another
// try.
func (p *planner) checkFallback(node *subject, step Step) (cluster.Finding, bool) {
	entry := node.entry
	if !entry.Returned() || entry.Image != step.Image {
		return cluster.Finding{}, false
	}

	// An entry without a boot ID must not pass for a retry that nobody asked
	// for.
	if retry, asked := p.policy.Retry[node.Name]; asked && retry == entry.BootID {
		return cluster.Finding{}, false
	}

	found := fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself", entry.Image, entry.Previous)
	if entry.Phase == cluster.PhaseRolledBack {
		found = fmt.Sprintf("the node booted %s, did not become healthy with it and was rolled back to Talos %s", entry.Image, entry.Previous)
	}

	return cluster.Finding{
		Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name, Attribute: attributeOverrides,
		Found: found,
		Remedy: fmt.Sprintf("Find out why (its console, and where machine.logging sends its logs), then choose another talos_version or installer_image, or set node_overrides = { %q = { retry = %q } } to try the same image again.",
			node.Name, entry.BootID),
	}, true
}
