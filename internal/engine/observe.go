// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Observe looks at the whole cluster and changes nothing. What did not answer
// is said in the snapshot; the error is for a cluster of which nothing can be
// said at all.
func (e *Engine) Observe(ctx context.Context) (cluster.Snapshot, error) {
	return e.observe(ctx, func(cluster.Node) bool { return true })
}

// observe looks at the cluster, and asks Talos about the nodes that the scope
// contains.
func (e *Engine) observe(ctx context.Context, scope func(cluster.Node) bool) (cluster.Snapshot, error) {
	facts := e.gather(ctx)
	if err := ctx.Err(); err != nil {
		return cluster.Snapshot{}, context.Cause(ctx)
	}

	snapshot := cluster.Snapshot{
		ID: facts.id, Name: e.name, Roles: e.talos.Roles(),
		KubernetesError: facts.kubeErr, DiscoveryError: facts.membersErr, JournalError: facts.journalErr,
	}

	if facts.membersErr != nil && facts.kubeErr != nil {
		return snapshot, fmt.Errorf("neither discovery nor Kubernetes could list the nodes: %w", errors.Join(facts.membersErr, facts.kubeErr))
	}

	snapshot.Nodes, snapshot.Foreign = inventory(facts.members, facts.nodes, e.clock.Now())
	keepUnfinished(snapshot.Nodes, facts.journal.Keyed(snapshot.Nodes))
	addVersions(snapshot.Nodes, facts.pods)
	e.askMachines(ctx, snapshot.Nodes, func(node cluster.Node) bool {
		return scope(node) || facts.kubeErr == nil && e.presence.doubts(node)
	})

	if facts.kubeErr == nil && facts.journalErr == nil {
		e.presence.judge(snapshot.Nodes, facts.journal)
	}

	if err := ctx.Err(); err != nil {
		return snapshot, context.Cause(ctx)
	}

	sortNodes(snapshot.Nodes)

	if facts.journalErr == nil && facts.kubeErr == nil {
		journal := facts.journal.Keyed(snapshot.Nodes)
		snapshot.Journal = &journal
	}

	snapshot.Taken = e.clock.Now()

	return snapshot, nil
}

// clusterFacts are the answers that concern the cluster as a whole.
type clusterFacts struct {
	id         string
	members    []cluster.Member
	membersErr error
	nodes      []cluster.KubeNode
	pods       []cluster.ComponentPod
	kubeErr    error
	journal    cluster.Journal
	journalErr error
}

// gather asks for everything at once. Its parts write different fields, so no
// lock is needed.
func (e *Engine) gather(ctx context.Context) clusterFacts {
	var (
		facts            clusterFacts
		group            errgroup.Group
		discovered, uid  string
		idErr            error
		podsErr, nodeErr error
	)

	group.Go(func() error {
		discovered, idErr = e.talos.ClusterID(ctx)

		return nil
	})
	group.Go(func() error { facts.members, facts.membersErr = e.talos.Members(ctx); return nil })
	group.Go(func() error { uid, _ = e.kubernetes.UID(ctx); return nil })
	group.Go(func() error { facts.nodes, nodeErr = e.kubernetes.Nodes(ctx); return nil })
	group.Go(func() error { facts.pods, podsErr = e.kubernetes.ComponentPods(ctx); return nil })
	group.Go(func() error { facts.journal, facts.journalErr = e.kubernetes.Journal(ctx); return nil })

	_ = group.Wait()

	// The UID stands in where discovery is off, not where it did not answer: an
	// identity that changes with the weather would look like another cluster.
	facts.id = discovered
	if facts.id == "" && idErr == nil {
		facts.id = uid
	}

	// One API away is one reason, however many calls it cost.
	facts.kubeErr = nodeErr
	if facts.kubeErr == nil {
		facts.kubeErr = podsErr
	}

	return facts
}

// askMachines fills in what Talos says, a bounded number of nodes at a time.
func (e *Engine) askMachines(ctx context.Context, nodes []cluster.Node, scope func(cluster.Node) bool) {
	var group errgroup.Group

	group.SetLimit(observeParallel)

	for index := range nodes {
		node := &nodes[index]
		if node.Gone || !scope(*node) {
			continue
		}

		group.Go(func() error {
			e.askMachine(ctx, node)

			return nil
		})
	}

	_ = group.Wait()
}

func (e *Engine) askMachine(ctx context.Context, node *cluster.Node) {
	machine, err := e.talos.Machine(ctx, node.Address)
	if err != nil {
		node.Unreachable = err

		return
	}

	node.Machine = &machine

	for component, pod := range node.Pods {
		if why := outdated(machine, pod); why != "" {
			pod.Ready, pod.Outdated, pod.Trouble = false, true, why
			node.Pods[component] = pod
		}
	}

	if machine.Role != "" {
		node.Role = machine.Role
	}

	if node.Kube == nil && machine.NodeName != "" {
		node.Name = machine.NodeName
	}

	if node.Role != cluster.ControlPlane {
		return
	}

	view, err := e.talos.Etcd(ctx, node.Address)
	if err != nil {
		node.EtcdError = err

		return
	}

	node.Etcd = &view
}

// What is wrong with a static pod that Kubernetes does not show as it is.
const (
	earlierPod  = "Kubernetes shows it as it was before the boot"
	replacedPod = "its node has made it anew, and Kubernetes shows the one before"
)

// outdated says why what Kubernetes shows of a static pod is not, or will not be for
// long, what its node runs; empty where it is. Its mirror outlives the container
// when the node boots. Both times are of the node's clock, and Kubernetes knows no
// parts of a second. The API server is made anew with each version of its files,
// which the kubelet comes to later than the node.
func outdated(machine cluster.Machine, pod cluster.ComponentPod) string {
	switch {
	case !pod.Component.Static():
		return ""
	case !pod.Started.IsZero() && pod.Started.Before(machine.PodsSince.Truncate(time.Second)):
		return earlierPod
	case pod.Component == cluster.APIServer && pod.FilesVersion != "" && machine.FilesVersion != "" && pod.FilesVersion != machine.FilesVersion:
		return replacedPod
	default:
		return ""
	}
}

// addVersions derives the running component versions from what the kubelets
// report and from the images of the component pods.
func addVersions(nodes []cluster.Node, pods []cluster.ComponentPod) {
	byName := make(map[string]*cluster.Node, len(nodes))

	for index := range nodes {
		node := &nodes[index]
		node.Versions = map[cluster.Component]version.Version{}
		node.Pods = map[cluster.Component]cluster.ComponentPod{}
		byName[node.Name] = node

		if node.Kube != nil && !node.Kube.Kubelet.IsZero() {
			node.Versions[cluster.Kubelet] = node.Kube.Kubelet
		}
	}

	for _, pod := range pods {
		node, found := byName[pod.Node]
		if !found {
			continue
		}

		node.Pods[pod.Component] = pod

		_, tag, err := image.Split(pod.Image)
		if err != nil {
			continue
		}

		if running, err := image.TagVersion(tag); err == nil {
			node.Versions[pod.Component] = running
		}
	}
}
