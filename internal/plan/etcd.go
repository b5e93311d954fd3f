// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// checkEtcd compares the control planes with the members of etcd, and refuses
// topologies that lose etcd when one member is down.
func (p *planner) checkEtcd() {
	var controlPlanes []*plannedNode

	moving := false

	for i := range p.nodes {
		if node := &p.nodes[i]; node.Role == cluster.ControlPlane {
			controlPlanes = append(controlPlanes, node)
			moving = moving || node.hasNodeStep()
		}
	}

	switch {
	case len(controlPlanes) == 1 && moving:
		p.add(cluster.Finding{
			Check: cluster.CheckSingleControlPlane, Severity: cluster.Advice, Node: controlPlanes[0].Name,
			Found:  "the cluster has one control plane: the Kubernetes API is away while it reboots",
			Remedy: "Expect kubectl and everything that asks the API to fail for some minutes; with three control planes it stays.",
		})
	case len(controlPlanes) == 2 && moving:
		p.checkTwoMembers()
	}

	for _, node := range controlPlanes {
		if node.Etcd == nil {
			p.checkSilence(node)

			continue
		}

		if finding, ok := compareMembers(node, controlPlanes); ok {
			p.add(finding)
		}
	}

	p.checkEtcdHealth(controlPlanes)
	p.adviseUnasked(controlPlanes)
}

// adviseUnasked says what is not known where a control plane's etcd could not be
// asked; that it did not answer is an error of its own. A node that an earlier run
// may have sent into a reboot is asked when it is back.
func (p *planner) adviseUnasked(controlPlanes []*plannedNode) {
	var names []string

	for _, node := range controlPlanes {
		if node.Etcd == nil && !node.open {
			names = append(names, node.Name)
		}
	}

	if len(names) == 0 {
		return
	}

	for _, unasked := range []struct{ check, what string }{
		{cluster.CheckEtcdMembers, "which members etcd has"},
		{cluster.CheckEtcdAlarms, "whether etcd raised an alarm"},
		{cluster.CheckEtcdRaftLag, "how far behind the members of etcd are"},
		{cluster.CheckEtcdDBSize, "how large the database of etcd is"},
	} {
		said := func(f cluster.Finding) bool { return f.Check == unasked.check }
		if unasked.check == cluster.CheckEtcdMembers && slices.ContainsFunc(p.made.Findings, said) {
			continue
		}

		p.add(cluster.Finding{
			Check: unasked.check, Severity: cluster.Advice, Unknown: true,
			Found:  unasked.what + " could not be asked on " + readable.List(names),
			Remedy: remedyEtcd,
		})
	}
}

// checkTwoMembers refuses to take away one of two members. Until Talos 1.13 the
// node itself asks for the quorum and refuses, so that what the policy skips does
// not help; that is not two-members, which is skipped.
func (p *planner) checkTwoMembers() {
	legacy := p.legacyControlPlaneSteps()

	finding := cluster.Finding{
		Check: cluster.CheckTwoMembers, Severity: cluster.Observed,
		Found:  "etcd has two members, and while one of them reboots the other has no quorum",
		Remedy: "Add a third control plane, or remove one, before the upgrade.",
	}

	if len(legacy) == 0 {
		finding.Remedy += ` Or accept that etcd and the Kubernetes API are away meanwhile: preflight = { skip = ["two-members"] }.`
	}

	p.add(finding)

	if !p.policy.Skips(cluster.CheckTwoMembers) {
		return
	}

	for _, step := range legacy {
		p.add(cluster.Finding{
			Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Node: step.Node, Firm: true,
			Found:  fmt.Sprintf("the node runs Talos %s, which refuses an upgrade by itself while etcd has two members, so skipping two-members does not help", step.From),
			Remedy: "Add a third control plane, or bring both to Talos 1.13 by hand first.",
		})
	}
}

// legacyControlPlaneSteps are the first steps of the control planes that take the
// legacy call.
func (p *planner) legacyControlPlaneSteps() []Step {
	var legacy []Step

	for i := range p.made.Steps {
		step := &p.made.Steps[i]
		same := func(s Step) bool { return s.Node == step.Node }

		if step.Role == cluster.ControlPlane && step.API == cluster.LegacyAPI && !step.Done && !slices.ContainsFunc(legacy, same) {
			legacy = append(legacy, *step)
		}
	}

	return legacy
}

// compareMembers holds one control plane's list of etcd members against the
// control planes that are there.
func compareMembers(viewer *plannedNode, controlPlanes []*plannedNode) (cluster.Finding, bool) {
	var strangers []string

	for _, member := range viewer.Etcd.Members {
		known := slices.ContainsFunc(controlPlanes, func(n *plannedNode) bool {
			return isMember(n, member)
		})
		if !known {
			strangers = append(strangers, fmt.Sprintf("%s (%016x)", member.Name, member.ID))
		}
	}

	if viewer.Etcd.Mute() || len(strangers) == 0 && len(viewer.Etcd.Members) == len(controlPlanes) {
		return cluster.Finding{}, false
	}

	found := fmt.Sprintf("etcd has %d members as seen from %s, but the cluster has %d control planes", len(viewer.Etcd.Members), viewer.Name, len(controlPlanes))
	if len(strangers) > 0 {
		found += "; not a control plane: " + readable.List(strangers)
	}

	return cluster.Finding{
		Check: cluster.CheckEtcdMembers, Severity: cluster.Observed, Node: viewer.Name, Found: found,
		Remedy: "Let members join, or remove the stale ones (talosctl etcd members, talosctl etcd remove-member).",
	}, true
}

// checkSilence refuses to begin while a control plane's etcd does not answer,
// except on a node that an earlier run may have sent into a reboot.
func (p *planner) checkSilence(node *plannedNode) {
	if node.open || node.Machine == nil {
		return
	}

	p.add(cluster.Finding{
		Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Unknown: !errors.Is(node.EtcdError, cluster.ErrQuorum), Node: node.Name, Err: node.EtcdError,
		Found:  fmt.Sprintf("etcd on this control plane does not answer: %v", node.EtcdError),
		Remedy: remedyEtcd,
	})
}

const (
	// etcdQuota is the largest size of a database where nothing configures one:
	// etcd's own default, 2 GiB.
	etcdQuota = 2 << 30
	// Parts of the quota in percent from which the size of a database is worth a
	// warning, and from which it stands in the way: every node that restarts has
	// etcd and Kubernetes write more than usual.
	quotaAdvice, quotaMost = 75, 90
)

// remedyEtcd is what a person can do about a member in trouble.
const remedyEtcd = "Bring it back to health first (talosctl service etcd, talosctl etcd status)."

// checkEtcdHealth looks at what the members of etcd say about themselves. A node
// that an earlier run may have sent into a reboot has yet to catch up.
func (p *planner) checkEtcdHealth(controlPlanes []*plannedNode) {
	asked := slices.DeleteFunc(slices.Clone(controlPlanes), func(n *plannedNode) bool { return n.Etcd == nil || n.open })

	p.checkMembers(asked, controlPlanes)
	p.checkLeader(asked)
	p.checkAlarms(controlPlanes)
	p.checkLag(asked)
	p.checkSize(controlPlanes)
}

// checkMembers wants every member started and none a learner. What several
// control planes see is one finding, at the member's own node where that is known.
func (p *planner) checkMembers(asked, controlPlanes []*plannedNode) {
	said := map[uint64]bool{}

	for _, viewer := range asked {
		members := viewer.Etcd.Members
		if viewer.Etcd.Mute() {
			members = []cluster.EtcdMember{{ID: viewer.Etcd.Status.MemberID, Name: viewer.Name, Learner: true}}
		}

		for _, member := range members {
			what := fmt.Sprintf("member %s of etcd is still a learner, which has no vote", member.Name)

			switch {
			case said[member.ID]:
				continue
			case member.Name == "":
				what = fmt.Sprintf("member %016x of etcd was added and has never started", member.ID)
			case !member.Learner:
				continue
			}

			said[member.ID] = true
			finding := cluster.Finding{
				Check: cluster.CheckEtcdMembers, Severity: cluster.Observed, Node: viewer.Name, Found: what,
				Remedy: "Let it join, or remove it if it is stale (talosctl etcd members, talosctl etcd remove-member).",
			}

			own := slices.IndexFunc(controlPlanes, func(n *plannedNode) bool { return isMember(n, member) })
			if own >= 0 && controlPlanes[own].open {
				continue
			}

			if own >= 0 {
				finding.Node = controlPlanes[own].Name
			}

			p.add(finding)
		}
	}
}

// isMember tells whether the control plane runs the member.
func isMember(node *plannedNode, member cluster.EtcdMember) bool {
	return slices.Contains(member.PeerAddresses, node.Address) || (node.Etcd != nil && node.Etcd.Status.MemberID == member.ID)
}

// checkLeader wants one leader that every member follows, and no member to
// report errors. An alarm is an error too, and a check of its own.
func (p *planner) checkLeader(asked []*plannedNode) {
	followers := map[uint64]int{}
	most := uint64(0)

	for _, node := range asked {
		leader := node.Etcd.Status.Leader
		if leader == 0 {
			continue
		}

		followers[leader]++

		if most == 0 || followers[leader] > followers[most] {
			most = leader
		}
	}

	for _, node := range asked {
		status := node.Etcd.Status
		finding := cluster.Finding{Check: cluster.CheckEtcdQuorum, Severity: cluster.Observed, Node: node.Name, Remedy: remedyEtcd}

		switch errors := status.Complaints(); {
		case status.Leader == 0:
			finding.Found = "this member of etcd follows no leader"
		case len(errors) > 0:
			finding.Found = "this member of etcd reports: " + strings.Join(errors, "; ")
		case status.Leader != most:
			finding.Found = fmt.Sprintf("the members of etcd do not agree on a leader: this one follows %016x, others follow %016x", status.Leader, most)
		default:
			continue
		}

		p.add(finding)
	}
}

// checkLag wants every member to have applied nearly everything there is.
func (p *planner) checkLag(asked []*plannedNode) {
	newest := health.NewestEntry(p.snapshot.ControlPlanes())

	for _, node := range asked {
		if status := node.Etcd.Status; health.Lags(status, newest) {
			p.add(cluster.Finding{
				Check: cluster.CheckEtcdRaftLag, Severity: cluster.Observed, Node: node.Name,
				Found: fmt.Sprintf("this member of etcd applied entry %d of %d, and %d is as far as it may be behind", status.Applied, newest, health.MaxRaftLag),
				Remedy: fmt.Sprintf("Wait until it has caught up (talosctl -n %s etcd status), or find out what holds it back (talosctl -n %s logs etcd).",
					node.Address, node.Address),
			})
		}
	}
}

// checkSize holds the size of each database against its quota: beyond it etcd
// takes no more writes.
func (p *planner) checkSize(controlPlanes []*plannedNode) {
	for _, node := range controlPlanes {
		if node.Etcd == nil || node.Etcd.Status.DBSize <= 0 {
			continue
		}

		quota, by := int64(etcdQuota), "the default of etcd"
		if node.read() && node.Machine.Config.EtcdQuota > 0 {
			quota, by = node.Machine.Config.EtcdQuota, "quota-backend-bytes"
		}

		// In floating point, because nothing bounds a quota.
		part := 100 * float64(node.Etcd.Status.DBSize) / float64(quota)
		if part < quotaAdvice {
			continue
		}

		finding := cluster.Finding{
			Check: cluster.CheckEtcdDBSize, Severity: cluster.Advice, Node: node.Name,
			Found: fmt.Sprintf("the database of etcd takes %s, which is %d %% of its quota of %s (%s)", size(node.Etcd.Status.DBSize), int(part), size(quota), by),
			Remedy: fmt.Sprintf("Give back what it does not use (talosctl -n %s etcd defrag, one member after the other), or raise quota-backend-bytes; from %d %% on nothing is upgraded.",
				node.Address, quotaMost),
		}

		if part >= quotaMost {
			finding.Severity = cluster.Observed
		}

		p.add(finding)
	}
}

// size is a number of bytes as people write it: "1.95 GiB", "512 MiB".
func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	}

	return fmt.Sprintf("%d MiB", bytes>>20)
}

// checkAlarms names every alarm once, at the control plane whose member raised it:
// all members tell of all of them. One of a member that nobody knows is at none.
func (p *planner) checkAlarms(controlPlanes []*plannedNode) {
	raised := map[string][]string{}
	names := make([]string, 0, len(controlPlanes)+1)

	for _, teller := range controlPlanes {
		names = append(names, teller.Name)

		for _, alarm := range alarmsSeen(teller) {
			node := p.snapshot.AlarmedNode(alarm)
			if !slices.Contains(raised[node], alarm) {
				raised[node] = append(raised[node], alarm)
			}
		}
	}

	for _, node := range append(names, "") {
		if alarms := raised[node]; len(alarms) > 0 {
			p.add(alarmFinding(node, alarms))
		}
	}
}

// alarmFinding is the finding for the alarms of one member. Whether the room that
// is left will do is for people to weigh; of members whose data differ, a restart
// may leave those in charge that are wrong.
func alarmFinding(node string, alarms []string) cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckEtcdAlarms, Severity: cluster.Observed, Node: node,
		Found:  "etcd raised " + strings.Join(alarms, ", "),
		Remedy: "Resolve the cause (talosctl etcd status, talosctl etcd defrag against NOSPACE), then talosctl etcd alarm disarm.",
	}

	if slices.ContainsFunc(alarms, health.Corrupt) {
		finding.Firm = true
		finding.Remedy = "Replace the member whose data is corrupt (take its node out of the cluster and let it join again with an empty disk), then talosctl etcd alarm disarm."
	}

	return finding
}

// alarmsSeen are the alarms that a control plane tells of. Those who may not list
// them still see them in the status.
func alarmsSeen(teller *plannedNode) []string {
	if teller.Etcd == nil {
		return nil
	}

	seen := slices.Clone(teller.Etcd.Alarms)

	for _, reported := range teller.Etcd.Status.Errors {
		if cluster.IsAlarm(reported) {
			seen = append(seen, listedAlarm(reported))
		}
	}

	return seen
}

// listedAlarm spells an alarm from a member's status, "memberID:31 alarm:NOSPACE"
// with the ID in decimal (etcd's AlarmMember as text), as lists of alarms do. What
// reads otherwise stays as it is.
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
