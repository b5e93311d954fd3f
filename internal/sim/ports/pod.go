// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

const (
	// graceTime is how long a pod takes to stop, startTime to become ready.
	graceTime = 3137 * time.Millisecond
	startTime = 5237 * time.Millisecond
	// namespaceWorkload is where the workloads are.
	namespaceWorkload = "workload"
)

// pod is one workload pod. Its controller starts another one for each that is
// taken away.
type pod struct {
	app, name, uid string
	// node is empty while no node takes it.
	node string
	// readyAt is when it is up on its node; goneAt, when not zero, when it has
	// stopped.
	readyAt, goneAt time.Time
	// bound pods can run on this node only.
	bound bool
}

// Budget is a PodDisruptionBudget over the pods of one app.
type Budget struct {
	App string
	// MinAvailable is how many of its pods must stay ready.
	MinAvailable int
}

// String is the name that the history shows.
func (b *Budget) String() string { return namespaceWorkload + "/" + b.App }

// AddApp starts pods of an app, ready at once and spread over the workers, or
// over all nodes where there are none. A budget that is not nil covers them.
func (c *Cluster) AddApp(app string, replicas int, budget *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if budget != nil {
		c.budgets = append(c.budgets, &Budget{App: app, MinAvailable: budget.MinAvailable})
	}

	for range replicas {
		c.startPod(app, c.place(), c.now())
	}
}

// AddPod starts one pod of an app on a certain node and no other.
func (c *Cluster) AddPod(app, node string, budget *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if budget != nil {
		c.budgets = append(c.budgets, &Budget{App: app, MinAvailable: budget.MinAvailable})
	}

	c.startPod(app, node, c.now()).bound = true
}

// RemoveBudget takes the budget of an app away.
func (c *Cluster) RemoveBudget(app string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.budgets = slices.DeleteFunc(c.budgets, func(b *Budget) bool { return b.App == app })
}

func (c *Cluster) startPod(app, node string, ready time.Time) *pod {
	c.started++
	started := &pod{
		app: app, name: fmt.Sprintf("%s-%d", app, c.started), uid: fmt.Sprintf("uid-%s-%d", app, c.started),
		node: node, readyAt: ready,
	}
	c.pods = append(c.pods, started)

	return started
}

// place is the node with the fewest pods that takes one; empty when none does.
func (c *Cluster) place() string {
	best, fewest := "", 0
	states := c.world.Nodes()
	workers := slices.ContainsFunc(states, func(s model.NodeState) bool { return s.Role == model.Worker })

	for _, state := range states {
		object := c.nodes[state.Name]
		if object == nil || object.unschedulable || !object.ready || workers && state.Role == model.ControlPlane {
			continue
		}

		count := 0

		for _, p := range c.pods {
			if p.node == state.Name {
				count++
			}
		}

		if best == "" || count < fewest {
			best, fewest = state.Name, count
		}
	}

	return best
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
			if node := c.place(); node != "" {
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
