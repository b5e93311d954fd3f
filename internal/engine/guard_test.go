// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestGuard_CancelEndsAnyWait: what is waited for may take long, and a
// person who cancels does not wait for it.
func TestGuard_CancelEndsAnyWait(t *testing.T) {
	t.Parallel()

	closedFor := func(node string) engine.Request {
		return gated(&userGate{timeout: time.Hour, answer: func(asked string) (bool, string, error) { return asked != node, "closed", nil }})
	}

	for name, given := range map[string]struct {
		setup   setup
		prepare func(*rig)
		request func() engine.Request
		// at is when it is cancelled.
		at time.Duration
	}{
		"a budget with nothing to give": {
			prepare: func(r *rig) {
				r.AddApp("web", 3, &apiserver.Budget{MinAvailable: 3})
				r.StartPod(apiserver.PodSpec{App: "web", Node: "worker-0", NotReady: true})
			},
			request: func() engine.Request { return to(toLifecycle) }, at: time.Minute,
		},
		"a gate before the roll": {request: func() engine.Request { return closedFor("") }, at: 10 * time.Minute},
		"a gate before a node":   {request: func() engine.Request { return closedFor("worker-1") }, at: 20 * time.Minute},
		"a snapshot that stalls": {
			setup:   faulty(model.AnyNode, model.StepEtcdSnapshot, model.EffectStall),
			request: func() engine.Request { return saving(ports.NewVault()) }, at: 30 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.setup, func(r *rig) {
				if given.prepare != nil {
					given.prepare(r)
				}

				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				var cancelled time.Time

				time.AfterFunc(given.at, func() {
					cancelled = time.Now()

					cancel()
				})

				err := r.Worker("run-1").Apply(ctx, given.request())

				var failure *say.Failure
				if !errors.As(err, &failure) || !errors.Is(err, context.Canceled) || !strings.Contains(strings.ToLower(failure.Summary), "cancelled") {
					t.Errorf("got %v, want the cancellation", err)
				}

				if took := time.Since(cancelled); took > 15*time.Second {
					t.Errorf("it took %s to end", took)
				}

				r.Sound()
				r.Tidy()

				for _, event := range r.Judge.Of(history.KindCordon) {
					if state := r.Judge.Verdict().Nodes[event.Node]; state.Cordoned {
						t.Errorf("%s is left cordoned", event.Node)
					}
				}
			})
		})
	}
}
