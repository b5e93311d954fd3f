// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// The UID stands in if the cluster has no ID, but not if it did not answer: an identity that changes with outages
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

// A run observes the whole cluster when it begins, every [lookEverywhereEvery] and before it ends. In between, the
// cost of a step must not grow with the number of nodes: Kubernetes delivers what has changed on all of them, and
// Talos is asked about the control planes, the nodes that an observation is about and those to which something has
// happened.

// inquiry is what an observation in the middle of a run asks for.
type inquiry struct {
	// claim is the node that is written to, which proves that the followed nodes are up to date; if it is empty,
	// the nodes are listed.
	claim string
	// machines reports whether the machine of a node is asked.
	machines func(cluster.Node) bool
	// others is true if the remaining machines have to be known as well: one is asked if its Node object shows a
	// change, and is taken as it was otherwise.
	others bool
	// etcd is true if the members of etcd are asked, and opinions if each of them is asked for the list of members:
	// otherwise one is.
	etcd, opinions bool
	// staticPods is true if control planes are asked what their static pods are made from.
	staticPods bool
	// proxies is true if the pods of kube-proxy are listed even if they are known.
	proxies bool
	// age is how old the answer of a control plane to an earlier observation may be; 0 accepts none. The question
	// must have been asked after the time after, and no control plane changed since.
	age   time.Duration
	after time.Time
	// etcdAge is how old answers about etcd may be if that is more than age.
	etcdAge time.Duration
}

// need returns how recent an answer has to be for the inquiry, at a moment.
func (i inquiry) need(now fact.Moment) fact.Need {
	return fact.Need{Now: now, Age: i.age, After: i.after}
}

// planAge is how old the answers of control planes may be for a plan: each step of the plan is guarded by an
// observation of its own.
const planAge = 2 * time.Minute

// runsControlPlane reports whether a node is a control plane.
func runsControlPlane(node cluster.Node) bool { return node.Role == cluster.ControlPlane }

// nobody is for observations that ask no machine.
func nobody(cluster.Node) bool { return false }

// answerAge is how old the answers of control planes may be before a worker is disturbed, provided that this run
// has done nothing to it or to them since. If ninety workers are upgraded at the same time, not each of them has to
// ask.
const answerAge = 5 * time.Second

// observe observes the cluster as far as the inquiry requires, and the journal as this run has written it.
func (r *run) observe(ctx context.Context, asked inquiry) (cluster.Observation, error) {
	e := r.engine

	facts := r.gatherAgain(ctx, asked)

	return e.assemble(ctx, facts, func(nodes []cluster.Node) {
		twins := fact.SharedAddresses(nodes)
		wanted := func(node cluster.Node) bool {
			if asked.machines(node) || twins[node.Address] || facts.kubeErr == nil && e.facts.Doubts(node) {
				return true
			}

			if !asked.others {
				return false
			}

			_, _, known := e.facts.Unchanged(node, facts.kubeErr != nil, e.clock.Now())

			return !known
		}

		teller := firstControlPlane(nodes)

		if asked.others {
			r.recall(nodes, wanted, facts.kubeErr != nil)
		}

		askEach(nodes, func(node cluster.Node) bool { return wanted(node) || asked.etcd && node.Role == cluster.ControlPlane }, func(node *cluster.Node) {
			if node.Role != cluster.ControlPlane {
				e.askMachine(ctx, node, freshness{})

				return
			}

			r.askControlPlane(ctx, node, asked, wanted(*node), asked.opinions || node.Name == teller)
		})

		repeatMembers(nodes, teller)
	})
}

// firstControlPlane returns the name of the control plane that lists the members of etcd for all, which is the
// first by name; empty if there is none.
func firstControlPlane(nodes []cluster.Node) string {
	first := ""

	for _, node := range nodes {
		if !node.Gone && runsControlPlane(node) && (first == "" || node.Name < first) {
			first = node.Name
		}
	}

	return first
}

// repeatMembers copies the members that one control plane lists to the others, except for learners, if these were
// not asked for them.
func repeatMembers(nodes []cluster.Node, teller string) {
	at := slices.IndexFunc(nodes, func(node cluster.Node) bool { return node.Name == teller })
	if at < 0 || nodes[at].Etcd == nil {
		return
	}

	for index := range nodes {
		if view := nodes[index].Etcd; view != nil && len(view.Members) == 0 && !view.Status.Learner {
			repeated := *view
			repeated.Members = nodes[at].Etcd.Members
			nodes[index].Etcd = &repeated
		}
	}
}

// recall fills in what the machines that need not be asked reported before. If blind is true, Kubernetes does not
// answer: nothing can be begun, and the last reports are all that is known.
func (r *run) recall(nodes []cluster.Node, wanted func(cluster.Node) bool, blind bool) {
	now := r.engine.clock.Now()

	for index := range nodes {
		node := &nodes[index]
		if node.Gone || wanted(*node) {
			continue
		}

		said, err, known := r.engine.facts.Unchanged(*node, blind, now)

		switch {
		case known && said != nil:
			fact.Fill(node, *said)
		case known:
			node.Unreachable = err
		}
	}
}

// gatherAgain asks for what concerns the cluster as a whole, except for what is known.
func (r *run) gatherAgain(ctx context.Context, asked inquiry) clusterFacts {
	var (
		e                = r.engine
		facts            = clusterFacts{id: e.facts.ClusterID()}
		group            errgroup.Group
		podsErr, nodeErr error
		proxies          = e.facts.Proxies()
		listed           = asked.proxies || asked.others && proxies == nil
	)

	group.Go(func() error { facts.nodes, nodeErr = r.leased.nodesNow(ctx, asked.claim); return nil })
	group.Go(func() error {
		if listed {
			facts.pods, facts.proxies, podsErr = e.componentPods(ctx)
		} else {
			facts.proxies = proxies
			facts.pods, podsErr = r.staticPods(ctx, asked)
		}

		return nil
	})
	group.Go(func() error {
		current, stale := r.journal.read()
		if !stale {
			facts.journal = current

			return nil
		}

		facts.journal, facts.journalErr = e.kubernetes.Journal(ctx)

		return nil
	})

	_ = group.Wait()

	facts.kubeErr = nodeErr
	if facts.kubeErr == nil {
		facts.kubeErr = podsErr
	}

	facts.members, facts.membersErr = e.members(ctx, facts)

	if facts.kubeErr == nil && listed {
		e.facts.ListProxies(facts.proxies)
	}

	return facts
}

// members returns the members that discovery lists. If they were listed before and have to be listed again, only
// one observation at a time does so, because all others need the same list.
func (e *Engine) members(ctx context.Context, facts clusterFacts) ([]cluster.Member, error) {
	known, found := e.facts.Members(facts.nodes, e.clock.Now())
	if found {
		return known, nil
	}

	if facts.kubeErr != nil || !e.facts.ListedMembers() {
		return e.listMembers(ctx, facts)
	}

	if err := e.listing.enter(ctx); err != nil {
		return nil, err
	}
	defer e.listing.leave()

	if known, found = e.facts.Members(facts.nodes, e.clock.Now()); found {
		return known, nil
	}

	return e.listMembers(ctx, facts)
}

func (e *Engine) listMembers(ctx context.Context, facts clusterFacts) ([]cluster.Member, error) {
	asked := e.moment()

	members, err := e.talos.Members(ctx)
	if err == nil && facts.kubeErr == nil {
		e.facts.ListMembers(told(e, asked, members, nil), facts.nodes)
	}

	return members, err
}

// askControlPlane fills in what a control plane reports, or has reported to an earlier observation if the inquiry
// allows that. What failed is asked again by the next observation.
func (r *run) askControlPlane(ctx context.Context, node *cluster.Node, asked inquiry, machine, members bool) {
	e := r.engine

	if machine {
		if known, fits := e.facts.Machine(node.Address, asked.need(e.moment()), asked.staticPods); fits {
			fact.Fill(node, *known)
		} else {
			e.askMachine(ctx, node, freshness{staticPods: asked.staticPods})
		}
	}

	if !asked.etcd || node.Role != cluster.ControlPlane || node.Unreachable != nil {
		return
	}

	need := asked.need(e.moment())
	need.Age = max(need.Age, asked.etcdAge)

	if known, fits := e.facts.Etcd(node.Address, need, members); fits {
		node.Etcd = known
	} else {
		e.askEtcd(ctx, node, members)
	}
}

// staticPods returns the pods of the control planes, or what they were a moment ago if the inquiry allows that.
func (r *run) staticPods(ctx context.Context, asked inquiry) ([]cluster.ComponentPod, error) {
	begun := r.engine.moment()
	need := asked.need(begun)
	need.Age = min(need.Age, answerAge)

	if known, fits := r.engine.facts.StaticPods(need); fits {
		return known, nil
	}

	pods, err := r.engine.kubernetes.StaticPods(ctx, "")
	if err == nil {
		r.engine.facts.ListPods(told(r.engine, begun, pods, nil))
	}

	return pods, err
}
