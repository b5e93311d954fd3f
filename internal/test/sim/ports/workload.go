// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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
