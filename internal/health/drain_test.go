// SPDX-License-Identifier: MPL-2.0

package health_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/health"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// yard is a cluster under construction: three workers with two cores and 4 GiB
// each and room for ten pods, all of which are to be drained.
type yard struct {
	workloads cluster.Workloads
	nodes     []cluster.KubeNode
	drained   []string
	policy    cluster.DrainPolicy
}

func newYard() *yard {
	y := &yard{policy: cluster.DrainPolicy{Enabled: true, Timeout: 5 * time.Minute, OnTimeout: cluster.DrainAbort}}

	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		y.nodes = append(y.nodes, cluster.KubeNode{Name: name, Ready: true})
		y.drained = append(y.drained, name)
		y.workloads.Rooms = append(y.workloads.Rooms, cluster.Room{Node: name, CPU: 2000, Memory: 4 << 30, Pods: 10})
	}

	return y
}

// pod puts a healthy pod of ReplicaSet/web on the node.
func (y *yard) pod(node, name string, change ...func(*cluster.WorkloadPod)) *yard {
	pod := cluster.WorkloadPod{
		Pod: cluster.Pod{Namespace: "shop", Name: name, UID: "uid-" + name}, Node: node, Ready: true, Owner: "ReplicaSet/web", Replicas: 3,
		CPU: 100, Memory: 128 << 20,
	}

	for _, apply := range change {
		apply(&pod)
	}

	y.workloads.Pods = append(y.workloads.Pods, pod)

	return y
}

// budget covers pods; healthy of expected are, and desired have to be.
func (y *yard) budget(name string, allowed, healthy, desired, expected int, pods ...string) *yard {
	budget := cluster.Budget{Namespace: "shop", Name: name, Allowed: allowed, Healthy: healthy, Desired: desired, Expected: expected}
	for _, pod := range pods {
		budget.Pods = append(budget.Pods, "uid-"+pod)
	}

	y.workloads.Budgets = append(y.workloads.Budgets, budget)

	return y
}

// last changes the budget that was added last.
func (y *yard) last(change func(*cluster.Budget)) *yard {
	change(&y.workloads.Budgets[len(y.workloads.Budgets)-1])

	return y
}

func (y *yard) node(name string) *cluster.KubeNode {
	for i := range y.nodes {
		if y.nodes[i].Name == name {
			return &y.nodes[i]
		}
	}

	panic("no node " + name)
}

func (y *yard) change(apply func(*yard)) *yard {
	apply(y)

	return y
}

func (y *yard) foresee() []cluster.Finding {
	return health.ForecastDrains(y.workloads, y.drained, y.nodes, y.policy)
}

func unready(p *cluster.WorkloadPod) { p.Ready = false }
func staying(p *cluster.WorkloadPod) { p.Stays = true }
func leaving(p *cluster.WorkloadPod) { p.Terminating = true }
func unowned(p *cluster.WorkloadPod) { p.Owner = "" }

func asks(cpu, mebibytes int64) func(*cluster.WorkloadPod) {
	return func(p *cluster.WorkloadPod) { p.CPU, p.Memory = cpu, mebibytes<<20 }
}

// sight is the one finding that is expected.
type sight struct {
	yard      *yard
	severity  cluster.Severity
	node      string
	attribute string
	unknown   bool
	passing   bool
	says      []string
}

func check(t *testing.T, cases map[string]sight) {
	t.Helper()

	for behaviour, test := range cases {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			found := test.yard.foresee()
			wording.NoteFindings(t, found)

			if len(found) != 1 {
				t.Fatalf("%d findings, want one: %v", len(found), found)
			}

			got := found[0]
			if got.Check != cluster.CheckDrain || got.Severity != test.severity || got.Node != test.node || got.Attribute != test.attribute || got.Unknown != test.unknown || got.Passing != test.passing {
				t.Errorf("%+v, want %+v", got, test)
			}

			for _, part := range test.says {
				if !strings.Contains(got.String(), part) {
					t.Errorf("it does not say %q: %s", part, got)
				}
			}
		})
	}
}

func TestDrain_LostDataAndPodsWithoutAPlaceAreMentioned(t *testing.T) {
	t.Parallel()

	check(t, map[string]sight{
		"a pod without a controller": {
			yard: newYard().pod("worker-3", "debug", unowned), node: "worker-3", severity: cluster.Advice, says: []string{"nobody brings them back: shop/debug"},
		},
		"local data": {
			yard: newYard().pod("worker-1", "cache", func(p *cluster.WorkloadPod) { p.LocalData = []string{"tmp", "scratch"} }), node: "worker-1", severity: cluster.Advice,
			says: []string{"lose the data", "shop/cache (tmp, scratch)"},
		},
		"more CPU than is left on all others": {
			yard: newYard().pod("worker-1", "big", asks(3000, 1024)).pod("worker-2", "a", asks(600, 0), staying).pod("worker-3", "b", asks(600, 0), staying),
			node: "worker-1", severity: cluster.Advice, says: []string{"more than the other nodes have left", "(CPU: 3000m requested, 2800m left)", "add a node"},
		},
		"more memory than is left": {
			yard: newYard().pod("worker-1", "big-1", asks(100, 3000)).pod("worker-1", "big-2", asks(100, 3000)).change(func(y *yard) { y.node("worker-3").Unschedulable = true }),
			node: "worker-1", severity: cluster.Advice, says: []string{"have left (memory: 6000 MiB requested, 4096 MiB left), and some of them wait until it is back (check"},
		},
		"more than is left while a node is not Ready": {
			yard: newYard().pod("worker-1", "big", asks(100, 5000)).change(func(y *yard) { y.node("worker-3").Ready = false; y.drained = []string{"worker-1"} }),
			node: "worker-1", severity: cluster.Advice, says: []string{"(memory: 5000 MiB requested, 4096 MiB left)"},
		},
		"more than is left once nodes that overcommit count as full": {
			yard: newYard().pod("worker-1", "big", asks(100, 5000)).pod("worker-2", "a", asks(0, 9000), staying),
			node: "worker-1", severity: cluster.Advice, says: []string{"(memory: 5000 MiB requested, 4096 MiB left)"},
		},
		"nodes that keep pods away count for nothing": {
			yard: newYard().pod("worker-1", "big", asks(100, 5000)).change(func(y *yard) { y.node("worker-3").ExcludesWorkloads = true; y.drained = []string{"worker-1"} }),
			node: "worker-1", severity: cluster.Advice, says: []string{"(memory: 5000 MiB requested, 4096 MiB left)"},
		},
		"the same on several nodes": {
			yard: newYard().pod("worker-1", "big-1", asks(100, 9000)).pod("worker-3", "big-3", asks(100, 9000)),
			node: "worker-1", severity: cluster.Advice, says: []string{"(memory: 9000 MiB requested, 4096 MiB left)", "it is back; the same on worker-3 (check"},
		},
		"no room for another pod": {
			yard: newYard().pod("worker-1", "web-1").change(func(y *yard) {
				for i := range y.workloads.Rooms {
					y.workloads.Rooms[i].Pods = 1
				}
			}).pod("worker-2", "a", staying).pod("worker-3", "b", staying),
			node: "worker-1", severity: cluster.Advice, says: []string{"(pods: 1 to move, room for 0)"},
		},
		"nowhere to go at all": {
			yard: newYard().pod("worker-1", "web-1").budget("web", 0, 1, 1, 1, "web-1").change(func(y *yard) {
				y.drained = []string{"worker-1"}
				y.node("worker-2").ExcludesWorkloads, y.node("worker-3").Ready = true, false
			}),
			node: "worker-1", severity: cluster.Advice, says: []string{"only cordoned", "stop with it"},
		},
		"nowhere to go from any node": {
			yard: newYard().pod("worker-1", "web-1").change(func(y *yard) {
				for i := range y.nodes {
					y.nodes[i].ExcludesWorkloads = true
				}
			}),
			node: "worker-1", severity: cluster.Advice, says: []string{"only cordoned", "the same on worker-2, worker-3"},
		},
	})
}

func TestDrain_WhatItGetsOverIsNotMentioned(t *testing.T) {
	t.Parallel()

	for behaviour, y := range map[string]*yard{
		"an empty cluster":                          newYard(),
		"a budget with something to give":           newYard().pod("worker-1", "web-1").budget("web", 1, 3, 2, 3, "web-1"),
		"a pod that is not Ready is always allowed": newYard().pod("worker-1", "web-1", unready).budget("web", 0, 1, 2, 3, "web-1").last(func(b *cluster.Budget) { b.AlwaysAllow = true }),
		"a pod that is not Ready is not missed":     newYard().pod("worker-1", "web-1", unready).budget("web", 0, 2, 2, 3, "web-1"),
		"a pod that stays":                          newYard().pod("worker-1", "ds-1", staying, unowned).budget("ds", 0, 1, 1, 1, "ds-1"),
		"a pod that is on its way":                  newYard().pod("worker-1", "web-1", leaving).budget("web", 0, 1, 1, 1, "web-1"),
		"a node that is not drained":                newYard().pod("worker-2", "web-1").budget("web", 0, 1, 1, 1, "web-1").change(func(y *yard) { y.drained = []string{"worker-1", "gone-1"} }),
		"no drain":                                  newYard().pod("worker-1", "web-1", unowned).budget("web", 0, 1, 1, 1, "web-1").change(func(y *yard) { y.policy.Enabled = false }),
		"rooms that nobody tells":                   newYard().pod("worker-1", "big", asks(99_000, 1<<20)).change(func(y *yard) { y.workloads.Rooms = []cluster.Room{{Node: "worker-2"}, {Node: "worker-3"}} }),
		"a pod that asks for nothing on full nodes": newYard().pod("worker-1", "small", asks(0, 0)).pod("worker-2", "a", asks(9000, 9000), staying).pod("worker-3", "b", asks(9000, 9000), staying),
		"a cordon of ours does not last":            newYard().pod("worker-1", "web-1", asks(100, 5000)).change(func(y *yard) { y.node("worker-2").Unschedulable, y.node("worker-2").CordonedBy = true, "run-1" }),
		"nodes that an earlier run left come back": newYard().pod("worker-3", "web-1").change(func(y *yard) {
			for _, name := range []string{"worker-1", "worker-2"} {
				node := y.node(name)
				node.Ready, node.Unschedulable, node.CordonedBy = false, true, "run-1"
			}
		}),
		"pods that wait for a cordon of ours to go": newYard().pod("worker-1", "web-1").pod("", "web-2", unready).budget("web", 0, 2, 2, 3, "web-1", "web-2").
			change(func(y *yard) { y.node("worker-2").Unschedulable, y.node("worker-2").CordonedBy = true, "run-1" }),
		"room counts once for each drained node": newYard().pod("worker-1", "big-1", asks(100, 3000)).pod("worker-2", "big-2", asks(100, 3000)),
	} {
		if found := y.foresee(); len(found) > 0 {
			t.Errorf("%s: %v", behaviour, found)
		}
	}
}

// TestDrain_EverythingIsFoundAtOnce: people mend what they know of.
func TestDrain_EverythingIsFoundAtOnce(t *testing.T) {
	t.Parallel()

	y := newYard().
		pod("worker-1", "db-0").budget("db", 0, 1, 1, 1, "db-0").
		pod("worker-1", "debug", unowned).
		pod("worker-2", "web-1").budget("a", 1, 3, 2, 3, "web-1").budget("b", 1, 3, 2, 3, "web-1").
		pod("worker-3", "disk-0", asks(100, 9000), func(p *cluster.WorkloadPod) { p.LocalData = []string{"tmp"} })

	var texts []string
	for _, finding := range y.foresee() {
		texts = append(texts, fmt.Sprintf("%d %s", finding.Severity, finding.Node))
	}

	if got, want := strings.Join(texts, ", "), "1 worker-1, 1 worker-2, 0 worker-1, 0 worker-3, 0 worker-3"; got != want {
		t.Errorf("findings %q, want %q:\n%v", got, want, y.foresee())
	}
}

// BenchmarkForesee10000Pods drains 1,000 nodes of ten pods each.
func BenchmarkForesee10000Pods(b *testing.B) {
	var (
		y     = &yard{policy: cluster.DrainPolicy{Enabled: true, OnTimeout: cluster.DrainAbort}}
		names []string
	)

	for i := range 1000 {
		name := fmt.Sprintf("worker-%04d", i)
		names = append(names, name)
		y.nodes = append(y.nodes, cluster.KubeNode{Name: name, Ready: true})
		y.workloads.Rooms = append(y.workloads.Rooms, cluster.Room{Node: name, CPU: 1010, Memory: 4 << 30, Pods: 110})
	}

	y.drained = names

	for i := range 10_000 {
		y.pod(names[i%1000], fmt.Sprintf("web-%d", i))
	}

	for i := range 100 {
		y.budget(fmt.Sprintf("web-%d", i), i%2, 100, 99, 100)
		y.last(func(budget *cluster.Budget) {
			for j := range 100 {
				budget.Pods = append(budget.Pods, fmt.Sprintf("uid-web-%d", i*100+j))
			}
		})
	}

	b.ReportAllocs()

	for b.Loop() {
		if found := y.foresee(); len(found) != 50 {
			b.Fatalf("%d findings", len(found))
		}
	}
}
