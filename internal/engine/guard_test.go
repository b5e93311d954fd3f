// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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

// TestGuard_LooksThatFailLeaveRoomForOthers: more looks before a cordon fail than there may be at a time, because
// nobody lists the nodes for a minute. All nodes are upgraded then.
func TestGuard_LooksThatFailLeaveRoomForOthers(t *testing.T) {
	t.Parallel()

	const outage, atATime = time.Minute, 4

	inCluster(t, setup{}, func(r *rig) {
		var (
			vitals, failed atomic.Int32
			away           atomic.Bool
		)

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			// They are asked before the run, and again before each look when the turn has come.
			if call.Method == "Vitals" && call.Node == "worker-0" && vitals.Add(1) == 2 {
				away.Store(true)
				time.AfterFunc(outage, func() { away.Store(false) })
			}

			if away.Load() && slices.Contains([]string{"Members", "NodesNow"}, call.Method) {
				if call.Method == "NodesNow" {
					failed.Add(1)
				}

				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()

		if failed.Load() <= atATime {
			t.Errorf("%d looks failed, want more than %d", failed.Load(), atATime)
		}
	})
}
