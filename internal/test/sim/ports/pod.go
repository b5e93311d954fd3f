// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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
