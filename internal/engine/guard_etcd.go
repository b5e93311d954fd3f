// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// raftLagMost is how many raft entries a member may be behind the newest one
// and still count as caught up. etcd itself promotes a learner at 90 % of the
// leader's index; a healthy member is a handful of entries behind.
const raftLagMost = 1000

// What a person can do about etcd.
const (
	remedyMembers = "Let members join, or remove the stale ones (talosctl etcd members, talosctl etcd remove-member)."
	remedyEtcd    = "Bring etcd back to health first (talosctl service etcd, talosctl etcd status)."
)

// etcdFindings are what keeps etcd from counting as healthy, alarms aside,
// whichever node is about to be disturbed.
func etcdFindings(snapshot cluster.Snapshot) []cluster.Finding {
	var findings []cluster.Finding

	for _, check := range []func(guardInput) []cluster.Finding{guardMembers, guardQuorum, guardLag} {
		findings = append(findings, check(guardInput{Snapshot: snapshot})...)
	}

	return findings
}

// guardMembers wants the same members, all started and none a learner, from
// every control plane's point of view. One that is to be sent back to its old
// system need not have one: its member is missing already.
func guardMembers(s guardInput) []cluster.Finding {
	var (
		findings []cluster.Finding
		first    string
	)

	controlPlanes := s.ControlPlanes()

	for _, node := range controlPlanes {
		if s.ill(node) {
			continue
		}

		if node.Etcd == nil {
			findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, etcdSilence(node), remedyEtcd, node.EtcdError)...)

			continue
		}

		if node.Etcd.Mute() {
			findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, "the member of this control plane is still a learner", remedyMembers, nil)...)

			continue
		}

		if len(node.Etcd.Members) != len(controlPlanes) {
			findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name,
				fmt.Sprintf("etcd has %d members, but the cluster has %d control planes", len(node.Etcd.Members), len(controlPlanes)), remedyMembers, nil)...)
		}

		for _, member := range node.Etcd.Members {
			switch {
			case member.Name == "":
				findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, fmt.Sprintf("member %016x has not started", member.ID), remedyMembers, nil)...)
			case member.Learner:
				findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, fmt.Sprintf("member %s is still a learner", member.Name), remedyMembers, nil)...)
			}
		}

		listed := memberList(node.Etcd.Members)
		if first == "" {
			first = listed
		} else if listed != first {
			findings = append(findings, newFinding(cluster.CheckEtcdMembers, node.Name, "the control planes do not agree on the members of etcd", remedyMembers, nil)...)
		}
	}

	return findings
}

// etcdSilence says why nothing is known of the member on a control plane.
func etcdSilence(node cluster.Node) string {
	switch {
	case node.EtcdError != nil:
		return fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError)
	case node.Unreachable != nil:
		return fmt.Sprintf("etcd on this control plane could not be asked, because its Talos API does not answer: %v", node.Unreachable)
	default:
		return "etcd on this control plane was not asked"
	}
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
func guardQuorum(s guardInput) []cluster.Finding {
	var (
		findings []cluster.Finding
		leaders  = map[uint64]bool{}
		healthy  int
	)

	controlPlanes := s.ControlPlanes()

	for _, node := range controlPlanes {
		if node.Etcd == nil || s.ill(node) {
			continue
		}

		status := node.Etcd.Status
		leaders[status.Leader] = true

		switch {
		case status.Leader == 0:
			findings = append(findings, newFinding(cluster.CheckEtcdQuorum, node.Name, "this member of etcd follows no leader", remedyEtcd, nil)...)
		case len(status.Complaints()) > 0:
			findings = append(findings, newFinding(cluster.CheckEtcdQuorum, node.Name, "this member of etcd reports: "+strings.Join(status.Complaints(), "; "), remedyEtcd, nil)...)
		case node.Name != s.step.Node && !status.Learner:
			healthy++
		}
	}

	if len(leaders) > 1 {
		findings = append(findings, newFinding(cluster.CheckEtcdQuorum, "", "the members of etcd do not agree on a leader", remedyEtcd, nil)...)
	}

	// A single member is allowed to go: nothing is lost but availability, and
	// there is no other way. So is one of two, where that is asked for: the other
	// keeps the data, and they are a majority again as soon as it is back.
	least := len(controlPlanes)/2 + 1

	switch {
	case len(controlPlanes) == 1:
		least = 0
	case len(controlPlanes) == 2 && s.policy.Skips(cluster.CheckTwoMembers):
		least = 1
	}

	if s.step.Role == cluster.ControlPlane && healthy < least {
		findings = append(findings, newFinding(cluster.CheckEtcdQuorum, s.step.Node,
			fmt.Sprintf("without this node %d of %d members of etcd would be healthy, and %d are needed", healthy, len(controlPlanes), least), remedyEtcd, nil)...)
	}

	return findings
}

// guardAlarms wants no alarm. One of corruption may not be skipped: what is
// wrong with one member must not become what is wrong with all.
func guardAlarms(s guardInput) []cluster.Finding {
	var (
		findings []cluster.Finding
		said     = map[string]bool{}
	)

	for _, node := range s.ControlPlanes() {
		if node.Etcd == nil {
			continue
		}

		for _, alarm := range node.Etcd.Alarms {
			if said[alarm] {
				continue
			}

			said[alarm] = true
			findings = append(findings, cluster.Finding{
				Check: cluster.CheckEtcdAlarms, Severity: cluster.Observed, Node: s.AlarmedNode(alarm), Firm: strings.Contains(alarm, "CORRUPT"),
				Found: "etcd raised " + alarm, Remedy: "Resolve the cause, then talosctl etcd alarm disarm.",
			})
		}
	}

	return findings
}

// guardLag wants every member to have applied nearly everything there is.
func guardLag(s guardInput) []cluster.Finding {
	var (
		findings []cluster.Finding
		newest   uint64
	)

	for _, node := range s.ControlPlanes() {
		if node.Etcd != nil {
			newest = max(newest, node.Etcd.Status.Index)
		}
	}

	for _, node := range s.ControlPlanes() {
		if node.Etcd == nil {
			continue
		}

		if status := node.Etcd.Status; status.Applied+raftLagMost < newest && !s.ill(node) {
			findings = append(findings, newFinding(cluster.CheckEtcdRaftLag, node.Name,
				fmt.Sprintf("this member of etcd applied entry %d of %d", status.Applied, newest), remedyEtcd, nil)...)
		}
	}

	return findings
}
