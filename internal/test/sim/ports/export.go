// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// What follows is for another face on the same Kubernetes: one that speaks HTTP
// serves the objects as they stand here, and changes them the way a [Client]
// does, with the same records in the history.

// Cordoning is what a Node object says about its cordon.
type Cordoning struct {
	Unschedulable bool
	// Run is the run of ours that marked the node, empty for none. The mark of a
	// cordon that a person lifted stays.
	Run string
	// ByMachine is the annotation of a machine that cordoned its own node.
	ByMachine bool
}

// NodeView is a Node object with what the adapter makes nothing of.
type NodeView struct {
	cluster.KubeNode
	Cordoning Cordoning
	// Room is what the node has for pods.
	Room cluster.Room
}

// NodeViews are the Node objects, in the world's order.
func (c *Cluster) NodeViews() []NodeView {
	nodes := c.kubeNodes()

	c.mu.Lock()
	defer c.mu.Unlock()

	var views []NodeView

	for _, node := range nodes {
		object := c.nodes[node.Name]
		if object == nil {
			continue
		}

		views = append(views, NodeView{KubeNode: node, Cordoning: object.cordoning(), Room: c.room(node.Name)})
	}

	return views
}

func (n *nodeObject) cordoning() Cordoning {
	return Cordoning{Unschedulable: n.unschedulable, Run: n.mark, ByMachine: n.byMachine}
}

// SwapCordoning changes what a node says about its cordon, unless that is not
// any more what the client has read: ErrConflict.
func (c *Cluster) SwapCordoning(client, node string, read, wanted Cordoning) error {
	c.mu.Lock()

	object, found := c.nodes[node]
	if !found || object.cordoning() != read {
		c.mu.Unlock()

		if !found {
			return fmt.Errorf("node %s: %w", node, cluster.ErrNotFound)
		}

		return fmt.Errorf("node %s: %w", node, cluster.ErrConflict)
	}

	object.mark, object.byMachine = wanted.Run, wanted.ByMachine

	if object.set(wanted.Unschedulable) {
		detail := map[string]string{"by": "client", "client": client}
		if wanted.Unschedulable {
			detail["run"] = wanted.Run
		}

		c.recordCordon(node, wanted.Unschedulable, detail)
	}
	c.mu.Unlock()

	c.world.SetUnschedulable(node, wanted.Unschedulable)

	return nil
}

// PodView is a pod of a workload.
type PodView struct {
	cluster.WorkloadPod
	// App is what a budget selects it by.
	App string
	// Only are the nodes that it asks for; nil where it takes any that takes
	// workloads.
	Only []string
	// Gone is when it will have stopped; zero while nobody took it away.
	Gone time.Time
}

// BudgetView is a budget as its status shows it.
type BudgetView struct {
	cluster.Budget
	App          string
	MinAvailable int
}

// WorkloadView are the workloads at one moment, those of the nodes' own
// components aside.
func (c *Cluster) WorkloadView() (pods []PodView, budgets []BudgetView) {
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

	replicas := map[string]int{}

	for _, p := range c.pods {
		if p.goneAt.IsZero() && !p.Unmanaged {
			replicas[p.App]++
		}
	}

	for _, p := range c.pods {
		pods = append(pods, PodView{
			WorkloadPod: c.workloadPod(p, replicas[p.App], nil), App: p.App, Only: slices.Clone(p.Fits), Gone: p.goneAt,
		})
	}

	for _, budget := range c.budgets {
		budgets = append(budgets, BudgetView{Budget: c.kubeBudget(budget), App: budget.App, MinAvailable: budget.MinAvailable})
	}

	for _, node := range blocked {
		pod, budget := blocker(node, nil)
		pods = append(pods, PodView{WorkloadPod: pod, App: pod.Name})
		budgets = append(budgets, BudgetView{Budget: budget, App: pod.Name, MinAvailable: budget.Desired})
	}

	return pods, budgets
}

// ComponentPodViews are the pods of the control plane and of kube-proxy.
func (c *Cluster) ComponentPodViews() []cluster.ComponentPod { return c.componentPods(c.world.Nodes) }

// EvictPod is an eviction in the name of a client: ErrOverlap, ErrBudget, and
// nil as well for a pod that is gone.
func (c *Cluster) EvictPod(client string, pod cluster.Pod) error {
	return c.evict(actor{by: "client", client: client}, pod)
}

// TryEvictPod tells what EvictPod would, and has no effect.
func (c *Cluster) TryEvictPod(client string, pod cluster.Pod) error {
	node, found, covered := c.find(pod)
	detail := actor{by: "client", client: client}.detail(pod)
	detail["outcome"], detail["budget"] = "dry-run", covered.exhausted
	c.record(node, history.KindEvict, detail)

	switch {
	case !found:
		return nil
	case len(covered.by) > 1:
		return fmt.Errorf("pod %s: %w: %w", pod, cluster.ErrRefused, cluster.ErrOverlap)
	case covered.exhausted != "":
		return fmt.Errorf("pod %s: %w: %s", pod, cluster.ErrBudget, covered.exhausted)
	default:
		return nil
	}
}

// RemovePod deletes a pod in the name of a client, without asking its budgets.
func (c *Cluster) RemovePod(client string, pod cluster.Pod) {
	c.delete(actor{by: "client", client: client}, pod)
}

// LeaseView is the lease, and whether there is one.
func (c *Cluster) LeaseView() (lease cluster.Lease, exists bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.lease, c.hasLease
}

// PutLease writes the lease in the name of a client: ErrConflict unless the
// resource version is the standing one, or empty and there is no lease.
func (c *Cluster) PutLease(lease cluster.Lease) (cluster.Lease, error) {
	return c.writeLease("client", lease)
}

// DropLease deletes the lease of that resource version.
func (c *Cluster) DropLease(resourceVersion string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.hasLease || c.lease.ResourceVersion != resourceVersion {
		return fmt.Errorf("the lease kube-system/talosupgrade: %w", cluster.ErrConflict)
	}

	c.lease, c.hasLease = cluster.Lease{}, false
	c.record("", history.KindLease, map[string]string{"holder": "", "action": "release", "by": "client"})

	return nil
}

// PutJournal writes the journal in the name of a client, as PutLease does.
func (c *Cluster) PutJournal(client string, journal cluster.Journal) (cluster.Journal, error) {
	return c.writeJournal(client, journal)
}

// DropJournal deletes the journal of that resource version, whatever it holds.
func (c *Cluster) DropJournal(client, resourceVersion string) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.journal.ResourceVersion == "" || c.journal.ResourceVersion != resourceVersion {
		return fmt.Errorf("the journal kube-system/talosupgrade-journal: %w", cluster.ErrConflict)
	}

	for _, key := range slices.Sorted(maps.Keys(c.journal.Entries)) {
		if err := c.recordEntry(client, key, c.journal.Entries[key], cluster.Entry{}, false); err != nil {
			return err
		}
	}

	c.recordHolder("client", client, "")

	if err := c.recordDue(client, c.journal.Manifests, nil); err != nil {
		return err
	}

	if err := c.recordSnapshot(client, c.journal.Snapshot, nil); err != nil {
		return err
	}

	c.journal = cluster.Journal{}

	return nil
}

// PutAnnotations sets annotations of the published object in the name of a
// client, by key without prefix; an empty value takes the key away.
func (c *Cluster) PutAnnotations(client string, changes map[string]string) {
	c.annotate(client, changes)
}

// NextVersion is a resource version that nothing else has.
func (c *Cluster) NextVersion() string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.next()
}

// KindsServed are the kinds of the objects that tests put into the cluster, as
// "apiVersion/Kind", in order.
func (c *Cluster) KindsServed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Sorted(maps.Keys(c.objects))
}

// ObjectsOf are the objects of one of these kinds, by namespace and name.
func (c *Cluster) ObjectsOf(apiVersion, kind string) ([]map[string]any, error) {
	return c.query(cluster.ObjectQuery{APIVersion: apiVersion, Kind: kind})
}

// LoseReply tells whether the fault script wants the reply to a request that has
// changed something lost. The node is empty for what concerns none.
func (c *Cluster) LoseReply(node string) bool {
	return (&Client{cluster: c}).lostReply(node) != nil
}
