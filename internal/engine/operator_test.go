// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestOperatorHold_SetBeforeAndEndedAfterARun: it is kept from acting before anything is
// disturbed, knows the versions when it may act again, and does nothing.
func TestOperatorHold_SetBeforeAndEndedAfterARun(t *testing.T) {
	t.Parallel()

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

// TestOperatorHold_UpgradeOfTheOperatorIsNotDisturbed: somebody who asked it for something, or
// an operator that is at work, has the cluster to itself.
func TestOperatorHold_UpgradeOfTheOperatorIsNotDisturbed(t *testing.T) {
	t.Parallel()

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

				o.wantFailure(err, say.ErrBlocked, test.says, "tenant-a/prod", "Nothing was touched")

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

// TestOperatorHold_OfSomebodyElseStays: it is relied on, and is not ours to end.
func TestOperatorHold_OfSomebodyElseStays(t *testing.T) {
	t.Parallel()

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

// TestOperatorHold_OfADeadRunIsTakenOver at whatever call the run before died.
func TestOperatorHold_OfADeadRunIsTakenOver(t *testing.T) {
	t.Parallel()

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

// TestOperatorHold_EndedHoweverTheRunEnds also where nothing is left to do.
func TestOperatorHold_EndedHoweverTheRunEnds(t *testing.T) {
	t.Parallel()

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
			if err := o.publishing("1").apply(context.Background(), to(toLifecycle)); !errors.Is(err, say.ErrInstaller) {
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

// TestOperatorHold_OperatorOutOfReachStopsNoUpgrade, and is held as soon as it can be.
func TestOperatorHold_OperatorOutOfReachStopsNoUpgrade(t *testing.T) {
	t.Parallel()

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

// TestOperatorHold_OperatorThatWakesUpStopsTheRun: somebody ends the hold and asks the operator
// while the run goes on.
func TestOperatorHold_OperatorThatWakesUpStopsTheRun(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		w := o.publishing("1")
		afterFirst(w.worker, "Reboot", func() {
			o.annotate(keyHold, "")
			o.annotate(keyTarget, toLifecycle)
		})

		err := w.apply(context.Background(), to(toLifecycle))
		o.wantFailure(err, say.ErrGuard, "is asked to bring Talos to "+toLifecycle)

		if got := o.annotation(keyTarget); got != toLifecycle {
			t.Errorf("the target of somebody else became %q", got)
		}

		if got := o.annotation(keyHold); got != "" {
			t.Errorf("the hold is %q", got)
		}
	})
}

// TestOperatorHold_TakenAwayIsSetAgain where nobody asks the operator for anything.
func TestOperatorHold_TakenAwayIsSetAgain(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{Undoes: true}, func(o *owned) {
		w := o.publishing("1")
		afterFirst(w.worker, "Reboot", func() { o.annotate(keyHold, "") })
		o.must(w, to(toLifecycle))
		pass(operatorsChance)
		o.wantFree()
		o.upgraded(toLifecycle)
	})
}

// TestOperatorHold_VersionsThatCannotBeRecordedAreNamed, and the operator is set free all the
// same.
func TestOperatorHold_VersionsThatCannotBeRecordedAreNamed(t *testing.T) {
	t.Parallel()

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

// TestOperatorHold_OperatorAtWorkIsNotForgotten: what was seen counts until it is seen to be over, also when the object cannot be read now and then.
func TestOperatorHold_OperatorAtWorkIsNotForgotten(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		w := o.beside("1")
		var mu sync.Mutex
		intruded, reads, after := false, 0, 0
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			mu.Lock()
			if intruded && (call.Method == "Install" || call.Method == "Cordon") {
				after++
			}

			mu.Unlock()

			err := next(ctx)
			if call.Method == "Reboot" {
				mu.Lock()
				first := !intruded
				intruded = true
				mu.Unlock()
				if first {
					o.annotate(keyHold, "")
					o.annotate(keyTarget, toLifecycle)
					o.annotate(keyStatus, "in-progress")
				}
			}

			return err
		})

		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Verb == "get" {
				mu.Lock()
				defer mu.Unlock()
				if intruded {
					if reads++; reads%4 == 0 {
						return cluster.ErrUnreachable
					}
				}
			}

			return next()
		})

		_, _ = w.Upgrade(context.Background(), to(toLifecycle))
		if after > 0 {
			t.Errorf("%d cordons/installs after the operator was seen to be at work", after)
		}
	})
}

// TestOperatorHold_NothingIsPublishedOverAnOperatorAtWork: the last word is the operator's, once it was seen to act.
func TestOperatorHold_NothingIsPublishedOverAnOperatorAtWork(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		w := o.publishing("1")
		var mu sync.Mutex
		begun := false
		var said []string
		afterFirst(w.worker, "Uncordon", func() {
			o.annotate(keyHold, "")
			o.annotate(keyTarget, toLifecycle)
			mu.Lock()
			begun = true
			mu.Unlock()
		})

		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			before := o.annotation(keyStatus) + "|" + o.annotation(keyMessage)
			err := next()
			mu.Lock()
			defer mu.Unlock()
			if begun && op.By == "client" && op.Mutation > 0 {
				if now := o.annotation(keyStatus) + "|" + o.annotation(keyMessage); now != before {
					said = append(said, before+" => "+now)
				}
			}

			return err
		})

		o.wantFailure(w.apply(context.Background(), to(toLifecycle)), say.ErrOperator, "is asked to bring Talos to "+toLifecycle)

		// What was on its way when somebody asked the operator is all that may be said.
		if len(said) > 2 {
			t.Errorf("we wrote %q", said)
		}

		if got := o.annotation(keyStatus); got == "failed" {
			t.Error("our failure stands where the operator is at work")
		}

		o.Sound()
	})
}

// TestOperatorHold_DeadHoldAndTargetAreBothNamed: one keeps the operator from doing what the other asks for, and only a person knows which of them is meant.
func TestOperatorHold_DeadHoldAndTargetAreBothNamed(t *testing.T) {
	t.Parallel()

	for name, target := range map[string]string{"idle": fromLifecycle, "work": toLifecycle} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
				o.annotate(keyHold, cluster.RunPrefix+"dead")
				o.annotate(keyTarget, toLifecycle)
				err := o.publishing("1").apply(context.Background(), to(target))
				o.wantFailure(err, say.ErrBlocked, cluster.RunPrefix+"dead", keyHold, keyTarget, "kubectl annotate")
			})
		})
	}
}

// TestOperatorHold_OwnStatusIsNoObstacleOnceEndedByHand: the run was killed, and a person did as the guide says.
func TestOperatorHold_OwnStatusIsNoObstacleOnceEndedByHand(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, end := context.WithCancel(context.Background())
		defer end()
		o.killed(ctx, end, newStrike(dieAfter, 14, end))
		o.annotate(keyHold, "")
		pass(10 * time.Minute)
		if err := o.publishing("2").apply(context.Background(), to(toLifecycle)); err != nil {
			t.Errorf("apply again is refused because of what a run of ours wrote: %v", err)
		}
	})
}

// TestOperatorHold_NoVersionsAreWrittenWhileTheOperatorIsFree: what it remembers then is its own.
func TestOperatorHold_NoVersionsAreWrittenWhileTheOperatorIsFree(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		w := o.beside("1")
		afterFirst(w, "Uncordon", func() {
			o.annotate(keyHold, "")
			o.annotate(keyTarget, "1.13.6")
			_ = o.api.WriteSecret(context.Background(), "tenant-a", "c-1", map[string]string{"talos_version": "1.13.6"})
		})

		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Of.Kind == "Secret" && op.Mutation > 0 {
				t.Errorf("%s while the hold is %q and the target %q; talos_version %s", op, o.annotation(keyHold), o.annotation(keyTarget), o.annotation(keyStatus))
			}

			return next()
		})

		_, _ = w.Upgrade(context.Background(), to(toLifecycle))
	})
}

// TestOperatorHold_NeverTwoUpgraders: the operator is played, and one read of its object fails.
func TestOperatorHold_NeverTwoUpgraders(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		w := o.beside("1")
		var mu sync.Mutex
		begun, reads := false, 0
		var with []string
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			mu.Lock()
			if begun && (call.Method == "Install" || call.Method == "Reboot" || call.Method == "Cordon") {
				with = append(with, call.Method+" "+call.Node+" while "+o.annotation(keyStatus)+" "+o.annotation(keyMessage))
			}

			mu.Unlock()

			return next(ctx)
		})

		afterFirstAnd := func() {
			o.annotate(keyHold, "")
			o.annotate(keyTarget, toLifecycle)
			mu.Lock()
			begun = true
			mu.Unlock()
		}

		go func() {
			for o.State("worker-0").Talos != toLifecycle {
				pass(time.Second)
			}

			afterFirstAnd()
		}()

		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Verb == "get" {
				mu.Lock()
				defer mu.Unlock()
				if begun {
					if reads++; reads == 5 {
						return cluster.ErrUnreachable
					}
				}
			}

			return next()
		})

		_, _ = w.Upgrade(context.Background(), to(toLifecycle))
		for _, one := range with {
			t.Error(one)
		}

		o.Sound()
	})
}

// TestOperatorHold_RequestTakenBackMayStillBeUnderWay: the operator has begun, and goes on although nobody asks it any more.
func TestOperatorHold_RequestTakenBackMayStillBeUnderWay(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		p := o.publishing("1")
		w := p.worker
		var mu sync.Mutex
		began := false
		two := 0
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			mu.Lock()
			if began && (call.Method == "Install" || call.Method == "Cordon" || call.Method == "Reboot") {
				two++
			}

			mu.Unlock()
			err := next(ctx)
			if call.Method == "Reboot" {
				mu.Lock()
				first := !began
				began = true
				mu.Unlock()
				if first {
					o.annotate(keyHold, "")
					o.annotate(keyTarget, toLifecycle)
					o.annotate(keyStatus, "in-progress")
					o.annotate(keyMessage, "Upgrading node cp-0 (2/5)")
					_ = o.api.WriteSecret(context.Background(), "tenant-a", "c-1", map[string]string{"upgrade_in_progress": "true", "upgrade_type": "talos", "upgrade_target": toLifecycle})
					go func() {
						pass(10 * time.Second)
						o.annotate(keyTarget, "")
					}()
				}
			}

			return err
		})

		_ = p.apply(context.Background(), to(toLifecycle))
		pass(5 * time.Minute)
		if two > 0 {
			t.Errorf("%d disturbing calls while the Secret says that the operator is at work", two)
		}
	})
}

// TestOperatorHold_LiveOneIsNotBlamedOnADeadRun: the run that holds is this one.
func TestOperatorHold_LiveOneIsNotBlamedOnADeadRun(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		p := o.publishing("1")
		afterFirst(p.worker, "Uncordon", func() { o.annotate(keyTarget, toLifecycle) })
		err := p.apply(context.Background(), to(toLifecycle))
		o.wantFailure(err, say.ErrOperator, "this run keeps it from that until it stops", keyTarget)

		if got := o.annotation(keyTarget); got != toLifecycle || o.annotation(keyHold) != "" {
			t.Errorf("the target is %q and the hold %q", got, o.annotation(keyHold))
		}
	})
}

// TestOperatorHold_StatusOfADeadRunEndsWithItsHold: whoever ends the hold.
func TestOperatorHold_StatusOfADeadRunEndsWithItsHold(t *testing.T) {
	t.Parallel()

	for n := 1; n < 14; n++ {
		besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
			ctx, end := context.WithCancel(context.Background())
			defer end()
			p := o.publishing("1")
			_ = p
			o.killed(ctx, end, newStrike(dieAfter, n, end))
			if o.annotation(keyHold) == "" || o.annotation(keyStatus) != "in-progress" {
				return
			}

			if err := o.delegate(context.Background(), o.beside("2"), to(fromLifecycle)); err != nil {
				return
			}

			pass(time.Hour)
			obj, _ := o.api.Object(context.Background(), o.of)
			status, _ := obj["status"].(map[string]any)
			if status["phase"] == "UpgradingTalos" {
				t.Errorf("%d: hold %q status %q %q, and still: %v", n, o.annotation(keyHold), o.annotation(keyStatus), o.annotation(keyMessage), status)
			}
		})
	}
}

// TestOperatorHold_ThatLandsAfterACancelIsEnded: the same is so for the hold.
func TestOperatorHold_ThatLandsAfterACancelIsEnded(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		seen := 0
		o.api.Inject(func(c context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 {
				if seen++; seen == 1 {
					go func() {
						pass(1500 * time.Millisecond)
						o.annotate(keyHold, cluster.RunPrefix+"1")
					}()

					cancel()
					<-c.Done()
					return errors.Join(cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
				}
			}

			return next()
		})

		w := o.beside("1")
		_, _ = w.Upgrade(ctx, to(toLifecycle))
		pass(time.Minute)
		o.wantFree()
	})
}

// TestOperatorHold_EndedWhenSomebodyFreesTheLease: there is nobody else who would end it.
func TestOperatorHold_EndedWhenSomebodyFreesTheLease(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		w := o.publishing("1")
		afterFirst(w.worker, "Uncordon", func() { o.DeleteLeaseAsPerson() })
		err := w.apply(context.Background(), to(toLifecycle))
		pass(10 * time.Minute)
		if hold := o.annotation(keyHold); hold != "" {
			t.Errorf("the hold %q stays; told: %q; error: %v", hold, w.Texts(cluster.EventWarning), err)
		}
	})
}

// TestOperatorHold_EndIsTriedForAsLongAsThereIsTime: the API of the object is away for nine seconds after the cancel.
func TestOperatorHold_EndIsTriedForAsLongAsThereIsTime(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var until time.Time
		var mu sync.Mutex
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			mu.Lock()
			away := op.By == "client" && time.Now().Before(until)
			mu.Unlock()
			if away {
				return cluster.ErrUnreachable
			}

			return next()
		})

		go func() {
			pass(4 * time.Minute)
			mu.Lock()
			until = time.Now().Add(9 * time.Second)
			mu.Unlock()

			cancel()
		}()

		w := o.publishing("1")
		begun := time.Now()
		_, _ = w.Upgrade(ctx, to(toLifecycle))
		took := time.Since(begun) - 4*time.Minute
		_ = w.notes.Close(context.WithoutCancel(ctx))
		if hold := o.annotation(keyHold); hold != "" {
			t.Errorf("hold %q left after %s; told %q", hold, took, w.Texts(cluster.EventWarning))
		}
	})
}

// TestOperatorHold_EndedAfterASlowCancel: every request for the object takes its time, and so does all else.
func TestOperatorHold_EndedAfterASlowCancel(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		o.api.Inject(func(c context.Context, op played.Operation, next func() error) error {
			if op.By == "client" {
				_ = engine.RealClock().Sleep(c, 150*time.Millisecond)
			}

			return next()
		})

		w := o.beside("1")
		w.Client.Intercept(func(c context.Context, call ports.Call, next func(context.Context) error) error {
			if ctx.Err() != nil && call.Method != "WriteLease" && call.Method != "Lease" {
				<-c.Done() // hangs until its time is up
			}

			return next(c)
		})

		go func() { pass(4 * time.Minute); cancel() }()
		begun := time.Now()
		_, _ = w.Upgrade(ctx, to(toLifecycle))
		took := time.Since(begun) - 4*time.Minute
		if hold := o.annotation(keyHold); hold != "" {
			t.Errorf("hold %q left after %s; told %q", hold, took, w.Texts(cluster.EventWarning))
		}
	})
}

// TestOperatorHold_WarningSaysHowToEndOneThatStays: whoever reads the warning can end it.
func TestOperatorHold_WarningSaysHowToEndOneThatStays(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		w := o.beside("1")
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 && o.annotation(keyHold) != "" {
				return cluster.ErrUnreachable
			}

			return next()
		})

		_, _ = w.Upgrade(context.Background(), to(toLifecycle))
		if !warned(w, "kubectl annotate") {
			t.Errorf("nobody was told how: %q", w.Texts(cluster.EventWarning))
		}
	})
}

// TestOperatorHold_RefusalIsSaidOnce: in one sentence.
func TestOperatorHold_RefusalIsSaidOnce(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		w := o.beside("1")
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 && o.annotation(keyHold) != "" {
				return cluster.ErrDenied
			}

			return next()
		})

		_, _ = w.Upgrade(context.Background(), to(toLifecycle))
		for _, said := range w.Texts(cluster.EventWarning) {
			if strings.Count(said, "permission denied") > 1 {
				t.Errorf("%q", said)
			}
		}
	})
}

// TestOperatorHold_SilentSecretLeavesTimeForItsEnd: the Secret cannot be reached, the object can.
func TestOperatorHold_SilentSecretLeavesTimeForItsEnd(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
		defer cancel()
		w := o.beside("1")
		o.api.Inject(func(c context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Of.Kind == "Secret" {
				_ = engine.RealClock().Sleep(c, 10*time.Second) // as long as the adapter lets a call take
				return cluster.ErrUnreachable
			}

			return next()
		})

		_, err := w.Upgrade(ctx, to(toLifecycle))
		if hold := o.annotation(keyHold); hold != "" {
			t.Errorf("%v; hold %q; told %q", err, hold, w.Texts(cluster.EventWarning))
		}
	})
}

// TestOperatorHold_KillAtAnyChangeOfTheObjectIsMadeGood: those of the publisher are among them.
func TestOperatorHold_KillAtAnyChangeOfTheObjectIsMadeGood(t *testing.T) {
	t.Parallel()

	kinds := []crash{dieBefore, dieAfter}

	// beyond is a case in which there were not so many changes; 0 before there is one.
	var beyond atomic.Int64

	beside(t, 60/stride*len(kinds), func(nth int) {
		number, kind := 1+nth/len(kinds)*stride, kinds[nth%len(kinds)]

		if known := int(beyond.Load()); known > 0 && nth > known {
			return
		}

		besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
			ctx, end := context.WithCancel(context.Background())
			defer end()
			w := o.publishing("1")
			killed := newStrike(kind, atWill, end)
			w.Client.Intercept(killed.Intercept)
			var mu sync.Mutex
			seen, struck := 0, ""
			o.dead(killed, func(_ context.Context, op played.Operation, next func() error) error {
				if op.By != "client" || op.Mutation == 0 {
					return next()
				}

				mu.Lock()
				seen++
				hit := seen == number
				if hit {
					struck = op.String()
				}

				mu.Unlock()
				if !hit {
					return next()
				}

				if kind == dieBefore {
					killed.Kill()
					return cluster.ErrUnreachable
				}

				err := next()
				killed.Kill()
				return errors.Join(err, cluster.ErrUnreachable)
			})

			_ = w.apply(ctx, to(toLifecycle))
			o.api.Inject(nil)
			if struck == "" {
				beyond.Store(int64(nth))
				return
			}

			left := o.annotation(keyHold) + "|" + o.annotation(keyStatus)
			if err := o.publishing("2").apply(context.Background(), to(toLifecycle)); err != nil {
				t.Errorf("%d %v at %s, left %s: %v", number, kind, struck, left, err)
			}

			o.wantFree()
			if got := o.annotation(keyStatus); got != "completed" {
				t.Errorf("%d %v at %s, left %s: status %q in the end", number, kind, struck, left, got)
			}
		})
	})
}

// TestOperatorHold_CancelIsOverInTimeWhateverHangs: everything does, but the clock.
func TestOperatorHold_CancelIsOverInTimeWhateverHangs(t *testing.T) {
	t.Parallel()

	for name, delegate := range map[string]bool{"direct": false, "delegate": true} {
		for _, moment := range []time.Duration{500 * time.Millisecond, 5 * time.Second, 40 * time.Second, 2 * time.Minute, 4 * time.Minute} {
			besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				o.api.Inject(func(c context.Context, op played.Operation, next func() error) error {
					if op.By == "client" && ctx.Err() != nil {
						<-c.Done()
						return cluster.ErrUnreachable
					}

					return next()
				})

				w := o.publishing("1")
				w.Client.Intercept(func(c context.Context, _ ports.Call, next func(context.Context) error) error {
					if ctx.Err() != nil {
						<-c.Done() // hangs until its time is up
					}

					return next(c)
				})

				go func() { pass(moment); cancel() }()
				begun := time.Now()
				var err error
				if delegate {
					err = o.delegate(ctx, w.worker, to(toLifecycle))
				} else {
					_, err = w.Upgrade(ctx, to(toLifecycle))
				}

				took := time.Since(begun) - moment
				if err == nil || took > 12500*time.Millisecond {
					t.Errorf("%s %s: took %s: %v", name, moment, took, err)
				} else {
					t.Logf("%s %s: took %s", name, moment, took)
				}

				bounded, end := context.WithTimeout(context.Background(), time.Second)
				_ = w.notes.Close(bounded)
				end()
				o.api.Inject(nil)
			})
		}
	}
}

// TestOperatorHold_CrashAtAnyChangeIsMadeGood: at each change that a run makes for the
// operator's sake, to hold it, to tell it the versions and to set it free, the
// process dies before or after it, or does not learn that it was made. The next run
// leaves everything as it should be.
func TestOperatorHold_CrashAtAnyChangeIsMadeGood(t *testing.T) {
	t.Parallel()

	const changes = 3

	for number := 1; number <= changes; number++ {
		for _, kind := range []crash{dieBefore, dieAfter, loseReply} {
			t.Run(fmt.Sprintf("change %d, %s", number, kind), func(t *testing.T) {
				besideOperator(t, setup{}, &played.Habits{Undoes: true}, func(o *owned) {
					struck := o.struckAt(number, kind)

					if !struck {
						t.Fatalf("there are fewer than %d changes", number)
					}

					o.must(o.publishing("2"), to(toLifecycle))
					pass(operatorsChance)
					o.wantFree()
					o.Sound()
					o.AllRun(toLifecycle)
					o.Tidy()
				})
			})
		}
	}

	// There are no more than those.
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		if o.struckAt(changes+1, loseReply) {
			t.Errorf("a run makes more than %d changes for the operator's sake", changes)
		}
	})
}

// struckAt runs an upgrade without a publisher that is struck at the change of that
// number, and reports whether there was one.
func (o *owned) struckAt(number int, kind crash) bool {
	o.T.Helper()

	ctx, end := context.WithCancel(context.Background())
	defer end()

	w := o.beside("1")
	killed := newStrike(kind, atWill, end)
	w.Client.Intercept(killed.Intercept)

	seen, struck := 0, false

	o.dead(killed, func(_ context.Context, operation played.Operation, next func() error) error {
		if operation.By != "client" || operation.Mutation == 0 {
			return next()
		}

		if seen++; seen != number {
			return next()
		}

		struck = true

		if kind == dieBefore {
			killed.Kill()

			return cluster.ErrUnreachable
		}

		err := next()
		if kind == loseReply {
			return errors.Join(err, cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		}

		killed.Kill()

		return errors.Join(err, cluster.ErrUnreachable)
	})

	_, err := w.Upgrade(ctx, to(toLifecycle))
	o.api.Inject(nil)

	if kind == loseReply && err != nil {
		o.T.Errorf("the run did not get over it: %v", err)
	}

	if kind != loseReply && struck && err != nil && !errors.Is(err, harness.ErrKilled) && !errors.Is(err, context.Canceled) {
		o.T.Errorf("it ended with %v before it was killed", err)
	}

	return struck
}

// TestOperatorHold_ThatCannotBeSetIsNamed: the object may be read and not written. The
// upgrade goes on, with a warning.
func TestOperatorHold_ThatCannotBeSetIsNamed(t *testing.T) {
	t.Parallel()

	besideOperator(t, setup{}, nil, func(o *owned) {
		o.api.Inject(func(_ context.Context, operation played.Operation, next func() error) error {
			if operation.By == "client" && operation.Mutation > 0 {
				return cluster.ErrDenied
			}

			return next()
		})

		w := o.publishing("1")
		o.must(w, to(toLifecycle))

		if !warned(w.worker, "could not be kept from acting: permission denied") {
			t.Errorf("nobody was told: %q", w.Texts(cluster.EventWarning))
		}

		o.Sound()
		o.AllRun(toLifecycle)
	})
}
