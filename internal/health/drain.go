// SPDX-License-Identifier: MPL-2.0

// Package health judges what was observed: whether etcd is well, whether somebody
// else has a node on its way down, and what draining nodes will run into. The planner
// and the guards of the engine judge by the same rules. It is pure: no clock, no
// context, no I/O.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// attributeDrain is the attribute of the configuration that decides what happens
// to pods that could not be evicted in time.
const attributeDrain = "drain"

// ForecastDrains names what draining the nodes, one after the other in that order,
// would run into. All are the nodes of the cluster. What blocks evictions is
// [cluster.Observed], and passing where it is a matter of pods that are not Ready
// yet. It is advice where the policy deletes what could not be evicted in time, and
// where an earlier run of ours may be why a budget is short of healthy pods; so is
// the rest. A finding about several nodes carries the first of them and names the
// others. There are none where nothing is drained.
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
			// Kubernetes has no such node, and so no pods on it.
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

// forecast is what is known of the cluster, and what was found out so far.
type forecast struct {
	policy cluster.DrainPolicy
	// nodes are those of the cluster; index finds them by name.
	nodes []node
	index map[string]int
	// pods are all of them. On is which of them are on a node, by its index.
	pods []cluster.WorkloadPod
	on   [][]int
	// budgets are all of them, and covers those of a pod, by its UID.
	budgets []cluster.Budget
	covers  map[string][]int
	// strength is, by the index of a budget, how many pods it is to cover.
	strength []strength
	// resumed are the nodes under a cordon of ours: an earlier run was about to
	// drain them, or did, and what it evicted may still be on its way.
	resumed []string
	// unready are, by the index of a budget, pods that it covers and that are not
	// Ready.
	unready map[int][]string
	// mended are, by the index of a budget, the nodes that the roll brings back on
	// which such pods are.
	mended map[int][]string

	// blocks are the reasons why evictions fail, in the order in which they were
	// found; at finds them by what they are about.
	blocks []*block
	at     map[string]*block
	// lone, local, bound and homeless are pods that are worth a warning.
	lone, local, bound, homeless group
}

// node is a node of the cluster and what is free on it.
type node struct {
	name string
	// takes tells that pods may be scheduled to it now, or when an earlier drain
	// of ours is over; general that this goes for pods which tolerate nothing.
	takes, general bool
	// mended tells that it is not Ready, and that the roll brings it back.
	mended bool
	// room is what is left of what it has, unknown whether that is not told.
	room    room
	unknown bool
	// endless tells that nobody knows how many pods it takes.
	endless bool
}

// room is processor time in thousandths of a core, memory in bytes, and a number
// of pods.
type room struct{ cpu, memory, pods int64 }

func newForecast(workloads cluster.Workloads, drained []string, all []cluster.KubeNode, policy cluster.DrainPolicy) *forecast {
	f := &forecast{
		policy: policy, pods: workloads.Pods, budgets: workloads.Budgets,
		nodes: make([]node, 0, len(all)), index: make(map[string]int, len(all)), on: make([][]int, len(all)),
		covers: map[string][]int{}, strength: make([]strength, len(workloads.Budgets)), unready: map[int][]string{}, mended: map[int][]string{}, at: map[string]*block{},
	}

	for i := range all {
		// A cordon of ours is taken away before the next node is drained, also from a
		// node that an earlier run left in the middle of its step, which comes first.
		ours := all[i].Unschedulable && all[i].CordonedBy != ""
		takes := all[i].Ready && !all[i].Unschedulable || ours && (all[i].Ready || slices.Contains(drained, all[i].Name))
		f.index[all[i].Name] = i

		if all[i].Unschedulable && all[i].CordonedBy != "" {
			f.resumed = append(f.resumed, all[i].Name)
		}

		f.nodes = append(f.nodes, node{
			name: all[i].Name, takes: takes, general: takes && !all[i].ExcludesWorkloads, unknown: true,
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

// record takes note of where a pod runs and what it takes there.
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
	f.nodes[at].take(pod)
}

// take takes the room that the pod asks for.
func (n *node) take(pod *cluster.WorkloadPod) {
	n.room.cpu -= pod.CPU
	n.room.memory -= pod.Memory
	n.room.pods--
}

// fits tells whether the pod has room on the node. What it does not ask for is
// not missed on a node that has less than nothing left of it.
func (n *node) fits(pod *cluster.WorkloadPod) bool {
	if n.unknown {
		return true
	}

	return (pod.CPU == 0 || n.room.cpu >= pod.CPU) && (pod.Memory == 0 || n.room.memory >= pod.Memory) && (n.endless || n.room.pods >= 1)
}

// roomElsewhere tells whether any other node takes pods at all: without one a
// drain waits for nothing.
func (f *forecast) roomElsewhere(drained int) bool {
	for i := range f.nodes {
		if i != drained && f.nodes[i].general {
			return true
		}
	}

	return false
}

// onlyCordoned says that pods stay where they are, and stop with their node.
func onlyCordoned(nodes []string) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckDrain, Severity: cluster.Advice, Node: nodes[0],
		Found:  fmt.Sprintf("no other node takes pods, so it is only cordoned, and its pods stop with it%s", also(nodes[1:])),
		Remedy: "Nothing is evicted and nothing is waited for; one more node that takes pods would keep them running.",
	}
}

// evict goes through the pods of a node that have to go.
func (f *forecast) evict(drained int) {
	name := f.nodes[drained].name

	var moving []*cluster.WorkloadPod

	for _, index := range f.on[drained] {
		pod := &f.pods[index]
		if pod.Stays || pod.Terminating {
			continue
		}

		f.block(pod, name)

		if len(pod.LocalData) > 0 {
			f.local.add(name, fmt.Sprintf("%s (%s)", pod, readable.List(pod.LocalData)))
		}

		switch {
		case pod.Owner == "":
			f.lone.add(name, pod.String())
		case len(pod.Fits) == 0:
			// Nobody knows where it could go.
		case f.movable(pod, drained):
			moving = append(moving, pod)
		default:
			f.bound.add(name, pod.String())
		}
	}

	f.pack(moving, drained)
}

// movable tells whether any other node that takes pods suits the pod, room aside.
func (f *forecast) movable(pod *cluster.WorkloadPod, drained int) bool {
	for _, name := range pod.Fits {
		if at, known := f.index[name]; known && at != drained && f.nodes[at].takes {
			return true
		}
	}

	return false
}

// pack finds a place for the pods of a drained node, the biggest first and each
// on the first node with room (first-fit decreasing), and notes those that find
// none. All other nodes are back in service by then, so nothing is kept of it.
func (f *forecast) pack(moving []*cluster.WorkloadPod, drained int) {
	slices.SortStableFunc(moving, func(a, b *cluster.WorkloadPod) int {
		return cmp.Or(cmp.Compare(b.Memory, a.Memory), cmp.Compare(b.CPU, a.CPU))
	})

	before := map[int]room{}

	for _, pod := range moving {
		at, found := f.place(pod, drained)
		if !found {
			f.homeless.add(f.nodes[drained].name, fmt.Sprintf("%s (%s)", pod, asked(pod)))

			continue
		}

		if _, kept := before[at]; !kept {
			before[at] = f.nodes[at].room
		}

		f.nodes[at].take(pod)
	}

	for at, was := range before {
		f.nodes[at].room = was
	}
}

// place is the first node that suits the pod and has room for it.
func (f *forecast) place(pod *cluster.WorkloadPod, drained int) (at int, found bool) {
	for _, name := range pod.Fits {
		at, known := f.index[name]
		if known && at != drained && f.nodes[at].takes && f.nodes[at].fits(pod) {
			return at, true
		}
	}

	return 0, false
}

// asked is what a pod asks for, as people write it: "1500m CPU, 2048 MiB".
func asked(pod *cluster.WorkloadPod) string {
	var parts []string

	if pod.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%dm CPU", pod.CPU))
	}

	switch {
	case pod.Memory >= 1<<20:
		parts = append(parts, fmt.Sprintf("%d MiB", pod.Memory>>20))
	case pod.Memory > 0:
		parts = append(parts, fmt.Sprintf("%d bytes", pod.Memory))
	}

	if len(parts) == 0 {
		return "a place"
	}

	return strings.Join(parts, ", ")
}

// strength is how many pods a budget covers when all are there that there are to
// be.
type strength struct {
	// pods are those that the controllers want, and those that nobody counts: of
	// no controller, or of one that does not tell.
	pods int
	// managed tells that one of them has a controller.
	managed bool
	// owners are the controllers that were counted. A budget covers one namespace.
	owners map[string]bool
}

// add adds a pod that is covered. One that goes away and is not counted on stays
// away.
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

// most is how many pods of a budget there may be, as far as anyone knows.
func (f *forecast) most(budget int) int {
	return max(f.budgets[budget].Expected, f.strength[budget].pods)
}

// group are pods of drained nodes that are worth one warning.
type group struct {
	pods  []string
	nodes []string
}

// add adds a pod of the node, whose pods come one after the other.
func (g *group) add(node, pod string) {
	g.pods = append(g.pods, pod)

	if len(g.nodes) == 0 || g.nodes[len(g.nodes)-1] != node {
		g.nodes = append(g.nodes, node)
	}
}

// advice are the findings that stop nothing.
func (f *forecast) advice() []cluster.Finding {
	var findings []cluster.Finding

	for _, kind := range []struct {
		group         *group
		found, remedy string
	}{
		{&f.lone, "pods without a controller are evicted, and nobody brings them back: %s", "Save what they are for, or run them under a controller."},
		{&f.local, "pods lose the data in their local volumes (emptyDir): %s", "Expect it, or move the data to persistent volumes first."},
		{&f.bound, "pods fit no other node that takes pods, and wait until this one is back: %s", "Expect that they are away meanwhile, or let them run elsewhere (node selectors, affinities, tolerations, local volumes)."},
		{&f.homeless, "the other nodes have no room for pods that must move, which wait until this one is back: %s", "Make room, add a node, or lower what they request."},
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

	return findings
}
