// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// checkStep checks what the upgrade of one node requires.
func (p *planner) checkStep(node *plannedNode, step Step) {
	if node.moves == 0 {
		p.checkImage(node)
		p.checkBoot(node)
		p.checkPinned(node, step)
	}

	if finding, ok := p.checkFallback(node, step); ok {
		p.add(finding)
	}

	// The defaults change only with the version of Talos, and the first time is the one to report.
	if !step.From.Equal(step.To) && node.Machine.Talos.Equal(step.From) {
		if finding, ok := checkPins(node); ok {
			p.add(finding)
		}
	}

	if step.API == cluster.LegacyAPI && !p.policy.Drain.Enabled && node.moves == 0 {
		p.add(cluster.Finding{
			Check: cluster.CheckVersions, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeDrain,
			Found:  fmt.Sprintf("the node runs Talos %s, which always drains itself during an upgrade, so drain.enabled = false cannot be honoured", step.From),
			Remedy: "Leave drain.enabled at true until the nodes run Talos 1.13.",
		})
	}
}

// checkContainers refuses to upgrade Talos if it runs in containers.
func (p *planner) checkContainers() {
	var names []string

	for i := range p.nodes {
		if node := &p.nodes[i]; node.moves > 0 && node.contained() {
			names = append(names, node.Name)
		}
	}

	if len(names) == 0 {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckVersions, Severity: cluster.Permanent, Attribute: attributeTalos,
		Found:  "Talos has no upgrade where it runs in a container (platform container), as it does on " + readable.List(names),
		Remedy: "Make new containers of the new version (talosctl cluster create docker), or leave talos_version out and upgrade Kubernetes alone.",
	})
}

// checkFallback refuses an image from which the node already fell back, or was rolled back, until the target or
// the image changes or the user asks for another attempt.
func (p *planner) checkFallback(node *plannedNode, step Step) (cluster.Finding, bool) {
	entry := node.entry
	if !entry.Returned() || entry.Image != step.Image {
		return cluster.Finding{}, false
	}

	if entry.Retry {
		return cluster.Finding{}, false
	}

	// An entry without a boot ID must not match a retry that nobody asked for.
	if retry, asked := p.policy.Retry[node.Name]; asked && retry == entry.BootID {
		return cluster.Finding{}, false
	}

	found := fmt.Sprintf("the node booted %s, did not come up with it and fell back to Talos %s by itself", entry.Image, entry.Previous)
	why := "Find out why (its console, and where machine.logging sends its logs), then choose"

	switch {
	case entry.Asked != "":
		found, why = fmt.Sprintf("the node ran %s and was rolled back to Talos %s, %s", entry.Image, entry.Previous, AskedFor(entry)), "Choose"
	case entry.Phase == cluster.PhaseRolledBack:
		found = fmt.Sprintf("the node booted %s, did not become healthy with it and was rolled back to Talos %s", entry.Image, entry.Previous)
	}

	return cluster.Finding{
		Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name, Attribute: attributeOverrides,
		Found: found,
		Remedy: fmt.Sprintf("%s another talos_version or installer_image. To have the same image installed again, set node_overrides = { %q = { retry_boot_id = %q } }, or invoke the action talosupgrade_retry_node (Terraform 1.14).",
			why, node.Name, entry.BootID),
	}, true
}

// AskedFor says who asked for the rollback that an entry of the journal is about, and why: a clause.
func AskedFor(entry cluster.Entry) string {
	text := "as " + readable.Escaped(entry.Asked) + " asked at " + entry.Written.UTC().Format(time.RFC3339)
	if entry.Reason != "" {
		text += " (" + readable.Escaped(entry.Reason) + ")"
	}

	return text
}

// checkUnfinished refuses a target below what an earlier run may have installed on a node: the next boot,
// whatever causes it, may start the newer version, and the node would then stay ahead of the target.
func (p *planner) checkUnfinished() {
	if p.target.Talos.IsZero() {
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if !node.open || p.ahead(node) || node.entry.Target.Compare(p.target.Talos) <= 0 || node.rebooted() || node.entry.Phase == cluster.PhaseRollingBack {
			continue
		}

		p.add(cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeTalos,
			Found: fmt.Sprintf("an earlier run stopped in the middle of bringing the node to Talos %s, so that its next boot may start that version, and the target %s is older",
				node.entry.Target, p.target.Talos),
			Remedy: fmt.Sprintf("Set talos_version to %s or newer and apply, so that the node is finished.", node.entry.Target),
		})
	}
}

// checkPendingInstalls refuses to move Kubernetes alone while an earlier run may have installed another Talos on
// a node: any reboot would start it.
func (p *planner) checkPendingInstalls() {
	if !p.target.Talos.IsZero() || len(p.made.Steps) == 0 {
		return
	}

	for i := range p.nodes {
		// Held nodes are a finding of their own.
		node := &p.nodes[i]
		if !node.open || node.held {
			continue
		}

		finding := cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Observed, Node: node.Name, Attribute: attributeTalos,
			Found:  "an earlier upgrade of Talos is unfinished on this node",
			Remedy: "Set talos_version to the version that it was upgraded to and apply, so that it is finished first.",
		}

		switch to := node.entry.Target; {
		case node.entry.Phase == cluster.PhaseRollingBack && node.entry.Asked != "":
			finding.Found = fmt.Sprintf("it is being rolled back to Talos %s, %s", node.entry.Previous, AskedFor(node.entry))
			finding.Remedy = fmt.Sprintf("Roll it back again, or set talos_version to %s and apply, so that it is finished first.", node.entry.Previous)
		case node.entry.Phase == cluster.PhaseRollingBack && !node.entry.Previous.IsZero():
			finding.Found = fmt.Sprintf("an earlier upgrade to Talos %s failed on this node, and it is being rolled back", to)
			finding.Remedy = fmt.Sprintf("Set talos_version to %s, or to a version that works there, and apply, so that it is finished first.", node.entry.Previous)
		case !to.IsZero():
			finding.Found = fmt.Sprintf("an earlier upgrade to Talos %s is unfinished on this node", to)
			finding.Remedy = fmt.Sprintf("Set talos_version to %s and apply, so that it is finished first.", to)
		}

		p.add(finding)
	}
}

// rebooted reports whether the node has booted since the journal's entry was written: a pending install has taken
// effect by then, or failed.
func (s *plannedNode) rebooted() bool {
	return s.Machine != nil && s.Machine.BootID != "" && s.entry.BootID != "" && s.Machine.BootID != s.entry.BootID
}
