// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestHoldThatLandsAfterACancelIsEnded: the same is so for the hold.
func TestHoldThatLandsAfterACancelIsEnded(t *testing.T) {
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

// TestHoldIsEndedWhenSomebodyFreesTheLease: there is nobody else who would end it.
func TestHoldIsEndedWhenSomebodyFreesTheLease(t *testing.T) {
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

// TestHoldIsEndedForAsLongAsThereIsTime: the API of the object is away for nine seconds after the cancel.
func TestHoldIsEndedForAsLongAsThereIsTime(t *testing.T) {
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

// TestHoldIsEndedAfterASlowCancel: every request for the object takes its time, and so does all else.
func TestHoldIsEndedAfterASlowCancel(t *testing.T) {
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

// TestHoldThatStaysIsSaidHowToEnd: whoever reads the warning can end it.
func TestHoldThatStaysIsSaidHowToEnd(t *testing.T) {
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

// TestRefusalIsSaidOnce: in one sentence.
func TestRefusalIsSaidOnce(t *testing.T) {
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

// TestSilentSecretLeavesTimeForTheRelease: the Secret cannot be reached, the object can.
func TestSilentSecretLeavesTimeForTheRelease(t *testing.T) {
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
