// SPDX-License-Identifier: MPL-2.0

package sweep_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// runMost is how long a single run may take in simulated time, whatever strikes
// it: several times of what its own deadlines add up to.
const runMost = 24 * time.Hour

// never is later than anything.
const never = time.Duration(math.MaxInt64)

// toldMost is how often nodes that have returned to their old system are told of.
const toldMost = 3

// account is what came of a case.
type account struct {
	// points are the calls of the first run, in order.
	points []point
	// came tells that the call to strike at came.
	came bool
	// struck tells that the fault did something, early that it did so before the
	// first run had changed anything.
	struck, early bool
	// took is the simulated time of the first run.
	took time.Duration
	// failed is what the first run ended with, nil where it was killed.
	failed error
	// wrong is everything that must not be.
	wrong []string
}

// life is a case while it happens.
type life struct {
	*harness.Rig

	unit  unit
	blow  strike
	vault *ports.Vault
	noted *harness.Note
	// coming brings the fault into force; nil where it is so from the beginning.
	coming *time.Timer
	// begun is when the first run changed something for the first time, never
	// where it did not.
	begun time.Duration
	done  account
}

// live carries out a case in a bubble of its own.
func live(t *testing.T, u unit, blow strike) (done account) {
	noted := &harness.Note{TB: t}

	// A bubble in which nothing can go on panics where it was made.
	noted.Guarded(func() {
		synctest.Test(t, func(*testing.T) {
			noted.Guarded(func() {
				l := &life{unit: u, blow: blow, vault: ports.NewVault(), noted: noted, begun: never}
				defer func() { done = l.done }()

				l.happen()
			})
		})
	})

	done.wrong = noted.All()

	return done
}

func (l *life) happen() {
	begins := l.unit.script()
	if !l.unit.faulty() || l.unit.from > 0 {
		begins = nil
	}

	l.Rig = harness.New(l.noted, l.unit.setup(begins))
	defer l.Stop()

	furnish(l.Rig)

	if l.unit.from > 0 {
		l.coming = time.AfterFunc(l.unit.from, func() { l.World().SetFaults(append(l.unit.options.Faults, l.unit.fault)) })
		defer l.coming.Stop()
	}

	defer l.judge()

	if l.unit.asked != "" {
		l.upgraded()
	}

	rest := l.first()
	defer rest()

	// Without a fault the run after the crash finds nodes as the crash left them.
	switch {
	case l.unit.faulty() || l.unit.options.ControlPlanes == 1:
		// An only control plane may be on its way down when the next run begins, and
		// then there is nobody to give it the lease.
		l.despite()
		l.lift()
	case l.unit.victim != "":
		l.returned()
		l.lift()
	case l.unit.asked != "":
		l.obeyed()
	}

	l.last()
	l.still()
}

// judge tells what the fault did.
func (l *life) judge() {
	for _, event := range l.ofFault() {
		l.done.struck = true
		l.done.early = l.done.early || event.Sim < l.begun.Seconds()
	}
}

// ofFault are the times at which the unit's fault did something.
func (l *life) ofFault() []history.Event {
	var found []history.Event

	for _, event := range l.Judge.Of(history.KindFault) {
		if event.Detail["step"] == string(l.unit.fault.Step) && event.Detail["effect"] == string(l.unit.fault.Effect) && event.Node == l.unit.fault.Node {
			found = append(found, event)
		}
	}

	return found
}

// first is the run that is struck. It returns how to wait for what is left of a
// dead process.
func (l *life) first() (rest func()) {
	var mu sync.Mutex

	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	calls := counter{}
	lost := false
	hits := map[int]bool{}
	worker := l.Worker("run-1")
	blow := harness.NewStrike(l.blow.crash, func(call ports.Call) bool {
		mu.Lock()
		defer mu.Unlock()

		return hits[call.Number]
	}, cancel)

	worker.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		mu.Lock()
		at := calls.point(call)
		l.done.points = append(l.done.points, at)

		if at.mutates {
			l.begun = min(l.begun, l.World().Now())
		}

		hits[call.Number] = l.blow.crash != "" && at == l.blow.at
		lose := hits[call.Number] && l.blow.crash == loseRequest
		lost = lost || lose
		mu.Unlock()

		if lose {
			return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		}

		return blow.Intercept(ctx, call, l.unit.honest(call, next))
	})

	ended := make(chan error, 1)

	go func() {
		defer close(ended)

		if l.unit.asked != "" {
			ended <- worker.RollBack(ctx, l.unit.asked)

			return
		}

		ended <- worker.Apply(ctx, l.unit.request(l.vault, nil))
	}()

	var err error

	select {
	case err = <-ended:
	case <-blow.Killed():
	}

	mu.Lock()
	l.done.came, l.done.took = blow.Struck() != "" || lost, l.World().Now()
	mu.Unlock()

	// A run may end at the very moment at which it is killed.
	select {
	case <-blow.Killed():
	default:
		l.done.failed = err
		l.ended("the first run", err)
		l.expected(err)
	}

	return func() {
		for range ended {
		}

		cancel()
	}
}

// expected fails the case where an undisturbed run, or one that only did not
// learn that something had worked, does not end at the target.
func (l *life) expected(err error) {
	if err != nil && !l.unit.faulty() && l.unit.victim == "" {
		l.T.Errorf("the first run failed: %v\n%s", err, l.Judge.Text())
	}
}

// apply is a whole run.
func (l *life) apply(name string, told map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	defer cancel()

	worker := l.Worker(name)
	worker.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		return l.unit.honest(call, next)(ctx)
	})

	err := worker.Apply(ctx, l.unit.request(l.vault, told))
	l.ended(name, err)

	return err
}

// despite is a run with what is wrong still being so. It may fail, but says why.
func (l *life) despite() { _ = l.apply("run-2", l.told()) }

// lift ends the fault and lets the cluster recover. What lasts for a while does so
// whatever the script says, and a moment longer.
func (l *life) lift() {
	if l.coming != nil {
		l.coming.Stop()
	}

	l.World().SetFaults(nil)
	time.Sleep(l.unit.fault.For + time.Second)
	l.Until("all in service", 2*time.Hour, l.whole)
}

// last is the run that has to end at the target. Nodes may have returned to their
// old system with nobody there to notice, and are told of when they were found.
func (l *life) last() {
	var err error

	for attempt := range toldMost {
		told := l.told()
		err = l.apply(fmt.Sprintf("run-last-%d", attempt), told)

		if err == nil || len(l.told()) == 0 || len(l.told()) == len(told) && !errors.Is(err, engine.ErrFallback) {
			break
		}
	}

	if err != nil {
		l.T.Fatalf("the last run failed: %v\n%s", err, l.Judge.Text())
	}

	l.arrived()
}

// still is one more run, which must not change anything.
func (l *life) still() {
	ctx, cancel := context.WithTimeout(context.Background(), runMost)
	defer cancel()

	var mu sync.Mutex

	var changed []string

	again := l.Worker("run-again")
	again.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Mutation > 0 {
			mu.Lock()
			changed = append(changed, call.String())
			mu.Unlock()
		}

		return next(ctx)
	})

	if err := again.Apply(ctx, l.unit.request(l.vault, nil)); err != nil {
		l.T.Fatalf("a run at the target failed: %v\n%s", err, l.Judge.Text())
	}

	if len(changed) > 0 {
		l.T.Errorf("L2: a run at the target changed something: %v\n%s", changed, l.Judge.Text())
	}

	l.sound()
}
