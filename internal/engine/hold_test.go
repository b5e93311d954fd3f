// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestOperatorIsHeldAndSetFree: it is kept from acting before anything is
// disturbed, knows the versions when it may act again, and does nothing.
func TestOperatorIsHeldAndSetFree(t *testing.T) {
	besideOperator(t, holding(setup{}), &played.Habits{Undoes: true}, func(o *owned) {
		w := o.publishing("1")
		free := 0

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Mutation > 0 && call.Method != "WriteLease" && !stamps(call) && o.annotation(keyHold) != cluster.RunPrefix+"1" {
				free++
			}

			return next(ctx)
		})

		o.must(w, to(toLifecycle))

		if free > 0 {
			t.Errorf("%d changes were made while the operator was not held", free)
		}

		if got := o.secret("talos_version"); strings.TrimPrefix(got, "v") != toLifecycle {
			t.Errorf("the Secret says Talos %q, want %s", got, toLifecycle)
		}

		// Whatever it would undo, it has had its chance.
		pass(operatorsChance)
		o.wantFree()
		o.upgraded(toLifecycle)
		o.Once()
	})
}

// TestUpgradeOfTheOperatorIsNotDisturbed: somebody who asked it for something, or
// an operator that is at work, has the cluster to itself.
func TestUpgradeOfTheOperatorIsNotDisturbed(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		says        string
	}{
		"a target":          {map[string]string{keyTarget: toLifecycle}, "is asked to bring Talos to " + toLifecycle},
		"a target with v":   {map[string]string{keyKubeTarget: "v1.35.2"}, "is asked to bring Kubernetes to 1.35.2"},
		"in progress":       {map[string]string{keyStatus: "in-progress", keyMessage: "Upgrading node cp-0 (2/5)"}, "Upgrading node cp-0 (2/5)"},
		"of a run and more": {map[string]string{keyTarget: toLifecycle, keyHold: cluster.RunPrefix + "dead"}, "is asked to bring Talos"},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, holding(setup{}), nil, func(o *owned) {
				for key, value := range test.annotations {
					o.annotate(key, value)
				}

				w := o.publishing("1")
				err := w.apply(context.Background(), to(toLifecycle))

				o.wantFailure(err, engine.ErrBlocked, test.says, "tenant-a/prod", "Nothing was touched")

				if _, mutating := w.Client.Calls(); mutating > 0 {
					t.Errorf("%d mutating calls", mutating)
				}

				for key, value := range test.annotations {
					if o.annotation(key) != value {
						t.Errorf("%s became %q", key, o.annotation(key))
					}
				}
			})
		})
	}
}

// TestHoldOfSomebodyElseStays: it is relied on, and is not ours to end.
func TestHoldOfSomebodyElseStays(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.annotate(keyHold, "maintenance, ask ops")

		w := o.publishing("1")
		o.must(w, to(toLifecycle))

		if got := o.annotation(keyHold); got != "maintenance, ask ops" {
			t.Errorf("the hold of somebody else became %q", got)
		}

		if !warned(w.worker, "maintenance, ask ops") {
			t.Errorf("nobody was told: %q", w.Texts(cluster.EventWarning))
		}

		o.Sound()
		o.AllRun(toLifecycle)
	})
}

// TestHoldOfADeadRunIsTakenOver at whatever call the run before died.
func TestHoldOfADeadRunIsTakenOver(t *testing.T) {
	for _, mutation := range []int{3, 5, 9, 14, 20, 31} {
		besideOperator(t, holding(setup{}), &played.Habits{Undoes: true}, func(o *owned) {
			ctx, end := context.WithCancel(context.Background())
			defer end()

			killed := newStrike(dieAfter, mutation, end)
			o.killed(ctx, end, killed)

			if got := o.annotation(keyHold); got != cluster.RunPrefix+"1" {
				t.Fatalf("mutation %d (%s): the hold is %q after the death of the run", mutation, killed.Struck(), got)
			}

			o.must(o.publishing("2"), to(toLifecycle))
			pass(operatorsChance)
			o.wantFree()
			o.upgraded(toLifecycle)
		})
	}
}

// killed runs an upgrade that dies: neither the cluster nor the object hears of it
// any more.
func (o *owned) killed(ctx context.Context, end context.CancelFunc, killed *strike) {
	o.T.Helper()
	defer end()

	w := o.publishing("1")
	w.Client.Intercept(killed.Intercept)
	o.dead(killed, nil)

	if err := w.apply(ctx, to(toLifecycle)); err == nil || killed.Struck() == "" {
		o.T.Fatalf("it was not killed: %v", err)
	}

	o.api.Inject(nil)
}

// TestHoldIsEndedHoweverTheRunEnds also where nothing is left to do.
func TestHoldIsEndedHoweverTheRunEnds(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		besideOperator(t, holding(setup{}), &played.Habits{}, func(o *owned) {
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
			defer cancel()

			begun := time.Now()
			err := o.publishing("1").apply(ctx, to(toLifecycle))

			if took := time.Since(begun); err == nil || took > 4*time.Minute+cancelMost {
				t.Errorf("%v after %s", err, took)
			}

			o.wantFree()
			o.Sound()
		})
	})

	t.Run("failed", func(t *testing.T) {
		besideOperator(t, holding(faulty("worker-0", model.StepInstall, model.EffectFail)), &played.Habits{}, func(o *owned) {
			if err := o.publishing("1").apply(context.Background(), to(toLifecycle)); !errors.Is(err, engine.ErrInstaller) {
				t.Errorf("got %v", err)
			}

			o.wantFree()
			o.Sound()
		})
	})

	t.Run("nothing to do", func(t *testing.T) {
		besideOperator(t, holding(setup{}), &played.Habits{}, func(o *owned) {
			o.annotate(keyHold, cluster.RunPrefix+"dead")
			o.must(o.publishing("1"), to(fromLifecycle))
			o.wantFree()

			w := o.publishing("2")
			o.must(w, to(fromLifecycle))

			if _, mutating := w.Client.Calls(); mutating > 0 {
				t.Errorf("%d mutating calls although nothing was left", mutating)
			}
		})
	})
}

// TestOperatorOutOfReachStopsNoUpgrade, and is held as soon as it can be.
func TestOperatorOutOfReachStopsNoUpgrade(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{Undoes: true}, func(o *owned) {
		away := time.Now().Add(3 * time.Minute)

		var held atomic.Bool

		o.api.Inject(func(_ context.Context, operation played.Operation, next func() error) error {
			if operation.By == "client" && time.Now().Before(away) {
				return cluster.ErrUnreachable
			}

			err := next()
			if o.annotation(keyHold) == cluster.RunPrefix+"1" {
				held.Store(true)
			}

			return err
		})

		w := o.publishing("1")
		o.must(w, to(toLifecycle))

		if !warned(w.worker, "tenant-a/prod") {
			t.Errorf("nobody was told: %q", w.Texts(cluster.EventWarning))
		}

		if !held.Load() {
			t.Error("it was never held")
		}

		o.api.Inject(nil)
		o.wantFree()
		o.upgraded(toLifecycle)
	})
}

// TestOperatorThatWakesUpStopsTheRun: somebody ends the hold and asks the operator
// while the run goes on.
func TestOperatorThatWakesUpStopsTheRun(t *testing.T) {
	besideOperator(t, setup{}, nil, func(o *owned) {
		w := o.publishing("1")
		afterFirst(w.worker, "Reboot", func() {
			o.annotate(keyHold, "")
			o.annotate(keyTarget, toLifecycle)
		})

		err := w.apply(context.Background(), to(toLifecycle))
		o.wantFailure(err, engine.ErrGuard, "is asked to bring Talos to "+toLifecycle)

		if got := o.annotation(keyTarget); got != toLifecycle {
			t.Errorf("the target of somebody else became %q", got)
		}

		if got := o.annotation(keyHold); got != "" {
			t.Errorf("the hold is %q", got)
		}
	})
}

// TestHoldThatIsTakenAwayIsSetAgain where nobody asks the operator for anything.
func TestHoldThatIsTakenAwayIsSetAgain(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{Undoes: true}, func(o *owned) {
		w := o.publishing("1")
		afterFirst(w.worker, "Reboot", func() { o.annotate(keyHold, "") })
		o.must(w, to(toLifecycle))
		pass(operatorsChance)
		o.wantFree()
		o.upgraded(toLifecycle)
	})
}

// TestVersionsThatCannotBeRecordedAreNamed, and the operator is set free all the
// same.
func TestVersionsThatCannotBeRecordedAreNamed(t *testing.T) {
	besideOperator(t, holding(setup{}), &played.Habits{}, func(o *owned) {
		o.api.Inject(func(_ context.Context, operation played.Operation, next func() error) error {
			if operation.Of.Kind == "Secret" && operation.By == "client" && operation.Mutation > 0 {
				return cluster.ErrDenied
			}

			return next()
		})

		w := o.publishing("1")
		o.must(w, to(toLifecycle))
		o.wantFree()

		if !warned(w.worker, "Talos "+toLifecycle) || !warned(w.worker, "Secret") {
			t.Errorf("nobody was told which versions, and where: %q", w.Texts(cluster.EventWarning))
		}
	})
}
