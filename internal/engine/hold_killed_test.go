// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestKilledAtAnyChangeOfTheObject: those of the publisher are among them.
func TestKilledAtAnyChangeOfTheObject(t *testing.T) {
	for number := 1; number <= 60; number++ {
		for _, kind := range []crash{dieBefore, dieAfter} {
			ended := false
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
					ended = true
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

			if ended {
				return
			}
		}
	}
}

// TestCancelIsOverInTimeWhateverHangs: everything does, but the clock.
func TestCancelIsOverInTimeWhateverHangs(t *testing.T) {
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
