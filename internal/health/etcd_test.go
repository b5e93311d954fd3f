// SPDX-License-Identifier: MPL-2.0

package health_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// threeMembers is a cluster of three control planes with a healthy member of etcd each,
// the first of which leads.
func threeMembers() []cluster.Node {
	var (
		nodes   []cluster.Node
		members []cluster.EtcdMember
	)

	for i := range 3 {
		members = append(members, cluster.EtcdMember{
			ID: uint64(i + 1), Name: fmt.Sprintf("cp-%d", i), PeerAddresses: []string{fmt.Sprintf("10.0.0.%d", i)},
		})
	}

	for i, member := range members {
		nodes = append(nodes, cluster.Node{
			Name: member.Name, Role: cluster.ControlPlane, Address: member.PeerAddresses[0],
			Etcd: &cluster.EtcdView{
				Members: append([]cluster.EtcdMember(nil), members...),
				Status:  cluster.EtcdStatus{MemberID: uint64(i + 1), Leader: 1, Index: 9000, Applied: 9000},
			},
		})
	}

	return nodes
}

// TestEtcd_EachJudgementFindsWhatIsWrong: what each judgement finds in an etcd with one thing wrong, and that
// it finds nothing in a healthy one.
func TestEtcd_EachJudgementFindsWhatIsWrong(t *testing.T) {
	t.Parallel()

	judge := func(nodes []cluster.Node, exempt string) []cluster.Finding {
		var found []cluster.Finding

		found = append(found, health.EtcdMembers(nodes, nodes)...)
		found = append(found, health.EtcdVoters(nodes, nodes, func(n cluster.Node) bool { return n.Name == exempt })...)
		found = append(found, health.EtcdLeader(nodes)...)
		found = append(found, health.EtcdAlarms(cluster.Observation{Nodes: nodes})...)

		return append(found, health.EtcdLag(nodes, nodes)...)
	}

	for name, given := range map[string]struct {
		change func(nodes []cluster.Node)
		exempt string
		want   []string
		votes  int
	}{
		"a healthy one": {change: func([]cluster.Node) {}, votes: 3},
		"a view that lacks a member": {
			change: func(nodes []cluster.Node) { nodes[1].Etcd.Members = nodes[1].Etcd.Members[:2] },
			want:   []string{"cp-1: etcd has 2 members as seen from cp-1, but the cluster has 3 control planes (check etcd-members)"}, votes: 3,
		},
		"a member that is no control plane": {
			change: func(nodes []cluster.Node) {
				nodes[2].Etcd.Members = append(nodes[2].Etcd.Members[:2:2], cluster.EtcdMember{ID: 0xdef, Name: "old-cp", PeerAddresses: []string{"10.0.9.9"}})
			},
			want: []string{"cp-2: etcd has 3 members as seen from cp-2, but the cluster has 3 control planes; not a control plane: old-cp (0000000000000def)"}, votes: 3,
		},
		"a member that never started, as all see it": {
			change: func(nodes []cluster.Node) {
				for _, node := range nodes {
					node.Etcd.Members[2].Name = ""
				}
			},
			want: []string{"cp-2: member 0000000000000003 of etcd was added and has never started (check etcd-members)"}, votes: 3,
		},
		"a learner that says nothing of the others": {
			change: func(nodes []cluster.Node) { nodes[2].Etcd.Members, nodes[2].Etcd.Status.Learner = nil, true },
			want:   []string{"cp-2: member cp-2 of etcd is still a learner, which has no vote (check etcd-members)"}, votes: 2,
		},
		"a learner that may be one": {
			change: func(nodes []cluster.Node) { nodes[2].Etcd.Members, nodes[2].Etcd.Status.Learner = nil, true }, exempt: "cp-2", votes: 2,
		},
		"a member without a leader": {
			change: func(nodes []cluster.Node) { nodes[0].Etcd.Status.Leader = 0 },
			want:   []string{"cp-0: this member of etcd follows no leader (check etcd-quorum)"}, votes: 2,
		},
		"two leaders": {
			change: func(nodes []cluster.Node) { nodes[2].Etcd.Status.Leader = 3 },
			want:   []string{"cp-2: the members of etcd do not agree on a leader: this one follows 0000000000000003, others follow 0000000000000001"}, votes: 3,
		},
		"a member with an error": {
			change: func(nodes []cluster.Node) { nodes[1].Etcd.Status.Errors = []string{"etcdserver: request timed out"} },
			want:   []string{"cp-1: this member of etcd reports: etcdserver: request timed out (check etcd-quorum)"}, votes: 2,
		},
		"an alarm that all tell of": {
			change: func(nodes []cluster.Node) {
				for i := range nodes {
					nodes[i].Etcd.Status.Errors = []string{"memberID:2 alarm:NOSPACE "}
				}
			},
			want: []string{"cp-1: etcd raised NOSPACE on member 2 (check etcd-alarms)"}, votes: 3,
		},
		"corrupt data": {
			change: func(nodes []cluster.Node) { nodes[0].Etcd.Status.Errors = []string{"memberID:31 alarm:CORRUPT "} },
			want:   []string{"etcd raised CORRUPT on member 1f (check etcd-alarms). Save a snapshot of a member without the alarm first"}, votes: 3,
		},
		"a member that is far behind": {
			change: func(nodes []cluster.Node) { nodes[2].Etcd.Status.Applied = 7999 },
			want:   []string{"cp-2: this member of etcd applied entry 7999 of 9000, and 1000 is as far as it may be behind (check etcd-raft-lag)"}, votes: 3,
		},
		"a member that is as far behind as it may be": {change: func(nodes []cluster.Node) { nodes[2].Etcd.Status.Applied = 8000 }, votes: 3},
		"a member that was not asked":                 {change: func(nodes []cluster.Node) { nodes[1].Etcd = nil }, votes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			nodes := threeMembers()
			given.change(nodes)

			found := judge(nodes, given.exempt)
			wording.NoteFindings(t, found)

			if len(found) != len(given.want) {
				t.Fatalf("got %d findings, want %d: %v", len(found), len(given.want), found)
			}

			for i, want := range given.want {
				if !strings.HasPrefix(found[i].String(), want) {
					t.Errorf("got %q, want %q", found[i], want)
				}

				if firm := strings.Contains(want, "CORRUPT"); found[i].Firm != firm {
					t.Errorf("whether it may be skipped: firm is %v, want %v", found[i].Firm, firm)
				}
			}

			votes := 0

			for _, node := range nodes {
				if health.Votes(node) {
					votes++
				}
			}

			if votes != given.votes {
				t.Errorf("%d members vote, want %d", votes, given.votes)
			}
		})
	}
}
