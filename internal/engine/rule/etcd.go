// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
)

// Etcd returns what keeps etcd from counting as healthy, alarms aside, whichever node is about to be disturbed.
func Etcd(observed cluster.Observation) []cluster.Finding {
	var findings []cluster.Finding

	for _, check := range []func(View) []cluster.Finding{members, quorum, lag} {
		findings = append(findings, check(View{Observation: observed})...)
	}

	return findings
}

// wholeEtcd requires etcd to be healthy before a component of a control plane restarts: its member of etcd keeps
// running, but an API server that comes back has to reach the other members as well.
func wholeEtcd(s View) []cluster.Finding {
	if s.Step.Role != cluster.ControlPlane {
		return nil
	}

	return Etcd(s.Observation)
}

// etcdNodes returns the control planes whose members of etcd must be healthy. The node that is sent back to its
// old system is left out, because its member is already missing.
func (s View) etcdNodes() []cluster.Node {
	return slices.DeleteFunc(s.ControlPlanes(), s.ill)
}

// members requires every control plane to list the same members, all started and none a learner.
func members(s View) []cluster.Finding {
	var (
		findings []cluster.Finding
		first    string
	)

	viewers, controlPlanes := s.etcdNodes(), s.ControlPlanes()

	for _, node := range viewers {
		if node.Etcd == nil {
			findings = append(findings, NewFinding(cluster.CheckEtcdMembers, node.Name, etcdSilence(node), health.EtcdRemedy, node.EtcdError)...)
		}
	}

	findings = append(findings, health.EtcdMembers(viewers, controlPlanes)...)
	findings = append(findings, health.EtcdVoters(viewers, controlPlanes, func(cluster.Node) bool { return false })...)

	for _, node := range viewers {
		if node.Etcd == nil || node.Etcd.Mute() {
			continue
		}

		listed := memberList(node.Etcd.Members)
		if first == "" {
			first = listed
		} else if listed != first {
			findings = append(findings, NewFinding(cluster.CheckEtcdMembers, node.Name, "the control planes do not agree on the members of etcd",
				health.MembersRemedy, nil)...)
		}
	}

	return findings
}

// etcdSilence says why nothing is known about the member on a control plane.
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

// quorum requires one leader that every member follows, and a majority of healthy members without the step's
// node.
func quorum(s View) []cluster.Finding {
	voters, controlPlanes := s.etcdNodes(), s.ControlPlanes()
	findings := health.EtcdLeader(voters)
	healthy := 0

	for _, node := range voters {
		if node.Name != s.Step.Node && health.Votes(node) {
			healthy++
		}
	}

	// A single member may go down: only availability is lost, and there is no other way. So may one of two, if
	// the policy skips that check: the other keeps the data, and they are a majority again as soon as it is back.
	least := len(controlPlanes)/2 + 1

	switch {
	case len(controlPlanes) == 1:
		least = 0
	case len(controlPlanes) == 2 && s.Policy.Skips(cluster.CheckTwoMembers):
		least = 1
	}

	if s.Step.Role == cluster.ControlPlane && healthy < least {
		findings = append(findings, NewFinding(cluster.CheckEtcdQuorum, s.Step.Node,
			fmt.Sprintf("without this node %d of %d members of etcd would be healthy, and %d are needed", healthy, len(controlPlanes), least), health.EtcdRemedy, nil)...)
	}

	return findings
}

// alarms requires that there is no alarm.
func alarms(s View) []cluster.Finding { return health.EtcdAlarms(s.Observation) }

// lag requires every member to have applied nearly every raft entry.
func lag(s View) []cluster.Finding {
	return health.EtcdLag(s.etcdNodes(), s.ControlPlanes())
}
