// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// raftLagMost is how many raft entries a member may be behind the newest one
	// and still count as caught up. The guards of each node use the same number.
	raftLagMost = 1000
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
func (p *planner) checkEtcdHealth(controlPlanes []*subject) {
	asked := slices.DeleteFunc(slices.Clone(controlPlanes), func(n *subject) bool { return n.Etcd == nil || n.open })

	p.checkMembers(asked, controlPlanes)
	p.checkLeader(asked)
	p.checkAlarms(controlPlanes)
	p.checkLag(asked, controlPlanes)
	p.checkSize(controlPlanes)
}

// checkMembers wants every member started and none a learner. What several
// control planes see is one finding, at the member's own node where that is known.
func (p *planner) checkMembers(asked, controlPlanes []*subject) {
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

			own := slices.IndexFunc(controlPlanes, func(n *subject) bool { return isMember(n, member) })
			if own >= 0 && controlPlanes[own].open {
				continue
			}

			if own >= 0 {
				finding.Node = controlPlanes[own].Name
			}

			p.find(finding)
		}
	}
}

// isMember tells whether the control plane runs the member.
func isMember(node *subject, member cluster.EtcdMember) bool {
	return slices.Contains(member.PeerAddresses, node.Address) || (node.Etcd != nil && node.Etcd.Status.MemberID == member.ID)
}

// checkLeader wants one leader that every member follows, and no member to
// report errors. An alarm is an error too, and a check of its own.
func (p *planner) checkLeader(asked []*subject) {
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

		p.find(finding)
	}
}

// checkLag wants every member to have applied nearly everything there is.
func (p *planner) checkLag(asked, controlPlanes []*subject) {
	var newest uint64

	for _, node := range controlPlanes {
		if node.Etcd != nil {
			newest = max(newest, node.Etcd.Status.Index)
		}
	}

	for _, node := range asked {
		if status := node.Etcd.Status; status.Applied+raftLagMost < newest {
			p.find(cluster.Finding{
				Check: cluster.CheckEtcdRaftLag, Severity: cluster.Observed, Node: node.Name,
				Found: fmt.Sprintf("this member of etcd applied entry %d of %d, and %d is as far as it may be behind", status.Applied, newest, raftLagMost),
				Remedy: fmt.Sprintf("Wait until it has caught up (talosctl -n %s etcd status), or find out what holds it back (talosctl -n %s logs etcd).",
					node.Address, node.Address),
			})
		}
	}
}

// checkSize holds the size of each database against its quota: beyond it etcd
// takes no more writes.
func (p *planner) checkSize(controlPlanes []*subject) {
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

		p.find(finding)
	}
}

// size is a number of bytes as people write it: "1.95 GiB", "512 MiB".
func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	}

	return fmt.Sprintf("%d MiB", bytes>>20)
}
