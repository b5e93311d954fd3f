// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
)

// Observe observes the whole cluster and changes nothing. What did not answer is part of the observation; an
// error is returned only if nothing can be said about the cluster.
func (e *Engine) Observe(ctx context.Context) (cluster.Observation, error) {
	facts := e.gather(ctx)

	return e.assemble(ctx, facts, func(nodes []cluster.Node) {
		askEach(nodes, func(cluster.Node) bool { return true }, func(node *cluster.Node) {
			e.askMachine(ctx, node, entirely())

			if node.Machine != nil && node.Role == cluster.ControlPlane {
				e.askEtcd(ctx, node, true)
			}
		})
	})
}

// assemble makes an observation from the facts about the cluster as a whole and from what ask fills in about the
// nodes.
func (e *Engine) assemble(ctx context.Context, facts clusterFacts, ask func([]cluster.Node)) (cluster.Observation, error) {
	if err := ctx.Err(); err != nil {
		return cluster.Observation{}, cluster.Ended(ctx)
	}

	observed := cluster.Observation{
		ID: facts.id, Name: e.name, Roles: e.talos.Roles(),
		KubernetesError: facts.kubeErr, DiscoveryError: facts.membersErr, JournalError: facts.journalErr,
	}

	if facts.membersErr != nil && facts.kubeErr != nil {
		return observed, fmt.Errorf("neither discovery nor Kubernetes could list the nodes: %w", errors.Join(facts.membersErr, facts.kubeErr))
	}

	observed.Nodes, observed.Foreign = fact.Inventory(facts.members, facts.nodes, e.clock.Now())
	fact.KeepUnfinished(observed.Nodes, facts.journal.Keyed(observed.Nodes))
	fact.AddPods(observed.Nodes, facts.pods, facts.proxies)
	fact.AddVersions(observed.Nodes)
	ask(observed.Nodes)
	observed.Nodes, observed.Stale = fact.SetStaleAside(observed.Nodes, e.facts.Moves)

	if facts.kubeErr == nil && facts.journalErr == nil {
		e.facts.MarkGone(observed.Nodes, facts.journal)
	}

	if err := ctx.Err(); err != nil {
		return observed, cluster.Ended(ctx)
	}

	fact.Sort(observed.Nodes)

	if facts.journalErr == nil && facts.kubeErr == nil {
		journal := facts.journal.Keyed(observed.Nodes)
		observed.Journal = &journal
	}

	observed.Taken = e.clock.Now()

	return observed, nil
}

// clusterFacts are the answers that concern the cluster as a whole.
type clusterFacts struct {
	id         string
	members    []cluster.Member
	membersErr error
	nodes      []cluster.KubeNode
	// pods are those of the control planes, proxies those of kube-proxy.
	pods       []cluster.ComponentPod
	proxies    fact.PodsByNode
	kubeErr    error
	journal    cluster.Journal
	journalErr error
}

// gather asks for everything at once. The goroutines write different fields, so no lock is needed.
func (e *Engine) gather(ctx context.Context) clusterFacts {
	var (
		facts            clusterFacts
		group            errgroup.Group
		discovered, uid  string
		idErr            error
		podsErr, nodeErr error
		members          fact.Dated[[]cluster.Member]
	)

	group.Go(func() error {
		discovered, idErr = e.talos.ClusterID(ctx)

		return nil
	})
	group.Go(func() error {
		asked := e.moment()
		facts.members, facts.membersErr = e.talos.Members(ctx)
		members = told(e, asked, facts.members, nil)

		return nil
	})
	group.Go(func() error { uid, _ = e.kubernetes.UID(ctx); return nil })
	group.Go(func() error { facts.nodes, nodeErr = e.kubernetes.Nodes(ctx); return nil })
	group.Go(func() error { facts.pods, facts.proxies, podsErr = e.componentPods(ctx); return nil })
	group.Go(func() error { facts.journal, facts.journalErr = e.kubernetes.Journal(ctx); return nil })

	_ = group.Wait()

	// The UID stands in if discovery is off, but not if it did not answer: an identity that changes with outages
	// would look like another cluster.
	facts.id = discovered
	if facts.id == "" && idErr == nil {
		facts.id = uid
	}

	// If the API does not answer, one reason is enough, however many calls failed.
	facts.kubeErr = nodeErr
	if facts.kubeErr == nil {
		facts.kubeErr = podsErr
	}

	e.facts.Identify(facts.id)

	if facts.kubeErr == nil {
		e.facts.ListProxies(facts.proxies)
	}

	if facts.membersErr == nil && facts.kubeErr == nil {
		e.facts.ListMembers(members, facts.nodes)
	}

	return facts
}

// askEach calls ask for the wanted nodes, for a bounded number of them at a time.
func askEach(nodes []cluster.Node, wanted func(cluster.Node) bool, ask func(*cluster.Node)) {
	var group errgroup.Group

	group.SetLimit(observeParallel)

	for index := range nodes {
		node := &nodes[index]
		if node.Gone || !wanted(*node) {
			continue
		}

		group.Go(func() error {
			ask(node)

			return nil
		})
	}

	_ = group.Wait()
}

// freshness is what is asked again, besides the stage and the readiness, about a machine that is known to be in
// the same boot.
type freshness struct{ config, staticPods bool }

// entirely asks for everything again.
func entirely() freshness { return freshness{config: true, staticPods: true} }

// without returns what is known about a machine, without what has to be asked again.
func (f freshness) without(known *cluster.Machine) *cluster.Machine {
	if known == nil {
		return nil
	}

	rest := *known

	if f.config {
		rest.Config = nil
	}

	if f.staticPods {
		rest.FilesVersion, rest.PodsSince = "", time.Time{}
	}

	return &rest
}

// askMachine fills in what the machine of a node reports. What static pods of a control plane are made from is
// always asked if its pods do not match what is known.
func (e *Engine) askMachine(ctx context.Context, node *cluster.Node, again freshness) {
	asked, known := e.moment(), e.facts.Known(node.Address)

	if known != nil {
		for _, pod := range node.Pods {
			again.staticPods = again.staticPods || fact.Outdated(*known, pod) != ""
		}
	}

	machine, err := e.talos.Machine(ctx, node.Address, again.without(known), cluster.Everything)
	if err != nil {
		if ctx.Err() == nil {
			e.facts.Tell(node.Address, told[*cluster.Machine](e, asked, nil, err), false, node.Kube)
		}

		node.Unreachable = err

		return
	}

	e.facts.Tell(node.Address, told(e, asked, &machine, nil), again.staticPods || known == nil, node.Kube)
	fact.Fill(node, machine)
}

// machine returns what the machine at the address reports, including what its static pods are made from.
func (e *Engine) machine(ctx context.Context, address string) (cluster.Machine, error) {
	return e.machineOf(ctx, address, nil)
}

// machineOf is [Engine.machine] for a node whose Node object was just read.
func (e *Engine) machineOf(ctx context.Context, address string, kube *cluster.KubeNode) (cluster.Machine, error) {
	asked := e.moment()

	machine, err := e.talos.Machine(ctx, address, freshness{staticPods: true}.without(e.facts.Known(address)), cluster.Everything)
	if err == nil {
		e.facts.Tell(address, told(e, asked, &machine, nil), true, kube)
	}

	return machine, err
}

// moment returns the present time with the number of steps taken.
func (e *Engine) moment() fact.Moment { return e.facts.Moment(e.clock.Now()) }

// told returns the dated answer, received now, to a question that was asked before.
func told[T any](e *Engine, asked fact.Moment, value T, err error) fact.Dated[T] {
	return fact.Dated[T]{Value: value, Err: err, Asked: asked, Got: e.clock.Now()}
}

// askEtcd fills in what the member of etcd on a control plane reports.
func (e *Engine) askEtcd(ctx context.Context, node *cluster.Node, members bool) {
	asked := e.moment()

	view, err := e.talos.Etcd(ctx, node.Address, members)
	if err == nil || ctx.Err() == nil {
		e.facts.TellEtcd(node.Address, told(e, asked, &view, err), members)
	}

	if err != nil {
		node.EtcdError = err

		return
	}

	node.Etcd = &view
}

// componentPods lists the pods of the control planes, and those of kube-proxy.
func (e *Engine) componentPods(ctx context.Context) ([]cluster.ComponentPod, fact.PodsByNode, error) {
	asked := e.moment()

	all, err := e.kubernetes.ComponentPods(ctx)
	if err != nil {
		return nil, nil, err
	}

	got := told[[]cluster.ComponentPod](e, asked, nil, nil)

	pods, proxies := make([]cluster.ComponentPod, 0, len(all)), fact.PodsByNode{}

	for _, pod := range all {
		if pod.Component == cluster.Proxy {
			proxies[pod.Node] = map[cluster.Component]cluster.ComponentPod{cluster.Proxy: pod}
		} else {
			pods = append(pods, pod)
		}
	}

	got.Value = pods
	e.facts.ListPods(got)

	return pods, proxies, nil
}
