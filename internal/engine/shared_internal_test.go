// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

func TestShared_KnowsWhoBeganBefore(t *testing.T) {
	t.Parallel()

	under := settlingFor(0)
	under.noteResumed("a")
	under.noteResumed("b")
	under.noteResumed("c")
	under.noteResumed("a")

	for node, want := range map[string]map[string]bool{
		"a": {"b": false, "c": false},
		"b": {"a": true, "c": false},
		"d": {"a": true, "b": true, "c": true},
	} {
		if got := under.beside(node); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", node, got, want)
		}
	}

	under.done("a")

	if got, want := under.beside("b"), map[string]bool{"c": false}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestShared_PermitCountsForWhoeverAsksNext: of two upgrades that have seen the same, one gets the last place.
func TestShared_PermitCountsForWhoeverAsksNext(t *testing.T) {
	t.Parallel()

	r := deciding()
	r.engine.rules = []rule.Rule{{Stages: rule.Cordon, Check: func(seen rule.View) []cluster.Finding {
		if len(seen.Others) == 0 {
			return nil
		}

		return rule.NewFinding(rule.CheckRoom, "a", "there is no place left", "", nil)
	}}}

	for _, node := range []string{"a", "b"} {
		r.shared.untouched[node] = func(error) {}
	}

	cordon := permit.Ask{Stage: rule.Cordon, Cordons: true, Acts: true}

	if made := r.shared.decide(r.engine, cordon, of("a")); made.Kind != permit.Go {
		t.Fatalf("got %+v for the first", made)
	}

	if made := r.shared.decide(r.engine, cordon, of("b")); made.Kind != permit.Yield {
		t.Fatalf("got %+v for the second", made)
	}

	if disturbed, untouched := slices.Sorted(maps.Keys(r.shared.disturbed)), slices.Sorted(maps.Keys(r.shared.untouched)); !slices.Equal(disturbed, []string{"a"}) || !slices.Equal(untouched, []string{"b"}) {
		t.Errorf("disturbed %v, untouched %v", disturbed, untouched)
	}

	if steps := r.engine.facts.Steps(); steps != (fact.Steps{}) {
		t.Errorf("a cordon counts as a step: %+v", steps)
	}
}

// TestShared_CountsWhatIsDone: what is done at once is a step, and what is only asked for is none.
func TestShared_CountsWhatIsDone(t *testing.T) {
	t.Parallel()

	r := deciding()

	for _, test := range []struct {
		asked permit.Ask
		want  fact.Steps
	}{
		{permit.Ask{Stage: rule.Reboot, Installed: true}, fact.Steps{}},
		{permit.Ask{Stage: rule.Reboot, Installed: true, Acts: true, Judged: true}, fact.Steps{All: 1}},
		{permit.Ask{Stage: rule.Component, Acts: true}, fact.Steps{All: 2}},
	} {
		world := of("a")
		world.Looked = r.engine.facts.Steps()

		if made := r.shared.decide(r.engine, test.asked, world); made.Kind != permit.Go {
			t.Fatalf("%+v: got %+v", test.asked, made)
		}

		if steps := r.engine.facts.Steps(); steps != test.want {
			t.Errorf("%+v: %+v steps, want %+v", test.asked, steps, test.want)
		}
	}

	r.shared.stopUntouched()

	r.shared.untouched["a"] = func(error) {}
	if made := r.shared.decide(r.engine, permit.Ask{Stage: rule.Cordon, Cordons: true, Acts: true}, of("a")); !errors.Is(made.Err, permit.ErrStopped) {
		t.Errorf("got %+v when no further node is begun", made)
	}
}

// TestShared_WhoseUpgradeHasJustEndedIsSettling: a node is among those under way or among those that settle.
func TestShared_WhoseUpgradeHasJustEndedIsSettling(t *testing.T) {
	t.Parallel()

	r := deciding()
	r.shared = settlingFor(time.Minute)
	r.engine.rules = []rule.Rule{{Stages: rule.Cordon, Check: func(seen rule.View) []cluster.Finding { return seen.Unsettled }}}

	world := of("a")
	world.Observation = cluster.Observation{Nodes: []cluster.Node{{Name: "b", Role: cluster.Worker, Kube: &cluster.KubeNode{Name: "b", Ready: true}}}}

	// It ends after the look, and before the permit.
	r.shared.noteResumed("b")
	r.shared.soak.watch(plan.Step{Node: "b", Role: cluster.Worker}, r.engine.clock.Now(), r.engine.clock.Now())
	r.shared.done("b")

	if made := r.shared.decide(r.engine, permit.Ask{Stage: rule.Cordon, Cordons: true, Acts: true}, world); made.Kind == permit.Go {
		t.Error("nobody waits for a node that was moved just now")
	}
}

// TestShared_DoubtOutlastsStepsThatSayNothing about the new system of a node.
func TestShared_DoubtOutlastsStepsThatSayNothing(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		step    cluster.NodeStep
		phase   cluster.Phase
		doubted bool
	}{
		{cluster.StepGates, cluster.PhaseRebooting, true},
		{cluster.StepCordon, cluster.PhaseRebooting, true},
		{cluster.StepDrain, cluster.PhaseRebooting, true},
		{cluster.StepEtcd, cluster.PhaseIntent, true},
		{cluster.StepReady, cluster.PhaseIntent, true},
		{cluster.StepUncordon, cluster.PhaseIntent, true},
		{cluster.StepReturn, cluster.PhaseIntent, true},
		{cluster.StepReturn, cluster.PhaseRebooting, false},
		{cluster.StepInstall, cluster.PhaseIntent, false},
		{cluster.StepLegacy, cluster.PhaseIntent, false},
	} {
		under := settlingFor(0)
		under.markDoubtful("a")
		under.noteStep("a", cluster.Entry{Node: "a", Phase: test.phase}, test.step)

		if doubted := under.anyDoubtful(); doubted != test.doubted {
			t.Errorf("%s with the journal saying %q: doubted %t, want %t", test.step, test.phase, doubted, test.doubted)
		}
	}
}

// deciding is a run in which upgrades ask for permits.
func deciding() *run {
	e := &Engine{clock: RealClock(), facts: fact.New()}

	return &run{engine: e, shared: settlingFor(0)}
}

// settlingFor is what upgrades share where nodes have to stay healthy for the given time.
func settlingFor(settle time.Duration) *shared {
	policy := cluster.DefaultPolicy()
	policy.Settle = settle

	return newShared(policy)
}

// of is the world of an upgrade of a worker that has just looked.
func of(node string) *permit.World {
	return &permit.World{View: rule.View{Step: plan.Step{Node: node, Role: cluster.Worker}}, Seen: time.Now(), Leased: true}
}

func TestSemaphore_CanBeGivenUpOn(t *testing.T) {
	t.Parallel()

	errTired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(context.Background())
	held := newSemaphore(1)

	if err := held.enter(ctx); err != nil {
		t.Fatal(err)
	}

	cancel(errTired)

	if err := held.enter(ctx); !errors.Is(err, errTired) {
		t.Errorf("got %v, want the cause", err)
	}

	held.leave()

	if err := held.enter(context.Background()); err != nil {
		t.Errorf("a free semaphore was not entered: %v", err)
	}
}
