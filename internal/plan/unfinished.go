// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkUnfinished refuses a target below what an earlier run may have installed
// on a node: the next boot of it, whoever asks for that, may start the newer
// version, and then the node is ahead of the target for good.
func (p *planner) checkUnfinished() {
	if p.target.Talos.IsZero() {
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if !node.open || p.ahead(node) || node.entry.Target.Compare(p.target.Talos) <= 0 || node.rebooted() || node.entry.Phase == cluster.PhaseRollingBack {
			continue
		}

		p.find(cluster.Finding{
			Check: cluster.CheckPendingInstall, Severity: cluster.Permanent, Node: node.Name, Attribute: attributeTalos,
			Found: fmt.Sprintf("an earlier run stopped in the middle of bringing the node to Talos %s, so that its next boot may start that version, and the target %s is older",
				node.entry.Target, p.target.Talos),
			Remedy: fmt.Sprintf("Set talos_version to %s or newer and apply, so that the node is finished.", node.entry.Target),
		})
	}
}

// checkArmed refuses to move Kubernetes alone while an earlier run may have
// installed another Talos on a node: whatever reboots it then starts that.
func (p *planner) checkArmed() {
	if !p.target.Talos.IsZero() || len(p.made.Steps) == 0 {
		return
	}

	for i := range p.nodes {
		// Held ones are a finding of their own.
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
		case node.entry.Phase == cluster.PhaseRollingBack && !node.entry.Previous.IsZero():
			finding.Found = fmt.Sprintf("an earlier upgrade to Talos %s failed on this node, and it is being rolled back", to)
			finding.Remedy = fmt.Sprintf("Set talos_version to %s, or to a version that works there, and apply, so that it is finished first.", node.entry.Previous)
		case !to.IsZero():
			finding.Found = fmt.Sprintf("an earlier upgrade to Talos %s is unfinished on this node", to)
			finding.Remedy = fmt.Sprintf("Set talos_version to %s and apply, so that it is finished first.", to)
		}

		p.find(finding)
	}
}

// rebooted tells that the node went through a boot since the journal's entry
// was written: whatever was installed has had its chance.
func (s *subject) rebooted() bool {
	return s.Machine != nil && s.Machine.BootID != "" && s.entry.BootID != "" && s.Machine.BootID != s.entry.BootID
}
