// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// TestRequestThatLandsAfterACancelIsTakenBack: a request that is cut off by a cancel may take effect a moment later.
func TestRequestThatLandsAfterACancelIsTakenBack(t *testing.T) {
	besideOperator(t, asking(setup{}), nil, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		seen := 0
		o.api.Inject(func(c context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 {
				if seen++; seen == 1 {
					go func() {
						pass(1500 * time.Millisecond)
						o.annotate(keyTarget, toLifecycle)
					}()

					cancel()
					<-c.Done()
					return errors.Join(cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
				}
			}

			return next()
		})

		_ = o.delegate(ctx, o.beside("1"), to(toLifecycle))
		pass(time.Minute)
		o.wantFree()
	})
}

// TestFreedLeaseIsNoReasonToLeaveTheRequest: nor is there anybody who would take a request back.
func TestFreedLeaseIsNoReasonToLeaveTheRequest(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		w := o.beside("1")
		go func() { pass(3 * time.Minute); o.DeleteLeaseAsPerson() }()
		err := o.delegate(context.Background(), w, to(toLifecycle))
		var f *engine.Failure
		errors.As(err, &f)
		if f == nil || f.State == "" {
			t.Errorf("no state: %v; target %q", err, o.annotation(keyTarget))
		}
	})
}

// TestCancelWhileTakingBackStillTakesBack: what was reached is asked for no more.
func TestCancelWhileTakingBackStillTakesBack(t *testing.T) {
	besideOperator(t, asking(setup{}), &played.Habits{Forgetful: true}, func(o *owned) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var healed time.Time
		patches := 0
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Mutation > 0 {
				if patches++; patches == 2 {
					healed = time.Now().Add(3 * time.Second)
					time.AfterFunc(time.Second, cancel)
				}

				if patches >= 2 && time.Now().Before(healed) {
					return cluster.ErrUnreachable
				}
			}

			return next()
		})

		w := o.beside("1")
		_ = o.delegate(ctx, w, to(toLifecycle))
		o.wantFree()
	})
}
