// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
)

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
