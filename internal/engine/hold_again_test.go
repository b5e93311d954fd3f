// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestRequestThatWasTakenBackIsStillBeingDone: the operator has begun, and goes on although nobody asks it any more.
func TestRequestThatWasTakenBackIsStillBeingDone(t *testing.T) {
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

// TestRequestBesideALiveHoldIsNotBlamedOnADeadRun: the run that holds is this one.
func TestRequestBesideALiveHoldIsNotBlamedOnADeadRun(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		p := o.publishing("1")
		afterFirst(p.worker, "Uncordon", func() { o.annotate(keyTarget, toLifecycle) })
		err := p.apply(context.Background(), to(toLifecycle))
		o.wantFailure(err, engine.ErrOperator, "this run keeps it from that until it stops", keyTarget)

		if got := o.annotation(keyTarget); got != toLifecycle || o.annotation(keyHold) != "" {
			t.Errorf("the target is %q and the hold %q", got, o.annotation(keyHold))
		}
	})
}

// TestStatusOfARunThatDiedIsEndedWithItsHold: whoever ends the hold.
func TestStatusOfARunThatDiedIsEndedWithItsHold(t *testing.T) {
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

// TestOperatorThatIsDoneByThenIsNotAskedAgain: it came to its end while the lease was waited for.
func TestOperatorThatIsDoneByThenIsNotAskedAgain(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.annotate(keyTarget, toLifecycle)
		for o.annotation(keyPrefix+"talos-progress") != "4/5" {
			pass(time.Second)
		}

		w := o.beside("2")
		var once sync.Once
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteLease" {
				once.Do(func() {
					pass(20 * time.Second)
					for o.annotation(keyStatus) != "completed" && ctx.Err() == nil {
						pass(time.Second)
					}
				})
			}

			return next(ctx)
		})

		asks := 0
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			before := o.annotation(keyTarget)
			err := next()
			if op.By == "client" && before == "" && o.annotation(keyTarget) != "" {
				asks++
			}

			return err
		})

		_ = o.delegate(context.Background(), w, to(toLifecycle))
		if asks > 0 {
			t.Errorf("asked %d times for what runs already", asks)
		}

		o.wantFree()
	})
}

// TestOperatorIsNeverAskedToGoBack: somebody went further while the lease was waited for.
func TestOperatorIsNeverAskedToGoBack(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		o.annotate(keyTarget, toLifecycle)
		for o.annotation(keyPrefix+"talos-progress") != "4/5" {
			pass(time.Second)
		}

		w := o.beside("2")
		var once sync.Once
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteLease" {
				once.Do(func() {
					for o.annotation(keyStatus) != "completed" && ctx.Err() == nil {
						pass(time.Second)
					}

					o.annotate(keyTarget, "1.13.6")
					for o.annotation(keyPrefix+"talos-current") != "1.13.6" && ctx.Err() == nil {
						pass(time.Second)
					}
				})
			}

			return next(ctx)
		})

		var asked []string
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			before := o.annotation(keyTarget)
			err := next()
			if now := o.annotation(keyTarget); op.By == "client" && now != before {
				asked = append(asked, now)
			}

			return err
		})

		_ = o.delegate(context.Background(), w, to(toLifecycle))
		for _, a := range asked {
			if a == toLifecycle {
				t.Errorf("the operator was asked to go back from 1.13.6 to %s", a)
			}
		}
	})
}
