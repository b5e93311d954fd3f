// SPDX-License-Identifier: MPL-2.0

package fact_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestSteps_AreTakenOneAtATime: whoever takes one is told of all that there were, and counts only where
// it takes it.
func TestSteps_AreTakenOneAtATime(t *testing.T) {
	t.Parallel()

	store := fact.New()
	store.Acted(cluster.Worker)

	for _, test := range []struct {
		role   cluster.Role
		allows bool
		want   fact.Steps
	}{
		{cluster.Worker, true, fact.Steps{All: 1}},
		{cluster.Worker, false, fact.Steps{All: 2}},
		{cluster.ControlPlane, true, fact.Steps{All: 2}},
		{cluster.Worker, false, fact.Steps{All: 3, Grave: 1}},
	} {
		store.Take(test.role, func(sofar fact.Steps) bool {
			if sofar != test.want {
				t.Errorf("there were %+v, want %+v", sofar, test.want)
			}

			return test.allows
		})
	}
}

// begin is when the tests of a store begin.
func begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

const address = "10.0.0.1"

// booted is a machine that has finished a boot.
func booted(boot string) *cluster.Machine {
	return &cluster.Machine{Address: address, BootID: boot, Talos: version.MustParse("1.13.2"), Stage: cluster.StageRunning, Ready: true}
}

// TestStore_AnAnswerIsAsOldAsItsEnd, and older than a step by its beginning.
func TestStore_AnAnswerIsAsOldAsItsEnd(t *testing.T) {
	t.Parallel()

	const age = 5 * time.Second

	for title, test := range map[string]struct {
		// took is how long the answer took, and since how long ago it came.
		took, since time.Duration
		// between is done after the question, and after is what the question has to have begun after.
		between func(*fact.Store)
		after   time.Duration
		staticPods,
		want bool
	}{
		"a quick one":                     {took: time.Second, since: 4 * time.Second, want: true},
		"a slow one that has just come":   {took: 20 * time.Second, since: 4 * time.Second, want: true},
		"one that is too old":             {took: time.Second, since: 5 * time.Second},
		"asked before what it is to tell": {took: 20 * time.Second, after: time.Second},
		"asked after it":                  {took: 20 * time.Second, after: -time.Second, want: true},
		"a control plane was changed":     {took: time.Second, between: func(s *fact.Store) { s.Acted(cluster.ControlPlane) }},
		"a worker was changed":            {took: time.Second, between: func(s *fact.Store) { s.Acted(cluster.Worker) }, want: true},
		"not asked for its static pods":   {took: time.Second, staticPods: true},
		"the node did not answer since": {took: time.Second, between: func(s *fact.Store) {
			s.Tell(address, fact.Dated[*cluster.Machine]{Err: cluster.ErrUnreachable, Got: begin().Add(2 * time.Second)}, false, nil)
		}},
		"only its boot was asked since": {took: time.Second, want: true, between: func(s *fact.Store) {
			s.Tell(address, fact.Dated[*cluster.Machine]{Value: &cluster.Machine{Address: address, BootID: "a", Partial: true}, Got: begin().Add(2 * time.Second)}, false, nil)
		}},
		"it was forgotten": {took: time.Second, between: func(s *fact.Store) { s.Forget(address) }},
	} {
		s := fact.New()
		asked, got := s.Moment(begin()), begin().Add(test.took)

		s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("a"), Asked: asked, Got: begin()}, false, nil)
		s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("a"), Asked: asked, Got: got}, false, nil)
		s.TellEtcd(address, fact.Dated[*cluster.EtcdView]{Value: &cluster.EtcdView{}, Asked: asked, Got: got}, true)
		s.ListPods(fact.Dated[[]cluster.ComponentPod]{Value: []cluster.ComponentPod{{Ready: true}}, Asked: asked, Got: got})

		if test.between != nil {
			test.between(s)
		}

		need := fact.Need{Now: s.Moment(got.Add(test.since)), Age: age, After: begin().Add(test.after)}
		if test.after == 0 {
			need.After = time.Time{}
		}

		if _, fits := s.Machine(address, need, test.staticPods); fits != test.want {
			t.Errorf("%s: the machine's will do: %t, want %t", title, fits, test.want)
		}

		if _, fits := s.Etcd(address, need, true); fits != (test.want || test.staticPods) {
			t.Errorf("%s: that of etcd will do: %t, want %t", title, fits, test.want)
		}

		need.Age = 0
		if _, fits := s.Machine(address, need, false); fits {
			t.Errorf("%s: it will do although it has to be asked anew", title)
		}
	}
}

// TestStore_NothingOutlivesTheBoot: what a machine said before is nothing that its new boot is
// judged by, and neither is what its member of etcd said.
func TestStore_NothingOutlivesTheBoot(t *testing.T) {
	t.Parallel()

	for title, next := range map[string]fact.Dated[*cluster.Machine]{
		"another boot":    {Value: &cluster.Machine{Address: address, BootID: "b", Stage: cluster.StageBooting}},
		"no answer":       {Err: cluster.ErrUnreachable},
		"an unknown boot": {Value: &cluster.Machine{Address: address, Stage: cluster.StageRunning, Ready: true}},
	} {
		s := fact.New()
		s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("a"), Asked: fact.Moment{At: begin()}, Got: begin()}, true, nil)
		s.TellEtcd(address, fact.Dated[*cluster.EtcdView]{Value: &cluster.EtcdView{}, Asked: fact.Moment{At: begin()}, Got: begin()}, true)

		need := fact.Need{Now: s.Moment(begin().Add(time.Second)), Age: time.Minute}
		if _, fits := s.Etcd(address, need, true); s.Known(address) == nil || !fits {
			t.Fatal("a machine that has finished its boot is not known")
		}

		next.Asked, next.Got = fact.Moment{At: begin()}, begin().Add(time.Second)
		s.Tell(address, next, false, nil)

		if known := s.Known(address); known != nil {
			t.Errorf("%s: %+v is still known", title, *known)
		}

		if _, fits := s.Etcd(address, need, false); fits {
			t.Errorf("%s: what etcd said in the boot before still counts", title)
		}

		s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("b"), Asked: fact.Moment{At: begin()}, Got: begin().Add(2 * time.Second)}, false, nil)

		if _, fits := s.Machine(address, need, false); !fits {
			t.Errorf("%s: what it said in its new boot does not count", title)
		}

		if _, fits := s.Machine(address, need, true); fits {
			t.Errorf("%s: its static pods count as asked for", title)
		}
	}
}

// TestStore_SilenceIsRememberedWhileNothingCanBeBegun: the reason why a machine did not answer stands for it for half
// a minute, and for longer only if nothing can be begun. A machine that was never asked has none.
func TestStore_SilenceIsRememberedWhileNothingCanBeBegun(t *testing.T) {
	t.Parallel()

	s := fact.New()
	s.Tell(address, fact.Dated[*cluster.Machine]{Err: cluster.ErrUnreachable, Asked: fact.Moment{At: begin()}, Got: begin()}, false, nil)

	for title, test := range map[string]struct {
		address string
		after   time.Duration
		blind   bool
		known   bool
	}{
		"soon":               {address: address, after: 29 * time.Second, known: true},
		"later":              {address: address, after: 31 * time.Second},
		"later, blind":       {address: address, after: 31 * time.Second, blind: true, known: true},
		"never asked, blind": {address: "10.0.0.99", blind: true},
	} {
		said, why, known := s.Unchanged(cluster.Node{Address: test.address}, test.blind, begin().Add(test.after))
		if known != test.known || said != nil || known && !errors.Is(why, cluster.ErrUnreachable) {
			t.Errorf("%s: %v, %v, %t; want known: %t", title, said, why, known, test.known)
		}
	}
}

// TestStore_WhatIsNotWellIsAskedAgain: an older answer does not stand in for it.
func TestStore_WhatIsNotWellIsAskedAgain(t *testing.T) {
	t.Parallel()

	s := fact.New()
	pods := func(ready bool, at time.Duration) {
		s.ListPods(fact.Dated[[]cluster.ComponentPod]{Value: []cluster.ComponentPod{{Ready: ready}}, Asked: fact.Moment{At: begin()}, Got: begin().Add(at)})
	}
	fits := func() bool {
		_, fits := s.StaticPods(fact.Need{Now: s.Moment(begin().Add(3 * time.Second)), Age: 5 * time.Second})

		return fits
	}

	pods(true, time.Second)

	if !fits() {
		t.Error("pods that are well are listed again")
	}

	pods(false, 2*time.Second)

	if fits() {
		t.Error("pods that were well before one was not stand in for it")
	}

	s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("a"), Asked: fact.Moment{At: begin()}, Got: begin()}, true, nil)
	s.TellEtcd(address, fact.Dated[*cluster.EtcdView]{Value: &cluster.EtcdView{}, Asked: fact.Moment{At: begin()}, Got: begin()}, true)
	s.TellEtcd(address, fact.Dated[*cluster.EtcdView]{Err: errors.New("no leader"), Asked: fact.Moment{At: begin()}, Got: begin().Add(time.Second)}, true)

	if _, fits := s.Etcd(address, fact.Need{Now: s.Moment(begin().Add(2 * time.Second)), Age: 5 * time.Second}, false); fits {
		t.Error("what etcd said before it did not answer stands in for that")
	}
}

// TestStore_SilentWorkersAreGone: those without a Node object, of which nobody has heard, and that
// this run is not in the middle of. They are not asked again by those who do not want to know of them.
func TestStore_SilentWorkersAreGone(t *testing.T) {
	t.Parallel()

	silent := fact.Dated[*cluster.Machine]{Err: cluster.ErrUnreachable, Asked: fact.Moment{At: begin()}, Got: begin()}
	unfinished := cluster.Journal{Entries: map[string]cluster.Entry{"uuid": {Node: "worker-1", Phase: cluster.PhaseInstalled}}}

	for title, test := range map[string]struct {
		why     error
		moving  bool
		journal cluster.Journal
		gone    bool
		// doubts is true if it has to be asked again.
		doubts bool
	}{
		"silent":                    {why: cluster.ErrUnreachable, gone: true},
		"its credentials":           {why: cluster.ErrCredentials, doubts: true},
		"it is being upgraded":      {why: cluster.ErrUnreachable, moving: true},
		"its upgrade is unfinished": {why: cluster.ErrUnreachable, journal: unfinished},
	} {
		s := fact.New()
		s.Move("worker-1", test.moving)

		node := cluster.Node{Name: "worker-1", Role: cluster.Worker, Address: address}
		if !s.Doubts(node) {
			t.Errorf("%s: nobody has asked it, and it need not be", title)
		}

		// A look that Kubernetes did not answer says nothing of Node objects.
		told := silent
		told.Err = test.why
		s.Tell(address, told, false, nil)

		if !s.Doubts(node) {
			t.Errorf("%s: it need not be asked, though nobody knows whether it has a Node object", title)
		}

		nodes := []cluster.Node{node}
		nodes[0].Unreachable = test.why

		if s.MarkGone(nodes, test.journal); nodes[0].Gone != test.gone {
			t.Errorf("%s: it is gone: %t, want %t", title, nodes[0].Gone, test.gone)
		}

		if doubts := s.Doubts(node); doubts != test.doubts {
			t.Errorf("%s: it has to be asked: %t, want %t", title, doubts, test.doubts)
		}

		nodes[0] = node
		if s.MarkGone(nodes, test.journal); nodes[0].Gone != test.gone {
			t.Errorf("%s: a look that did not ask it has it gone: %t, want %t", title, nodes[0].Gone, test.gone)
		}
	}
}

// TestStore_EtcdOfAnEarlierBootIsNotNoted: a question that began before the machine was heard of in
// its boot.
func TestStore_EtcdOfAnEarlierBootIsNotNoted(t *testing.T) {
	t.Parallel()

	s := fact.New()
	view := fact.Dated[*cluster.EtcdView]{Value: &cluster.EtcdView{}, Asked: fact.Moment{At: begin()}, Got: begin().Add(3 * time.Second)}
	need := fact.Need{Now: s.Moment(begin().Add(4 * time.Second)), Age: time.Minute}

	s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("b"), Asked: fact.Moment{At: begin()}, Got: begin().Add(2 * time.Second)}, true, nil)
	s.TellEtcd(address, view, true)

	if _, fits := s.Etcd(address, need, true); fits {
		t.Error("it counts")
	}

	view.Asked.At = begin().Add(2 * time.Second)
	s.TellEtcd(address, view, true)

	if _, fits := s.Etcd(address, need, true); !fits {
		t.Error("one that was asked afterwards does not count")
	}
}

// TestStore_NothingWillDoWhereItHasToBeAsked: also an answer that came after the question for it.
func TestStore_NothingWillDoWhereItHasToBeAsked(t *testing.T) {
	t.Parallel()

	s := fact.New()
	s.Tell(address, fact.Dated[*cluster.Machine]{Value: booted("a"), Asked: s.Moment(begin()), Got: begin().Add(3 * time.Second)}, true, nil)

	if _, fits := s.Machine(address, fact.Need{Now: s.Moment(begin().Add(time.Second))}, false); fits {
		t.Error("the answer to somebody else will do")
	}
}

// TestStore_MembersWithoutNodeObjectsAreListedAgain: a machine that has left is listed by discovery for a while, and its
// Node object may be gone before that.
func TestStore_MembersWithoutNodeObjectsAreListedAgain(t *testing.T) {
	t.Parallel()

	nodes := []cluster.KubeNode{{Name: "cp-0", Addresses: []string{"10.0.0.1"}, Ready: true}, {Name: "ip-10-0-0-2", Addresses: []string{"10.0.0.2"}, Ready: true}}
	there := []cluster.Member{{Hostname: "cp-0", Addresses: []string{"10.0.0.1"}}, {Hostname: "cp-1", Addresses: []string{"10.0.0.2"}}}
	left := cluster.Member{Hostname: "cp-2", Addresses: []string{"10.0.0.3"}}

	for title, test := range map[string]struct {
		members []cluster.Member
		since   time.Duration
		known   bool
	}{
		"all have Node objects, one under another name": {there, time.Hour, true},
		"one has none, and was just listed":             {append(there[:2:2], left), cluster.GoneAfter, true},
		"one has none, and was listed a while ago":      {append(there[:2:2], left), cluster.GoneAfter + time.Second, false},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()

			store := fact.New()
			store.ListMembers(fact.Dated[[]cluster.Member]{Value: test.members, Got: begin()}, nodes)

			if _, known := store.Members(nodes, begin().Add(test.since)); known != test.known {
				t.Errorf("known %t, want %t", known, test.known)
			}
		})
	}
}
