// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// raftLagMost is how many raft entries a member may be behind the newest one
// and still count as caught up. etcd itself promotes a learner at 90 % of the
// leader's index; a healthy member is a handful of entries behind.
const raftLagMost = 1000

// guardMembers wants the same members, all started and none a learner, from
// every control plane's point of view.
func guardMembers(snapshot cluster.Snapshot, _ plan.Step) []cluster.Finding {
	var (
		findings []cluster.Finding
		first    string
	)

	controlPlanes := snapshot.ControlPlanes()

	for _, node := range controlPlanes {
		if node.Etcd == nil {
			findings = append(findings, unsafe("etcd-members", node.Name, fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError), node.EtcdError)...)

			continue
		}

		if len(node.Etcd.Members) != len(controlPlanes) {
			findings = append(findings, unsafe("etcd-members", node.Name,
				fmt.Sprintf("etcd has %d members, but the cluster has %d control planes", len(node.Etcd.Members), len(controlPlanes)), nil)...)
		}

		for _, member := range node.Etcd.Members {
			switch {
			case member.Name == "":
				findings = append(findings, unsafe("etcd-members", node.Name, fmt.Sprintf("member %016x has not started", member.ID), nil)...)
			case member.Learner:
				findings = append(findings, unsafe("etcd-members", node.Name, fmt.Sprintf("member %s is still a learner", member.Name), nil)...)
			}
		}

		listed := memberList(node.Etcd.Members)
		if first == "" {
			first = listed
		} else if listed != first {
			findings = append(findings, unsafe("etcd-members", node.Name, "the control planes do not agree on the members of etcd", nil)...)
		}
	}

	return findings
}

func memberList(members []cluster.EtcdMember) string {
	lines := make([]string, 0, len(members))
	for _, member := range members {
		lines = append(lines, fmt.Sprintf("%016x %s", member.ID, member.Name))
	}

	slices.Sort(lines)

	return strings.Join(lines, "\n")
}

// guardQuorum wants one leader that everyone follows, and a majority of healthy
// members that remains when the step's node is gone.
func guardQuorum(snapshot cluster.Snapshot, step plan.Step) []cluster.Finding {
	var (
		findings []cluster.Finding
		leaders  = map[uint64]bool{}
		healthy  int
	)

	controlPlanes := snapshot.ControlPlanes()

	for _, node := range controlPlanes {
		if node.Etcd == nil {
			continue
		}

		status := node.Etcd.Status
		leaders[status.Leader] = true

		switch {
		case status.Leader == 0:
			findings = append(findings, unsafe("etcd-quorum", node.Name, "this member of etcd follows no leader", nil)...)
		case len(status.Errors) > 0:
			findings = append(findings, unsafe("etcd-quorum", node.Name, "this member of etcd reports: "+strings.Join(status.Errors, "; "), nil)...)
		case node.Name != step.Node:
			healthy++
		}
	}

	if len(leaders) > 1 {
		findings = append(findings, unsafe("etcd-quorum", "", "the members of etcd do not agree on a leader", nil)...)
	}

	// A single member is allowed to go: nothing is lost but availability, and
	// there is no other way.
	if step.Role == cluster.ControlPlane && len(controlPlanes) > 1 && healthy < len(controlPlanes)/2+1 {
		findings = append(findings, unsafe("etcd-quorum", step.Node,
			fmt.Sprintf("without this node %d of %d members of etcd would be healthy, and a majority needs %d", healthy, len(controlPlanes), len(controlPlanes)/2+1), nil)...)
	}

	return findings
}

func guardAlarms(snapshot cluster.Snapshot, _ plan.Step) []cluster.Finding {
	for _, node := range snapshot.ControlPlanes() {
		if node.Etcd != nil && len(node.Etcd.Alarms) > 0 {
			return unsafe("etcd-alarms", node.Name, "etcd raised "+strings.Join(node.Etcd.Alarms, ", "), nil)
		}
	}

	return nil
}

// guardLag wants every member to have applied nearly everything there is.
func guardLag(snapshot cluster.Snapshot, _ plan.Step) []cluster.Finding {
	var (
		findings []cluster.Finding
		newest   uint64
	)

	for _, node := range snapshot.ControlPlanes() {
		if node.Etcd != nil {
			newest = max(newest, node.Etcd.Status.Index)
		}
	}

	for _, node := range snapshot.ControlPlanes() {
		if node.Etcd == nil {
			continue
		}

		if status := node.Etcd.Status; status.Applied+raftLagMost < newest {
			findings = append(findings, unsafe("etcd-raft-lag", node.Name,
				fmt.Sprintf("this member of etcd applied entry %d of %d", status.Applied, newest), nil)...)
		}
	}

	return findings
}
