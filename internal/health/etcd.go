// SPDX-License-Identifier: MPL-2.0

package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// EtcdRemedy is what a person can do about a member of etcd that is not healthy.
const EtcdRemedy = "Bring it back to health first (talosctl service etcd, talosctl etcd status)."

// MaxRaftLag is how many raft entries a member of etcd may be behind the newest one
// and still count as caught up. etcd itself promotes a learner at 90 % of the
// leader's index; a healthy member is a handful of entries behind.
const MaxRaftLag = 1000

// EtcdMembers compares the members of etcd, as each of the viewers lists them, with the existing control planes.
// Viewers whose etcd did not answer, and learners, which cannot list the others, are skipped.
func EtcdMembers(viewers, controlPlanes []cluster.Node) []cluster.Finding {
	var findings []cluster.Finding

	for _, viewer := range viewers {
		if viewer.Etcd == nil || viewer.Etcd.Mute() {
			continue
		}

		members := viewer.Etcd.Members

		var strangers []string

		for _, member := range members {
			if !slices.ContainsFunc(controlPlanes, func(n cluster.Node) bool { return runsMember(n, member) }) {
				strangers = append(strangers, fmt.Sprintf("%s (%016x)", member.Name, member.ID))
			}
		}

		if len(strangers) == 0 && len(members) == len(controlPlanes) {
			continue
		}

		found := fmt.Sprintf("etcd has %d members as seen from %s, but the cluster has %d control planes", len(members), viewer.Name, len(controlPlanes))
		if len(strangers) > 0 {
			found += "; not a control plane: " + readable.List(strangers)
		}

		findings = append(findings, cluster.Finding{
			Check: cluster.CheckEtcdMembers, Severity: cluster.Observed, Node: viewer.Name, Found: found,
			Remedy: MembersRemedy,
		})
	}

	return findings
}

// MembersRemedy is what to do if the members of etcd are not the control planes.
const MembersRemedy = "Wait until all members have joined (talosctl etcd members). Remove a member (talosctl etcd remove-member) only if its machine is gone for good: " +
	"a removed member can rejoin only with an empty disk."

// EtcdVoters requires every member of etcd to be started and none to be a learner. A member that several viewers
// list is reported once, at its own node if that is known. Members of exempt nodes are not reported.
func EtcdVoters(viewers, controlPlanes []cluster.Node, exempt func(cluster.Node) bool) []cluster.Finding {
	var findings []cluster.Finding

	said := map[uint64]bool{}

	for _, viewer := range viewers {
		if viewer.Etcd == nil {
			continue
		}

		members := viewer.Etcd.Members
		if viewer.Etcd.Mute() {
			members = []cluster.EtcdMember{{ID: viewer.Etcd.Status.MemberID, Name: viewer.Name, Learner: true}}
		}

		for _, member := range members {
			found := fmt.Sprintf("member %s of etcd is still a learner, which has no vote", member.Name)

			switch {
			case said[member.ID]:
				continue
			case member.Name == "":
				found = fmt.Sprintf("member %016x of etcd was added and has never started", member.ID)
			case !member.Learner:
				continue
			}

			said[member.ID] = true

			at := viewer

			if own := slices.IndexFunc(controlPlanes, func(n cluster.Node) bool { return runsMember(n, member) }); own >= 0 {
				at = controlPlanes[own]

				if exempt(at) {
					continue
				}
			}

			findings = append(findings, cluster.Finding{
				Check: cluster.CheckEtcdMembers, Severity: cluster.Observed, Node: at.Name, Found: found,
				Remedy: MembersRemedy,
			})
		}
	}

	return findings
}

// runsMember reports whether the control plane runs the member.
func runsMember(node cluster.Node, member cluster.EtcdMember) bool {
	return slices.Contains(member.PeerAddresses, node.Address) || node.Etcd != nil && node.Etcd.Status.MemberID == member.ID
}

// EtcdLeader requires one leader that every member follows, and no member to report errors. Alarms are left to
// [EtcdAlarms].
func EtcdLeader(members []cluster.Node) []cluster.Finding {
	followers := map[uint64]int{}
	most := uint64(0)

	for _, node := range members {
		if node.Etcd == nil || node.Etcd.Status.Leader == 0 {
			continue
		}

		leader := node.Etcd.Status.Leader
		followers[leader]++

		if most == 0 || followers[leader] > followers[most] {
			most = leader
		}
	}

	var findings []cluster.Finding

	for _, node := range members {
		if node.Etcd == nil {
			continue
		}

		status := node.Etcd.Status
		finding := cluster.Finding{Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Node: node.Name, Remedy: EtcdRemedy}

		switch complaints := status.Complaints(); {
		case status.Leader == 0:
			finding.Found = "this member of etcd follows no leader"
		case len(complaints) > 0:
			finding.Found = "this member of etcd reports: " + strings.Join(complaints, "; ")
		case status.Leader != most:
			finding.Found = fmt.Sprintf("the members of etcd do not agree on a leader: this one follows %016x, others follow %016x", status.Leader, most)
		default:
			continue
		}

		findings = append(findings, finding)
	}

	return findings
}

// Votes reports whether the node has a member of etcd that counts towards the quorum: it follows a leader, has a
// vote and reports no error except alarms.
func Votes(node cluster.Node) bool {
	return node.Etcd != nil && node.Etcd.Status.Leader != 0 && !node.Etcd.Status.Learner && len(node.Etcd.Status.Complaints()) == 0
}

// EtcdLag requires every member to have applied nearly every raft entry that any of the control planes holds.
func EtcdLag(members, controlPlanes []cluster.Node) []cluster.Finding {
	var (
		newest   uint64
		findings []cluster.Finding
	)

	for _, node := range controlPlanes {
		if node.Etcd != nil {
			newest = max(newest, node.Etcd.Status.Index)
		}
	}

	for _, node := range members {
		if node.Etcd == nil || node.Etcd.Status.Applied+MaxRaftLag >= newest {
			continue
		}

		findings = append(findings, cluster.Finding{
			Check: cluster.CheckEtcdRaftLag, Severity: cluster.Observed, Node: node.Name,
			Found: fmt.Sprintf("this member of etcd applied entry %d of %d, and %d is as far as it may be behind", node.Etcd.Status.Applied, newest, MaxRaftLag),
			Remedy: fmt.Sprintf("Wait until it has caught up (talosctl -n %s etcd status), or find out what holds it back (talosctl -n %s logs etcd).",
				node.Address, node.Address),
		})
	}

	return findings
}

// EtcdAlarms reports every alarm once, at the control plane whose member raised it, because every member lists
// the alarms of all members. The alarm of an unknown member has no node.
func EtcdAlarms(observed cluster.Observation) []cluster.Finding {
	raised := map[string][]string{}
	controlPlanes := observed.ControlPlanes()
	names := make([]string, 0, len(controlPlanes)+1)

	for _, teller := range controlPlanes {
		names = append(names, teller.Name)

		for _, alarm := range alarmsSeen(teller) {
			node := observed.AlarmedNode(alarm)
			if !slices.Contains(raised[node], alarm) {
				raised[node] = append(raised[node], alarm)
			}
		}
	}

	var findings []cluster.Finding

	for _, node := range append(names, "") {
		if alarms := raised[node]; len(alarms) > 0 {
			findings = append(findings, alarmFinding(node, alarms))
		}
	}

	return findings
}

// alarmFinding returns the finding for the alarms of one member. NOSPACE can be skipped, because people have to
// judge whether the space left is enough. CORRUPT cannot: if the data of members differ, a restart may leave the
// wrong ones in charge.
func alarmFinding(node string, alarms []string) cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckEtcdAlarms, Severity: cluster.Observed, Node: node,
		Found:  "etcd raised " + strings.Join(alarms, ", "),
		Remedy: "Resolve the cause (talosctl etcd status; for NOSPACE: talosctl etcd defrag, one member at a time, as a member does not answer while it is defragmented), then talosctl etcd alarm disarm.",
	}

	if slices.ContainsFunc(alarms, func(alarm string) bool { return strings.Contains(alarm, "CORRUPT") }) {
		finding.Firm = true
		finding.Remedy = "Save a snapshot of a member without the alarm first (talosctl etcd snapshot). Then, if all others are healthy, replace the member whose data is corrupt: " +
			"take its node out of the cluster and let it join again with an empty disk, which loses everything that is only on that disk. Then talosctl etcd alarm disarm."
	}

	return finding
}

// alarmsSeen returns the alarms that a control plane lists, as "NOSPACE on member 1f": each member repeats the
// alarms of all members in its status.
func alarmsSeen(teller cluster.Node) []string {
	if teller.Etcd == nil {
		return nil
	}

	var seen []string

	for _, reported := range teller.Etcd.Status.Errors {
		if cluster.IsAlarm(reported) {
			seen = append(seen, listedAlarm(reported))
		}
	}

	return seen
}

// listedAlarm spells an alarm from a member's status, "memberID:31 alarm:NOSPACE" with the ID in decimal (the
// text form of etcd's AlarmMember), as in "NOSPACE on member 1f". Other texts are returned as they are.
func listedAlarm(reported string) string {
	var (
		member uint64
		kind   string
	)

	reported = strings.TrimSpace(reported)
	if _, err := fmt.Sscanf(reported, "memberID:%d alarm:%s", &member, &kind); err != nil {
		return reported
	}

	return fmt.Sprintf("%s on member %x", kind, member)
}
