// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

func kubernetes(s View) []cluster.Finding {
	if s.KubernetesError == nil {
		return nil
	}

	return NewFinding(cluster.CheckKubernetesAPI, "", "the Kubernetes API does not answer: "+s.KubernetesError.Error(),
		"Make it answer again: without it nothing can be cordoned, drained or recorded.", s.KubernetesError)
}

// machines requires an answer from every control plane and from the node itself, which must exist and be neither
// booting nor going down.
func machines(s View) []cluster.Finding {
	var findings []cluster.Finding

	node, found := s.Node(s.Step.Node)
	if !found {
		return NewFinding(cluster.CheckTalosAPI, s.Step.Node, "the node is no longer part of the cluster", "Let it join again, or leave it out for good.", nil)
	}

	stuck := node.Machine != nil && s.ill(node) && node.Machine.Stage == cluster.StageBooting

	if node.Machine != nil && node.Machine.Stage != cluster.StageRunning && !stuck {
		findings = append(findings, NewFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("the machine is %s", node.Machine.Stage),
			"Wait until it runs, or look at its console (talosctl dmesg).", nil)...)
	}

	if node.Machine != nil && node.Machine.BootID == "" {
		findings = append(findings, NewFinding(cluster.CheckTalosAPI, node.Name, "its boot ID cannot be read, and without it a reboot cannot be proven",
			"Look at the machine (talosctl read /proc/sys/kernel/random/boot_id), and at what the credentials allow.", nil)...)
	}

	for other := range s.EachManaged {
		if other.Machine != nil || other.Name != s.Step.Node && other.Role != cluster.ControlPlane {
			continue
		}

		if cluster.Unaccepted(other.Unreachable) != "" {
			findings = append(findings, plan.Unaccepted(*other))
		} else {
			findings = append(findings, NewFinding(cluster.CheckTalosAPI, other.Name, fmt.Sprintf("its Talos API does not answer: %v", other.Unreachable),
				"Bring the machine back, or its network.", other.Unreachable)...)
		}
	}

	return findings
}

// machine requires the node to exist, to answer, and to be neither booting nor going down.
func machine(s View) []cluster.Finding {
	node, found := s.Node(s.Step.Node)

	switch {
	case !found:
		return NewFinding(cluster.CheckTalosAPI, s.Step.Node, "the node is no longer part of the cluster", "Let it join again, or leave it out for good.", nil)
	case node.Machine == nil:
		return NewFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("its Talos API does not answer: %v", node.Unreachable),
			"Bring the machine back, or its network.", node.Unreachable)
	case node.Machine.Stage != cluster.StageRunning:
		return NewFinding(cluster.CheckTalosAPI, node.Name, fmt.Sprintf("the machine is %s", node.Machine.Stage),
			"Wait until it runs, or look at its console (talosctl dmesg).", nil)
	default:
		return nil
	}
}

// external requires that nobody else is upgrading or rebooting a node. Nodes of this run, nodes that an earlier
// run left in the middle of an upgrade, and held workers do not count.
func external(s View) []cluster.Finding {
	var findings []cluster.Finding

	for node := range s.EachManaged {
		doing := doneElsewhere(*node)
		_, busy := s.Others[node.Name]
		held := node.Role == cluster.Worker && s.Policy.Holds(node.Name)

		if doing != "" && !busy && !held && node.Name != s.Step.Node && !Unfinished(s.Observation, *node) {
			findings = append(findings, NewFinding(cluster.CheckExternalChanges, node.Name, doing+", and not by this upgrade",
				"Wait until that is over, or find out who does it (talosctl -n "+node.Address+" get machinestatus).", nil)...)
		}
	}

	return findings
}

// Unfinished reports whether the journal has an open entry about the node, from an earlier run or another upgrade
// of this one.
func Unfinished(observed cluster.Observation, node cluster.Node) bool {
	if observed.Journal == nil {
		return false
	}

	_, entry, found := observed.Journal.Of(node)

	return found && entry.Open()
}

// doneElsewhere says what a machine is doing that a healthy one does not do by itself; empty if nothing.
func doneElsewhere(node cluster.Node) string {
	switch {
	case node.Machine != nil && health.Leaving(node.Machine.Stage):
		return fmt.Sprintf("the machine is %s", node.Machine.Stage)
	case node.Kube != nil && node.Kube.CordonedByTalos:
		return "the machine has cordoned its node, as it does when it is upgraded, reset or shut down"
	default:
		return ""
	}
}

// pending refuses to touch a system that Talos has not confirmed: an install now would overwrite the system that
// the node could return to, or a newer one that a person is trying.
func pending(s View) []cluster.Finding {
	node, found := s.Node(s.Step.Node)
	if !found || node.Machine == nil || !node.Machine.UpgradePending {
		return nil
	}

	return NewFinding(cluster.CheckPendingInstall, node.Name, health.UnconfirmedFound(*node.Machine), health.UnconfirmedRemedy(*node.Machine, node.Address), nil)
}

func disk(s View) []cluster.Finding {
	return OfCheck(cluster.CheckDiskSpace, s.Vitals)
}

func clock(s View) []cluster.Finding {
	return OfCheck(cluster.CheckTimeSync, s.Vitals)
}

func gates(s View) []cluster.Finding { return s.Closed }

// operator requires that the operator of the cluster does not act on it.
func operator(s View) []cluster.Finding { return s.Intruded }

// held requires a node to which nothing was done yet not to be held by its labels.
func held(s View) []cluster.Finding {
	if _, chosen := s.Policy.Selected.Held[s.Step.Node]; !chosen || !s.Starting {
		return nil
	}

	return NewFinding(cluster.CheckSelectors, s.Step.Node, fmt.Sprintf("the node is held (%s)", plan.HeldBy(s.Policy, s.Step.Node)),
		"To have it upgraded, take that label away and apply again.", nil)
}

// OfCheck returns the blocking findings of one check.
func OfCheck(check string, findings []cluster.Finding) []cluster.Finding {
	return slices.DeleteFunc(cluster.Blocking(findings), func(f cluster.Finding) bool { return f.Check != check })
}

// NewFinding returns the finding of a rule.
func NewFinding(check, node, found, remedy string, err error) []cluster.Finding {
	return []cluster.Finding{{Check: check, Severity: cluster.Observed, Node: node, Found: found, Remedy: remedy, Err: err}}
}
