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

// A run looks at the whole cluster when it begins and when it ends. In between what one
// step costs must not grow with the nodes: Kubernetes tells of all of them what has
// changed, and Talos is asked about the control planes, the nodes that a look is about and
// those to which something has happened.

// inquiry is what a look in the middle of a run asks.
type inquiry struct {
	// claim is the node onto which is written what proves that Kubernetes tells of the
	// present; without one the nodes are listed.
	claim string
	// machines are the nodes whose machines are asked.
	machines func(cluster.Node) bool
	// others tells that the rest is to be known as well: a machine is asked where its Node
	// object shows a change, and is as it was otherwise.
	others bool
	// etcd tells that the members of etcd are asked, and opinions that each of them says who
	// the others are: otherwise one does.
	etcd, opinions bool
	// staticPods tells that what the static pods of control planes are made from is asked.
	staticPods bool
	// proxies tells that the pods of kube-proxy are listed, however well they are known.
	proxies bool
	// age is how long ago a control plane may have answered somebody else, if that was
	// asked after the given moment and no control plane was changed since.
	age   time.Duration
	after time.Time
	// etcdAge is that of answers about etcd, where it is another one.
	etcdAge time.Duration
}

// need is how recent an answer has to be for the inquiry, at a moment.
func (i inquiry) need(now fact.Moment) fact.Need {
	return fact.Need{Now: now, Age: i.age, After: i.after}
}

// planAge is how long ago a control plane may have answered for a plan: whatever comes of
// the plan is guarded by a look of its own.
const planAge = 2 * time.Minute

// runsControlPlane tells whether a node is a control plane.
func runsControlPlane(node cluster.Node) bool { return node.Role == cluster.ControlPlane }

// nobody is for looks that ask no machine.
func nobody(cluster.Node) bool { return false }

// answerAge is how long ago the control planes may have answered before a worker is
// disturbed, provided that this run has done nothing to it or to them since: of ninety
// workers beside each other not each has to ask.
const answerAge = 5 * time.Second

// observe looks at the cluster as far as the inquiry wants, and at the journal as this run
// has written it.
func (r *run) observe(ctx context.Context, asked inquiry) (cluster.Observation, error) {
	e := r.engine

	facts := r.gatherAgain(ctx, asked)

	return e.assemble(ctx, facts, func(nodes []cluster.Node) {
		twins := fact.SharedAddresses(nodes)
		wanted := func(node cluster.Node) bool {
			if asked.machines(node) || twins[node.Address] || facts.kubeErr == nil && e.facts.Doubts(node) {
				return true
			}

			if !asked.others || facts.kubeErr != nil {
				return false
			}

			_, _, known := e.facts.Unchanged(node, false, e.clock.Now())

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

// firstControlPlane is the name of the one that tells of the members of etcd for all.
func firstControlPlane(nodes []cluster.Node) string {
	first := ""

	for _, node := range nodes {
		if !node.Gone && runsControlPlane(node) && (first == "" || node.Name < first) {
			first = node.Name
		}
	}

	return first
}

// repeatMembers has the members that one control plane lists stand for what the others
// would list, where these were not asked.
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

// recall fills in what the machines said before that need not be asked. Where Kubernetes
// tells nothing, nothing can be begun, and what they said last is all that is known.
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

// gatherAgain asks for what concerns the cluster as a whole, but for what is known.
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

// members are those that discovery lists. Where they were listed before, and have to be
// listed again, one look at a time asks for them: all the others want to know the same.
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

// askControlPlane fills in what a control plane says, or has said a moment ago to somebody else, where
// the inquiry allows that. What failed is asked again by whoever looks next.
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

// staticPods are those of the control planes, or what they were a moment ago, where the
// inquiry allows that.
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
