// SPDX-License-Identifier: MPL-2.0

// Package health judges observations: whether etcd is healthy, whether somebody else is taking a node down, and
// what draining nodes will run into. The planner and the guards of the engine use the same rules. It is pure: no
// clock, no context, no I/O.
package health

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// attributeDrain is the attribute of the configuration that decides what happens to pods that could not be
// evicted in time.
const attributeDrain = "drain"

// ForecastDrains returns what draining the nodes, one after the other in that order, would run into. All are the
// nodes of the cluster. Findings about blocked evictions are [cluster.Observed], and passing if the budget only
// waits for pods to become Ready or for its numbers to be computed. They are advice if the policy deletes what
// could not be evicted in time, and if the budget may be short of healthy pods because of an earlier run or
// because of a node that the roll repairs. All other findings are advice. A finding about several nodes carries
// the first of them and names the others. There are none if nothing is drained.
func ForecastDrains(workloads cluster.Workloads, drained []string, all []cluster.KubeNode, policy cluster.DrainPolicy) []cluster.Finding {
	if !policy.Enabled || len(drained) == 0 {
		return nil
	}

	f := newForecast(workloads, drained, all, policy)

	var stuck []string

	for _, name := range drained {
		node, known := f.index[name]

		switch {
		case !known:
			// Kubernetes has no such node, and therefore no pods on it.
		case !f.roomElsewhere(node):
			stuck = append(stuck, name)
		default:
			f.evict(node)
		}
	}

	var findings []cluster.Finding

	if len(stuck) > 0 {
		findings = append(findings, onlyCordoned(stuck))
	}

	findings = append(findings, f.blocked()...)

	return append(findings, f.advice()...)
}

// forecast is what is known about the cluster, and what was found so far.
type forecast struct {
	policy cluster.DrainPolicy
	// nodes are the nodes of the cluster; index finds them by name.
	nodes []node
	index map[string]int
	// pods are all pods; on holds the pods of a node, by its index.
	pods []cluster.WorkloadPod
	on   [][]int
	// budgets are all budgets; covers holds those that cover a pod, by its UID.
	budgets []cluster.Budget
	covers  map[string][]int
	// strength is, by the index of a budget, how many pods it should cover.
	strength []strength
	// resumed are the nodes under a cordon of ours: an earlier run was about to drain them, or did, and the pods
	// that it evicted may not be running again yet.
	resumed []string
	// unready are, by the index of a budget, the pods that it covers and that are not Ready.
	unready map[int][]string
	// mended are, by the index of a budget, the nodes with such pods that are not Ready and that the roll
	// repairs.
	mended map[int][]string

	// blocks are the reasons why evictions fail, in the order in which they were found; at finds them by their
	// budgets.
	blocks []*block
	at     map[string]*block
	// lone and local are pods that deserve a warning.
	lone, local group
	// short are the drained nodes whose pods request more than the other nodes have left; lacking says what the first
	// of them lacks.
	short   []string
	lacking string
}

// node is a node of the cluster and its free room.
type node struct {
	name string
	// takes is true if pods without tolerations can be scheduled to it now, or once our own cordon is taken away.
	takes bool
	// mended is true if it is not Ready and the roll repairs it.
	mended bool
	// room is what is left of its capacity; unknown is true if the capacity is unknown.
	room    room
	unknown bool
	// endless is true if it is unknown how many pods it takes.
	endless bool
}

// room is CPU in thousandths of a core, memory in bytes, and a number of pods.
type room struct{ cpu, memory, pods int64 }

func newForecast(workloads cluster.Workloads, drained []string, all []cluster.KubeNode, policy cluster.DrainPolicy) *forecast {
	f := &forecast{
		policy: policy, pods: workloads.Pods, budgets: workloads.Budgets,
		nodes: make([]node, 0, len(all)), index: make(map[string]int, len(all)), on: make([][]int, len(all)),
		covers: map[string][]int{}, strength: make([]strength, len(workloads.Budgets)), unready: map[int][]string{}, mended: map[int][]string{}, at: map[string]*block{},
	}

	for i := range all {
		// A cordon of ours is taken away before the next node is drained. That includes a node that an earlier
		// run left unfinished: it comes first.
		ours := all[i].Unschedulable && all[i].CordonedBy != ""
		takes := all[i].Ready && !all[i].Unschedulable || ours && (all[i].Ready || slices.Contains(drained, all[i].Name))
		f.index[all[i].Name] = i

		if all[i].Unschedulable && all[i].CordonedBy != "" {
			f.resumed = append(f.resumed, all[i].Name)
		}

		f.nodes = append(f.nodes, node{
			name: all[i].Name, takes: takes && !all[i].ExcludesWorkloads, unknown: true,
			mended: !all[i].Ready && slices.Contains(drained, all[i].Name),
		})
	}

	for _, has := range workloads.Rooms {
		if i, known := f.index[has.Node]; known && (has.CPU > 0 || has.Memory > 0) {
			f.nodes[i].room, f.nodes[i].unknown = room{cpu: has.CPU, memory: has.Memory, pods: has.Pods}, false
			f.nodes[i].endless = has.Pods <= 0
		}
	}

	for i := range f.budgets {
		for _, uid := range f.budgets[i].Pods {
			f.covers[uid] = append(f.covers[uid], i)
		}
	}

	for i := range f.pods {
		f.record(i)
	}

	return f
}

// record registers a pod with its budgets, and with its node and the room that it takes there.
func (f *forecast) record(index int) {
	pod := &f.pods[index]

	for _, budget := range f.covers[pod.UID] {
		f.strength[budget].add(pod)

		if pod.Ready {
			continue
		}

		f.unready[budget] = append(f.unready[budget], pod.String())

		if at, known := f.index[pod.Node]; known && f.nodes[at].mended && !slices.Contains(f.mended[budget], pod.Node) {
			f.mended[budget] = append(f.mended[budget], pod.Node)
		}
	}

	at, known := f.index[pod.Node]
	if !known {
		return
	}

	f.on[at] = append(f.on[at], index)
	f.nodes[at].room.take(pod)
}

// take subtracts what the pod requests from the room.
func (r *room) take(pod *cluster.WorkloadPod) {
	r.cpu -= pod.CPU
	r.memory -= pod.Memory
	r.pods--
}

// roomElsewhere reports whether any other node takes pods: without one, a drain evicts nothing.
func (f *forecast) roomElsewhere(drained int) bool {
	for i := range f.nodes {
		if i != drained && f.nodes[i].takes {
			return true
		}
	}

	return false
}

// onlyCordoned says that pods stay where they are and stop with their node.
func onlyCordoned(nodes []string) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckDrain, Severity: cluster.Advice, Node: nodes[0],
		Found:  fmt.Sprintf("no other node takes pods, so it is only cordoned, and its pods stop with it%s", also(nodes[1:])),
		Remedy: "Nothing is evicted and nothing is waited for; one more node that takes pods would keep them running.",
	}
}

// evict goes through the pods that have to leave a node.
func (f *forecast) evict(drained int) {
	var (
		name   = f.nodes[drained].name
		needed room
	)

	for _, index := range f.on[drained] {
		pod := &f.pods[index]
		if pod.Stays || pod.Terminating {
			continue
		}

		f.block(pod, name)

		if len(pod.LocalData) > 0 {
			f.local.add(name, fmt.Sprintf("%s (%s)", pod, readable.List(pod.LocalData)))
		}

		if pod.Owner == "" {
			f.lone.add(name, pod.String())

			continue
		}

		needed.cpu += pod.CPU
		needed.memory += pod.Memory
		needed.pods++
	}

	if lacking := f.lacks(drained, needed); lacking != "" {
		f.short = append(f.short, name)
		f.lacking = cmp.Or(f.lacking, lacking)
	}
}

// lacks compares what the pods of a node request with what the other nodes have left, all together: which pod could
// run on which of them is not considered. It returns what is too little, and nothing if the room of any of them is
// unknown. The room is the same for each drained node, because all nodes are back in service before the next one.
func (f *forecast) lacks(drained int, needed room) string {
	var left room

	for i := range f.nodes {
		other := &f.nodes[i]

		switch {
		case i == drained || !other.takes:
			continue
		case other.unknown:
			return ""
		}

		left.cpu += max(other.room.cpu, 0)
		left.memory += max(other.room.memory, 0)

		if other.endless {
			left.pods += needed.pods
		} else {
			left.pods += max(other.room.pods, 0)
		}
	}

	const mebibyte = 1 << 20

	switch {
	case needed.memory > left.memory:
		return fmt.Sprintf("memory: %d MiB requested, %d MiB left", needed.memory/mebibyte, left.memory/mebibyte)
	case needed.cpu > left.cpu:
		return fmt.Sprintf("CPU: %dm requested, %dm left", needed.cpu, left.cpu)
	case needed.pods > left.pods:
		return fmt.Sprintf("pods: %d to move, room for %d", needed.pods, left.pods)
	default:
		return ""
	}
}

// strength is how many pods a budget covers if all pods that should exist do.
type strength struct {
	// pods is the number of pods that the controllers want, plus those that are counted one by one: pods without
	// a controller, or with one whose replicas are unknown.
	pods int
	// managed is true if at least one of them has a controller.
	managed bool
	// owners are the controllers that were counted already. Names suffice, as a budget covers one namespace.
	owners map[string]bool
}

// add counts a pod that is covered. A terminating pod without known replicas is not counted, because it may not
// come back.
func (s *strength) add(pod *cluster.WorkloadPod) {
	s.managed = s.managed || pod.Owner != ""

	switch {
	case pod.Owner != "" && pod.Replicas > 0:
		if s.owners == nil {
			s.owners = map[string]bool{}
		}

		if !s.owners[pod.Owner] {
			s.owners[pod.Owner] = true
			s.pods += pod.Replicas
		}
	case !pod.Terminating:
		s.pods++
	}
}

// most returns how many pods a budget may cover at most, as far as is known.
func (f *forecast) most(budget int) int {
	return max(f.budgets[budget].Expected, f.strength[budget].pods)
}

// group is a set of pods of drained nodes that share one warning.
type group struct {
	pods  []string
	nodes []string
}

// add adds a pod of the node. The pods of a node have to be added one after the other.
func (g *group) add(node, pod string) {
	g.pods = append(g.pods, pod)

	if len(g.nodes) == 0 || g.nodes[len(g.nodes)-1] != node {
		g.nodes = append(g.nodes, node)
	}
}

// advice returns the findings that prevent nothing.
func (f *forecast) advice() []cluster.Finding {
	var findings []cluster.Finding

	for _, kind := range []struct {
		group         *group
		found, remedy string
	}{
		{&f.lone, "pods without a controller are evicted, and nobody brings them back: %s", "Save what they are for, or run them under a controller."},
		{&f.local, "pods lose the data in their local volumes (emptyDir): %s", "Expect it, or move the data to persistent volumes first."},
	} {
		if len(kind.group.pods) == 0 {
			continue
		}

		findings = append(findings, cluster.Finding{
			Check: cluster.CheckDrain, Severity: cluster.Advice, Node: kind.group.nodes[0],
			Found:  fmt.Sprintf(kind.found, readable.List(kind.group.pods)) + also(kind.group.nodes[1:]),
			Remedy: kind.remedy,
		})
	}

	if len(f.short) > 0 {
		findings = append(findings, cluster.Finding{
			Check: cluster.CheckDrain, Severity: cluster.Advice, Node: f.short[0],
			Found:  fmt.Sprintf("its pods request more than the other nodes have left (%s), and some of them wait until it is back%s", f.lacking, also(f.short[1:])),
			Remedy: "Make room, add a node, or lower what they request.",
		})
	}

	return findings
}
