// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	played "github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestForgottenTargetIsTakenBack: by a run that died, or by an operator that does not clean up.
func TestForgottenTargetIsTakenBack(t *testing.T) {
	t.Run("reached", func(t *testing.T) {
		besideOperator(t, asking(setup{}), &played.Habits{Forgetful: true}, func(o *owned) {
			o.annotate(keyTarget, toLifecycle) // by a run that died
			pass(time.Hour)
			o.AllRun(toLifecycle)
			if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
				t.Error(err)
			}

			o.wantFree()
		})
	})

	t.Run("intermediate", func(t *testing.T) {
		besideOperator(t, asking(setup{Options: model.Options{Talos: "1.13.4", Kubernetes: "1.33.4"}}), &played.Habits{Forgetful: true}, func(o *owned) {
			request := to("1.13.4")
			request.Target.Kubernetes = version.MustParse("1.35.2")
			request.Policy.AllowIntermediate = true
			ctx, end := context.WithCancel(context.Background())
			defer end()
			killed := newStrike(dieBefore, atWill, end)
			w := o.beside("1")
			w.Client.Intercept(killed.Intercept)
			o.dead(killed, nil)

			go func() { pass(3 * time.Minute); killed.Kill() }()

			if err := o.delegate(ctx, w, request); err == nil {
				t.Error("it was not killed")
			}

			o.api.Inject(nil)
			pass(2 * time.Hour)
			for range 2 {
				if err := o.delegate(context.Background(), o.beside("2"), request); err != nil {
					t.Errorf("does not converge: %v", err)
				}
			}

			o.wantFree()
		})
	})
}

// TestWhatHappensToTheObjectEndsTheFollowing: the object is deleted, held, or asks for something else.
func TestWhatHappensToTheObjectEndsTheFollowing(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(o *owned)
		says string
	}{
		"deleted":  {func(o *owned) { _ = o.api.Delete(o.of, "example.org/keep") }, "is being deleted"},
		"held":     {func(o *owned) { o.annotate(keyHold, "maintenance") }, "maintenance"},
		"replaced": {func(o *owned) { o.annotate(keyTarget, "1.13.6") }, "1.13.6"},
	} {
		t.Run(name, func(t *testing.T) {
			besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
				go func() { pass(3 * time.Minute); test.do(o) }()
				begun := time.Now()
				err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
				took := time.Since(begun)
				if err == nil || took > 10*time.Minute || !strings.Contains(err.Error(), test.says) {
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// TestDeadHoldIsEndedHoweverHardItIs: one read fails just then.
func TestDeadHoldIsEndedHoweverHardItIs(t *testing.T) {
	besideOperator(t, asking(setup{}), &played.Habits{}, func(o *owned) {
		o.annotate(keyHold, cluster.RunPrefix+"dead")
		reads := 0
		o.api.Inject(func(_ context.Context, op played.Operation, next func() error) error {
			if op.By == "client" && op.Verb == "get" && op.Of.Kind != "Secret" {
				if reads++; reads == 3 {
					return cluster.ErrUnreachable
				}
			}

			return next()
		})

		if err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle)); err != nil {
			t.Errorf("%v; hold %q", err, o.annotation(keyHold))
		}
	})
}

// TestOperatorAtWorkOverAnOpenEntryIsFollowed: a direct run was killed in the middle of a node, and somebody had the operator go on.
func TestOperatorAtWorkOverAnOpenEntryIsFollowed(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, end := context.WithCancel(context.Background())
		defer end()
		o.killed(ctx, end, newStrike(dieAfter, 9, end))
		o.annotate(keyHold, "")
		o.annotate(keyStatus, "")
		o.annotate(keyTarget, toLifecycle)
		pass(30 * time.Second)
		begun := time.Now()
		err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle))
		t.Logf("after %s: %v", time.Since(begun), err)
		if err != nil && strings.Contains(err.Error(), "the cluster is not") {
			t.Errorf("worker-0 runs %s", o.State("worker-0").Talos)
		}
	})
}

// TestDelegateAfterADirectRunThatDied: its word "in-progress" stands on the object.
func TestDelegateAfterADirectRunThatDied(t *testing.T) {
	besideOperator(t, setup{}, &played.Habits{}, func(o *owned) {
		ctx, end := context.WithCancel(context.Background())
		defer end()
		w := o.publishing("0")
		killed := harness.NewStrike(dieBefore, func(call ports.Call) bool { return call.Method == "Cordon" && call.Node == "worker-1" }, end)
		w.Client.Intercept(killed.Intercept)
		o.dead(killed, nil)

		_ = w.apply(ctx, to(toLifecycle))
		o.api.Inject(nil)

		for range 2 {
			if err := o.delegate(context.Background(), o.beside("2"), to(toLifecycle)); err != nil {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestStaleFailureIsNotBelieved: there is no operator, and a node joins meanwhile.
func TestStaleFailureIsNotBelieved(t *testing.T) {
	besideOperator(t, setup{}, nil, func(o *owned) {
		o.annotate(keyStatus, "failed")
		o.annotate(keyMessage, "Talos upgrade failed: last week")
		go func() {
			pass(2 * time.Minute)
			if _, err := o.World().AddNode(model.NodeOptions{Name: "worker-9", Role: model.Worker, Talos: toLifecycle, Kubernetes: kubernetes}); err != nil {
				t.Error(err)
			}
		}()

		err := o.delegate(context.Background(), o.beside("1"), to(toLifecycle))
		if err == nil || strings.Contains(err.Error(), "says that it failed") {
			t.Errorf("%v", err)
		}
	})
}
