// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestOperatorAtWorkIsNotForgotten: what was seen counts until it is seen to be over, also when the object cannot be read now and then.
func TestOperatorAtWorkIsNotForgotten(t *testing.T) {
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

// TestNothingIsPublishedOverAnOperatorAtWork: the last word is the operator's, once it was seen to act.
func TestNothingIsPublishedOverAnOperatorAtWork(t *testing.T) {
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

		o.wantFailure(w.apply(context.Background(), to(toLifecycle)), engine.ErrOperator, "is asked to bring Talos to "+toLifecycle)

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

// TestDeadHoldAndATargetAreBothNamed: one keeps the operator from doing what the other asks for, and only a person knows which of them is meant.
func TestDeadHoldAndATargetAreBothNamed(t *testing.T) {
	for name, target := range map[string]string{"idle": fromLifecycle, "work": toLifecycle} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
				o.annotate(keyHold, cluster.RunPrefix+"dead")
				o.annotate(keyTarget, toLifecycle)
				err := o.publishing("1").apply(context.Background(), to(target))
				o.wantFailure(err, engine.ErrBlocked, cluster.RunPrefix+"dead", keyHold, keyTarget, "kubectl annotate")
			})
		})
	}
}

// TestOwnStatusAfterTheHoldWasEndedByHand: the run was killed, and a person did as the guide says.
func TestOwnStatusAfterTheHoldWasEndedByHand(t *testing.T) {
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

// TestNothingIsSettledWhileTheOperatorIsFree: what it remembers then is its own.
func TestNothingIsSettledWhileTheOperatorIsFree(t *testing.T) {
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

// TestThereAreNeverTwoUpgraders: the operator is played, and one read of its object fails.
func TestThereAreNeverTwoUpgraders(t *testing.T) {
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
