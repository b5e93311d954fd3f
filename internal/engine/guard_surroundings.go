// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// guardServing wants the static pods of the other control planes Ready before a
// control plane goes away: the Kubernetes API must not go with it.
func guardServing(s guardInput) []cluster.Finding {
	if s.step.Role != cluster.ControlPlane || s.KubernetesError != nil {
		return nil
	}

	var findings []cluster.Finding

	for _, node := range s.ControlPlanes() {
		for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
			pod, found := node.Pods[component]
			if node.Name == s.step.Node || disabled(node, component) || found && pod.Ready || !found && component != cluster.APIServer {
				continue
			}

			findings = append(findings, newFinding(checkComponents, node.Name, fmt.Sprintf("its %s is not Ready%s", component, troubled(pod)),
				fmt.Sprintf("Bring it back first (kubectl -n kube-system describe pod %s-%s).", component, node.Name), nil)...)
		}
	}

	return findings
}

// guardExternal wants nobody else to be upgrading or rebooting a node. Those of
// this run, and those that an earlier run left in the middle of an upgrade, are its
// own affair.
func guardExternal(s guardInput) []cluster.Finding {
	var findings []cluster.Finding

	for _, node := range s.Managed() {
		_, busy := s.others[node.Name]
		held := node.Role == cluster.Worker && s.policy.Holds(node.Name)
		if busy || held || node.Name == s.step.Node || unfinished(s.Snapshot, node) {
			continue
		}

		if doing := doneElsewhere(node); doing != "" {
			findings = append(findings, newFinding(cluster.CheckExternalChanges, node.Name, doing+", and not by this upgrade",
				"Wait until that is over, or find out who does it (talosctl -n "+node.Address+" get machinestatus).", nil)...)
		}
	}

	return findings
}

// unfinished tells whether an earlier run, or another upgrade of this one, left the
// node in the middle of its upgrade.
func unfinished(snapshot cluster.Snapshot, node cluster.Node) bool {
	if snapshot.Journal == nil {
		return false
	}

	_, entry, found := snapshot.Journal.Of(node)

	return found && entry.Open()
}

// doneElsewhere says what a machine is doing that no healthy one does by itself.
func doneElsewhere(node cluster.Node) string {
	foreign := []cluster.Stage{
		cluster.StageUpgrading, cluster.StageRebooting, cluster.StageInstalling, cluster.StageResetting, cluster.StageShuttingDown,
	}

	switch {
	case node.Machine != nil && slices.Contains(foreign, node.Machine.Stage):
		return fmt.Sprintf("the machine is %s", node.Machine.Stage)
	case node.Kube != nil && node.Kube.CordonedByTalos:
		return "the machine has cordoned its node, as it does when it is upgraded, reset or shut down"
	default:
		return ""
	}
}

func guardDisk(s guardInput) []cluster.Finding {
	return filterByCheck(cluster.CheckDiskSpace, s.vitals)
}

func guardClock(s guardInput) []cluster.Finding {
	return filterByCheck(cluster.CheckTimeSync, s.vitals)
}

func guardGates(s guardInput) []cluster.Finding { return s.closed }

// guardOperator wants the operator of the cluster to leave it alone.
func guardOperator(s guardInput) []cluster.Finding { return s.intruded }

// filterByCheck are the findings of one check that stop something.
func filterByCheck(check string, findings []cluster.Finding) []cluster.Finding {
	return slices.DeleteFunc(cluster.Blocking(findings), func(f cluster.Finding) bool { return f.Check != check })
}
