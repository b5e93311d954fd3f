// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestWaitingForOthersIsNotTakenFromTheTimeOfANode: where a look takes long and
// many workers queue for their cordons, the last of them still has all of its
// time once it is cordoned.
func TestWaitingForOthersIsNotTakenFromTheTimeOfANode(t *testing.T) {
	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 40, Seed: 41}, Judging: []checker.Option{checker.MaxUnavailable(39)}}

	inCluster(t, given, func(r *rig) {
		queued := r.Worker("run-1")
		queued.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "StaticPods" {
				if err := engine.RealClock().Sleep(ctx, 12*time.Second); err != nil {
					return err
				}
			}

			return next(ctx)
		})

		request := sharing(t, toLifecycle, "39")
		request.Policy.NodeTimeout = 10 * time.Minute

		r.Must(queued, request)
		r.At(toLifecycle)
		r.Sound()
	})
}

// TestRetryAfterAFallbackIsNotDoubted: a node that fell back in an earlier run,
// was rebooted by a person and is to be tried again holds nobody else back.
func TestRetryAfterAFallbackIsNotDoubted(t *testing.T) {
	inCluster(t, pairs(53, model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}), func(r *rig) {
		if err := r.Worker("run-1").Apply(context.Background(), sharing(t, toLifecycle, "2")); err == nil {
			t.Fatal("the run whose node fell back reports success")
		}

		r.World().SetFaults(nil)

		request := r.persistent(toLifecycle)
		request.Policy.MaxUnavailable = sharing(t, toLifecycle, "2").Policy.MaxUnavailable

		before := r.State("worker-0").BootID
		if _, err := r.World().Reboot(context.Background(), "worker-0", model.RebootDefault); err != nil {
			t.Fatal(err)
		}

		r.Until("worker-0 to be back", 20*time.Minute, func() bool { return r.State("worker-0").BootID != before && r.State("worker-0").Ready })

		again := r.Worker("run-2")
		again.Client.Intercept(pullsSlowly("worker-0", 15*time.Minute))

		begun := time.Now()
		r.Must(again, request)
		r.At(toLifecycle)
		r.Sound()

		if last := lastBegun(again, "worker-0", begun); last > 12*time.Minute {
			t.Errorf("the last of the other workers began after %s, while worker-0 was only pulling", last)
		}
	})
}

// lastBegun is how long after a time the last worker but the given one had its
// turn.
func lastBegun(w *worker, but string, since time.Time) time.Duration {
	var last time.Duration

	for _, event := range w.Events() {
		if event.Kind == cluster.EventNodeStarted && event.Node != but && strings.HasPrefix(event.Node, "worker-") {
			last = event.Time.Sub(since)
		}
	}

	return last
}
