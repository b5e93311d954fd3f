// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkExternal refuses to move nodes while somebody else has one of them on its
// way down. What an earlier run of ours began is in the journal. Its cordon may
// stand beside an annotation that a machine has left from before.
func (p *planner) checkExternal() {
	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held || node.open {
			continue
		}

		finding := cluster.Finding{Check: cluster.CheckExternalChanges, Severity: cluster.Observed, Node: node.Name}
		wait, then := "Wait until it is done", "or find out who upgrades or reboots the node"

		switch {
		case node.Machine != nil && installed(node.Machine.Stage):
			finding.Found = fmt.Sprintf("the machine is %s, and no run of this provider asked for that: %s", node.Machine.Stage, likelyOwners)
			then = oneOwner
		case node.Machine != nil && node.Machine.UpgradePending && !node.Machine.Settled():
			finding.Found = fmt.Sprintf("the machine has just come up with Talos %s, which has not confirmed itself yet, and no run of this provider installed it: %s", node.Machine.Talos, likelyOwners)
			wait, then = "Wait until it is healthy with it, or reboot it to return to the previous system", oneOwner
		case node.Machine != nil && leaving(node.Machine.Stage):
			finding.Found = fmt.Sprintf("the machine is %s, and no run of this provider asked for that", node.Machine.Stage)
		case node.Kube != nil && node.Kube.CordonedByTalos && node.Kube.CordonedBy == "":
			finding.Found = "the machine cordoned its own node (annotation talos.dev/cordoned), as in an upgrade, a shutdown or a reset that no run of this provider asked for (where it is an upgrade, " + likelyOwners + ")"
		default:
			continue
		}

		finding.Remedy = fmt.Sprintf("%s (talosctl -n %s get machinestatus), %s.", wait, node.Address, then)

		p.find(finding)
	}
}

// likelyOwners are the programs that install Talos on nodes, other than this one.
const likelyOwners = "likely talosctl upgrade, a talos_machine of the provider siderolabs/talos, Omni or tuppr"

// oneOwner is what to do about that.
const oneOwner = "then let one program alone upgrade this cluster: give the other one the same target, or switch it off"

// installed tells whether an installer runs on a machine in that stage.
func installed(stage cluster.Stage) bool {
	return stage == cluster.StageUpgrading || stage == cluster.StageInstalling
}

// leaving tells whether a machine in that stage is on its way out of service.
func leaving(stage cluster.Stage) bool {
	switch stage {
	case cluster.StageUpgrading, cluster.StageRebooting, cluster.StageInstalling, cluster.StageResetting, cluster.StageShuttingDown:
		return true
	case cluster.StageBooting, cluster.StageRunning:
		return false
	default:
		return false
	}
}

// checkPressure looks at what the kubelets of the nodes with a turn complain
// about. On a full disk there is no room for an image; the rest is for people to
// weigh. What an earlier run began is finished in any case.
func (p *planner) checkPressure() {
	var pressed []string

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.steps == 0 || node.open || node.Kube == nil {
			continue
		}

		for _, pressure := range node.Kube.Pressure {
			if pressure != cluster.DiskPressure {
				pressed = append(pressed, fmt.Sprintf("%s (%s)", node.Name, pressure))
			}
		}

		if slices.Contains(node.Kube.Pressure, cluster.DiskPressure) {
			p.find(cluster.Finding{
				Check: cluster.CheckDiskSpace, Severity: cluster.Observed, Node: node.Name,
				Found:  "the kubelet reports DiskPressure: it deletes images and evicts pods, and an image that is pulled would not stay",
				Remedy: fmt.Sprintf("Make room on its disk (kubectl describe node %s, talosctl -n %s mounts).", node.Name, node.Address),
			})
		}
	}

	if len(pressed) > 0 {
		p.find(cluster.Finding{
			Check: cluster.CheckNodesReady, Severity: cluster.Advice,
			Found:  "kubelets are under pressure: " + listed(pressed),
			Remedy: "Relieve the nodes, or expect that pods are evicted from them and do not fit there.",
		})
	}
}
