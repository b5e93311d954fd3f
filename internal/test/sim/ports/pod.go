// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	// graceTime is how long a pod takes to stop, startTime to become ready.
	graceTime = 3137 * time.Millisecond
	startTime = 5237 * time.Millisecond
	// namespaceWorkload is where the workloads are.
	namespaceWorkload = "workload"
)

// PodSpec is a pod that a test wants.
type PodSpec struct {
	// App is what it belongs to. A budget covers all pods of an app.
	App string
	// Node is where it starts; empty lets the cluster choose.
	Node string
	// Fits are the nodes that it can run on; nil means all that take workloads.
	Fits []string
	// Unmanaged pods are not brought back when they are taken away.
	Unmanaged bool
	// LocalData names volumes whose content is lost with the pod.
	LocalData []string
	// CPU is what it requests in thousandths of a core, Memory in bytes.
	CPU, Memory int64
	// NotReady pods run, and never serve.
	NotReady bool
}

// pod is one workload pod. Its controller starts another one for each that is
// taken away.
type pod struct {
	PodSpec

	name, uid string
	// node is empty while no node takes it.
	node string
	// readyAt is when it is up on its node; goneAt, when not zero, when it has
	// stopped.
	readyAt, goneAt time.Time
	// bound pods can run on this node only, and nothing takes their place.
	bound bool
}

// AddApp starts pods of an app, ready at once and spread over the workers, or
// over all nodes where there are none. A budget that is not nil covers them.
func (c *Cluster) AddApp(app string, replicas int, budget *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cover(app, budget)

	for range replicas {
		c.startPod(PodSpec{App: app}, c.place(PodSpec{App: app}), c.now())
	}
}

// AddPod starts one pod of an app on a certain node and no other.
func (c *Cluster) AddPod(app, node string, budget *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cover(app, budget)
	c.startPod(PodSpec{App: app, Fits: []string{node}}, node, c.now()).bound = true
}

// StartPod starts one pod, ready at once unless it never is, and returns its
// name. It waits where no node takes it.
func (c *Cluster) StartPod(spec PodSpec) string {
	c.mu.Lock()
	defer c.mu.Unlock()

	spec.Fits, spec.LocalData = slices.Clone(spec.Fits), slices.Clone(spec.LocalData)

	node := spec.Node
	if node == "" {
		node = c.place(spec)
	}

	return c.startPod(spec, node, c.now()).name
}

func (c *Cluster) startPod(spec PodSpec, node string, ready time.Time) *pod {
	c.started++
	started := &pod{
		PodSpec: spec, name: fmt.Sprintf("%s-%d", spec.App, c.started), uid: fmt.Sprintf("uid-%s-%d", spec.App, c.started),
		node: node, readyAt: ready,
	}
	c.pods = append(c.pods, started)

	return started
}

// place is the node with the fewest pods that takes one like that; empty when
// none does.
func (c *Cluster) place(spec PodSpec) string {
	best, fewest := "", 0
	states := c.world.Nodes()
	fits := c.fits(spec, states)

	for _, state := range states {
		object := c.nodes[state.Name]
		if object == nil || object.unschedulable || !object.ready || !slices.Contains(fits, state.Name) {
			continue
		}

		count, room := 0, c.room(state.Name)

		for _, p := range c.pods {
			if p.node == state.Name {
				count++
				room.CPU -= p.CPU
				room.Memory -= p.Memory
			}
		}

		if room.CPU < spec.CPU || room.Memory < spec.Memory || room.Pods <= int64(count) {
			continue
		}

		if best == "" || count < fewest {
			best, fewest = state.Name, count
		}
	}

	return best
}

// fits lists the nodes, of all that there are, that a pod like that can run on,
// cordons and room aside, in order; with the lock held.
func (c *Cluster) fits(spec PodSpec, states []model.NodeState) []string {
	var fits []string

	workers := slices.ContainsFunc(states, func(s model.NodeState) bool { return s.Role == model.Worker })

	for _, state := range states {
		takes := !workers || state.Role == model.Worker
		if spec.Fits != nil {
			takes = slices.Contains(spec.Fits, state.Name)
		}

		if takes && c.nodes[state.Name] != nil {
			fits = append(fits, state.Name)
		}
	}

	slices.Sort(fits)

	return fits
}

// settle removes the pods that have stopped and places those that wait; with
// the lock held.
func (c *Cluster) settle() {
	now := c.now()

	for _, p := range c.pods {
		since, unable := c.nodes[p.node].unable()
		if unable && !p.goneAt.IsZero() && p.goneAt.After(since) {
			// Only a kubelet of a node that is ready confirms that a pod has
			// stopped.
			p.goneAt = now.Add(graceTime)
		}
	}

	c.pods = slices.DeleteFunc(c.pods, func(p *pod) bool { return !p.goneAt.IsZero() && !now.Before(p.goneAt) })

	for _, p := range c.pods {
		if p.node == "" && !p.bound {
			if node := c.place(p.PodSpec); node != "" {
				p.node, p.readyAt = node, now.Add(startTime)
			}
		}
	}
}

// podsOn lists what a drain of the node removes.
func (c *Cluster) podsOn(node string) []cluster.Pod {
	blocked := c.blocked(node)

	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()

	var pods []cluster.Pod

	for _, p := range c.pods {
		if p.node == node {
			pods = append(pods, cluster.Pod{Namespace: namespaceWorkload, Name: p.name, UID: p.uid, Terminating: !p.goneAt.IsZero()})
		}
	}

	if blocked {
		pods = append(pods, cluster.Pod{Namespace: namespaceWorkload, Name: blockerName(node), UID: "uid-" + blockerName(node)})
	}

	return pods
}

// blockerName is the pod of the fault "a budget blocks the drain".
func blockerName(node string) string { return "blocks-drain-of-" + node }

// blocked tells whether the fault is in force on the node and its pod there.
func (c *Cluster) blocked(node string) bool {
	scripted := slices.ContainsFunc(c.world.FaultsFor(model.StepDrain), func(f model.Fault) bool {
		return f.Effect == model.EffectBlockedByBudget && (f.Node == node || f.Node == model.AnyNode)
	})

	c.mu.Lock()
	defer c.mu.Unlock()

	if !scripted {
		delete(c.struck, node)
	}

	return scripted && !c.struck[node]
}

// actor is who asks.
type actor struct{ by, client string }

func (a actor) detail(pod cluster.Pod) map[string]string {
	detail := map[string]string{"namespace": pod.Namespace, "pod": pod.Name, "by": a.by}
	if a.client != "" {
		detail["client"] = a.client
	}

	return detail
}

// evict is an eviction request.
func (c *Cluster) evict(who actor, asked cluster.Pod) error {
	node, found, covered := c.find(asked)
	exhausted := covered.exhausted
	detail := who.detail(asked)

	switch {
	case !found:
		detail["outcome"] = "gone"
		c.record(node, history.KindEvict, detail)

		return nil
	case len(covered.by) > 1:
		detail["outcome"], detail["budget"] = "blocked", strings.Join(covered.by, ", ")
		c.record(node, history.KindEvict, detail)

		return fmt.Errorf("unable to evict pod %s: %w: %w: Kubernetes evicts no pod that two of them cover; leave it to one of them",
			asked, cluster.ErrRefused, cluster.ErrOverlap)
	case exhausted != "":
		detail["outcome"], detail["budget"] = "blocked", exhausted
		c.record(node, history.KindEvict, detail)

		if asked.Name == blockerName(node) {
			c.tell(node, exhausted)
		}

		return fmt.Errorf("unable to evict pod %s: %w: %s", asked, cluster.ErrBudget, exhausted)
	}

	detail["outcome"] = "evicted"
	c.record(node, history.KindEvict, detail)
	c.terminate(asked)

	return nil
}

// tell records, once, that the scripted budget has blocked a drain.
func (c *Cluster) tell(node, budget string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if _, told := c.struck[node]; told {
		return
	}

	c.struck[node] = false
	c.record(node, history.KindFault, map[string]string{
		"step": string(model.StepDrain), "effect": string(model.EffectBlockedByBudget), "info": budget,
	})
}

// delete is the deletion of a pod without asking its budgets.
func (c *Cluster) delete(who actor, asked cluster.Pod) {
	node, found, covered := c.find(asked)
	if !found {
		return
	}

	detail := who.detail(asked)
	if covered.exhausted != "" {
		detail["budget"] = covered.exhausted
	}

	c.record(node, history.KindDelete, detail)
	c.terminate(asked)
}

// cover is what the budgets of a pod say.
type cover struct {
	// by are their names.
	by []string
	// exhausted is one that has nothing to give, empty where all have.
	exhausted string
}

// find tells where a pod runs and which of its budgets has nothing to give.
func (c *Cluster) find(asked cluster.Pod) (node string, found bool, covered cover) {
	for _, state := range c.world.Nodes() {
		if asked.Name == blockerName(state.Name) {
			name := namespaceWorkload + "/" + asked.Name

			return state.Name, c.blocked(state.Name), cover{by: []string{name}, exhausted: name}
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()

	index := slices.IndexFunc(c.pods, func(p *pod) bool { return p.uid == asked.UID })
	if index < 0 {
		return "", false, cover{}
	}

	asking := c.pods[index]
	if !asking.goneAt.IsZero() {
		// It is on its way already, and no budget is asked.
		return asking.node, true, cover{}
	}

	for _, budget := range c.budgets {
		if budget.App != asking.App {
			continue
		}

		covered.by = append(covered.by, budget.String())
		if c.exhausted(budget, asking) {
			covered.exhausted = budget.String()
		}
	}

	return asking.node, true, covered
}

// exhausted tells whether a budget has nothing to give for a pod. One that does
// not serve costs nothing, and may go while the others are enough, be that an old
// number.
func (c *Cluster) exhausted(budget *Budget, asking *pod) bool {
	serves := c.serves(asking)

	switch {
	case !serves && budget.AlwaysAllow:
		return false
	case budget.Stale, budget.Unsynced != "" && serves:
		return true
	case serves:
		return c.healthy(budget.App)-1 < budget.MinAvailable
	default:
		return c.healthy(budget.App) < budget.MinAvailable
	}
}

// healthy counts the pods of an app that serve.
func (c *Cluster) healthy(app string) int {
	count := 0

	for _, p := range c.pods {
		if p.App == app && c.serves(p) {
			count++
		}
	}

	return count
}

func (c *Cluster) serves(p *pod) bool {
	object := c.nodes[p.node]

	return p.goneAt.IsZero() && !p.NotReady && object != nil && object.ready && !c.now().Before(p.readyAt)
}

// terminate stops a pod and starts another one in its place.
func (c *Cluster) terminate(asked cluster.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, state := range c.world.Nodes() {
		if asked.Name == blockerName(state.Name) {
			c.struck[state.Name] = true

			return
		}
	}

	for _, p := range c.pods {
		if p.uid != asked.UID || !p.goneAt.IsZero() {
			continue
		}

		p.goneAt = c.now().Add(graceTime)

		if p.bound || p.Unmanaged {
			return
		}

		c.startPod(p.PodSpec, c.place(p.PodSpec), c.now().Add(startTime))

		return
	}
}

// Budget is a PodDisruptionBudget over the pods of one app.
type Budget struct {
	App string
	// Name is that of the app when empty.
	Name string
	// MinAvailable is how many of its pods must stay ready.
	MinAvailable int
	// Stale budgets have numbers that were never worked out. They give nothing.
	Stale bool
	// Unsynced is why the numbers cannot be worked out any more: the budget gives
	// nothing, and the others are those of before. Empty where they can.
	Unsynced string
	// AlwaysAllow lets pods go that are not ready, whatever the numbers say.
	AlwaysAllow bool
}

// String is the name that the history shows.
func (b *Budget) String() string { return namespaceWorkload + "/" + cmp.Or(b.Name, b.App) }

// AddBudget puts one more budget over the pods of an app.
func (c *Cluster) AddBudget(budget Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.cover(budget.App, &budget)
}

// RemoveBudget takes all budgets of an app away.
func (c *Cluster) RemoveBudget(app string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.budgets = slices.DeleteFunc(c.budgets, func(b *Budget) bool { return b.App == app })
}

// cover puts a budget, if there is one, over the pods of an app; with the lock
// held.
func (c *Cluster) cover(app string, budget *Budget) {
	if budget == nil {
		return
	}

	added := *budget
	added.App = app
	c.budgets = append(c.budgets, &added)
}

// kubeBudget is a budget as its status shows it; with the lock held.
func (c *Cluster) kubeBudget(budget *Budget) cluster.Budget {
	shown := cluster.Budget{
		Namespace: namespaceWorkload, Name: cmp.Or(budget.Name, budget.App), Stale: budget.Stale, AlwaysAllow: budget.AlwaysAllow,
		Unsynced: budget.Unsynced,
	}

	expected := 0

	for _, p := range c.pods {
		if p.App != budget.App {
			continue
		}

		shown.Pods = append(shown.Pods, p.uid)

		if p.goneAt.IsZero() {
			expected++
		}
	}

	if !budget.Stale {
		shown.Healthy, shown.Desired, shown.Expected = c.healthy(budget.App), budget.MinAvailable, expected
		if budget.Unsynced == "" {
			shown.Allowed = max(0, shown.Healthy-shown.Desired)
		}
	}

	return shown
}

// What a node has for pods unless a test says otherwise.
const (
	usualCPU    = 4000
	usualMemory = 8 << 30
	usualPods   = 110
)

// SetRoom says what a node has for pods, whatever runs there: CPU in thousandths
// of a core and memory in bytes. Without it that is 4 cores, 8 GiB and 110 pods.
func (c *Cluster) SetRoom(room cluster.Room) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.rooms[room.Node] = room
}

// room is what a node has for pods; with the lock held.
func (c *Cluster) room(node string) cluster.Room {
	if room, set := c.rooms[node]; set {
		return room
	}

	return cluster.Room{Node: node, CPU: usualCPU, Memory: usualMemory, Pods: usualPods}
}

// Workloads implements [cluster.WorkloadReader].
func (c *Client) Workloads(ctx context.Context) (workloads cluster.Workloads, err error) {
	err = c.look(ctx, "Workloads", "", func() error {
		workloads = c.cluster.workloadsNow()

		return nil
	})

	return workloads, err
}

// workloadsNow are the pods, those of the nodes' own components among them, the
// budgets and the rooms.
func (c *Cluster) workloadsNow() cluster.Workloads {
	var listed cluster.Workloads

	for _, own := range c.componentPods(c.world.Nodes) {
		listed.Pods = append(listed.Pods, stayingPod(own))
	}

	// Whether a fault blocks a node is asked without the lock.
	var blocked []string

	states := c.world.Nodes()

	for _, state := range states {
		if c.blocked(state.Name) {
			blocked = append(blocked, state.Name)
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.settle()

	replicas, everywhere := map[string]int{}, c.fits(PodSpec{}, states)

	for _, p := range c.pods {
		if p.goneAt.IsZero() && !p.Unmanaged {
			replicas[p.App]++
		}
	}

	for _, p := range c.pods {
		fits := everywhere
		if p.Fits != nil {
			fits = c.fits(p.PodSpec, states)
		}

		listed.Pods = append(listed.Pods, c.workloadPod(p, replicas[p.App], fits))
	}

	for _, budget := range c.budgets {
		listed.Budgets = append(listed.Budgets, c.kubeBudget(budget))
	}

	for _, node := range blocked {
		pod, budget := blocker(node, everywhere)
		listed.Pods, listed.Budgets = append(listed.Pods, pod), append(listed.Budgets, budget)
	}

	for _, state := range states {
		if c.nodes[state.Name] != nil {
			listed.Rooms = append(listed.Rooms, c.room(state.Name))
		}
	}

	return listed
}

// workloadPod is how a drain sees a pod; with the lock held.
func (c *Cluster) workloadPod(p *pod, replicas int, fits []string) cluster.WorkloadPod {
	shown := cluster.WorkloadPod{
		Pod:  cluster.Pod{Namespace: namespaceWorkload, Name: p.name, UID: p.uid, Terminating: !p.goneAt.IsZero()},
		Node: p.node, Ready: c.serves(p), LocalData: slices.Clone(p.LocalData), Fits: slices.Clone(fits), CPU: p.CPU, Memory: p.Memory,
	}

	if !p.Unmanaged {
		shown.Owner, shown.Replicas = "ReplicaSet/"+p.App, replicas
	}

	return shown
}

// stayingPod is a pod that a drain leaves alone: a static one, or kube-proxy's.
func stayingPod(own cluster.ComponentPod) cluster.WorkloadPod {
	name := string(own.Component) + "-" + own.Node
	shown := cluster.WorkloadPod{
		Pod:  cluster.Pod{Namespace: "kube-system", Name: name, UID: "uid-" + name},
		Node: own.Node, Stays: true, Ready: own.Ready, Owner: "Node/" + own.Node, Fits: []string{own.Node},
	}

	if own.Component == cluster.Proxy {
		shown.Owner = "DaemonSet/" + string(own.Component)
	}

	return shown
}

// blocker is the pod, and the budget, of the fault "a budget blocks the drain".
func blocker(node string, fits []string) (cluster.WorkloadPod, cluster.Budget) {
	name := blockerName(node)
	pod := cluster.WorkloadPod{
		Pod:  cluster.Pod{Namespace: namespaceWorkload, Name: name, UID: "uid-" + name},
		Node: node, Ready: true, Owner: "ReplicaSet/" + name, Replicas: 1, Fits: slices.Clone(fits),
	}

	return pod, cluster.Budget{
		Namespace: namespaceWorkload, Name: name, Healthy: 1, Desired: 1, Expected: 1, Pods: []string{pod.UID},
	}
}
