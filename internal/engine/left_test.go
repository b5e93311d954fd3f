// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// leaves fails the test unless the failure says exactly how the cluster is left.
func leaves(t *testing.T, failed *engine.Failure, want string) {
	t.Helper()

	if failed.State != want {
		t.Errorf("the cluster is said to be left like this: %s\nwant: %s", failed.State, want)
	}
}

const worker0Unfinished = "worker-0 is left in the middle of its upgrade and is recorded in the journal; the next run begins with it. " +
	"No other node is being upgraded"

func TestFailureNamesNodesThatAnotherTurnLeftUnfinished(t *testing.T) {
	dead := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}

	t.Run("deadline", func(t *testing.T) {
		inCluster(t, pairs(163, dead), func(r *rig) {
			request := sharing(t, toLifecycle, "2")
			request.Deadline = 3 * time.Minute

			failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), engine.ErrDeadline, "worker-0")
			leaves(t, failed, worker0Unfinished+"; all others are in service.")
		})
	})

	t.Run("obstacle", func(t *testing.T) {
		inCluster(t, pairs(167), func(r *rig) {
			w := r.Worker("run-1")
			r.during(w, "Install", "worker-1", func() { r.World().SetFaults(append(silent("worker-4"), dead)) })

			failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrGuard, "worker-4")
			leaves(t, failed, "The node runs as before and is not cordoned by this run. "+worker0Unfinished+"; all others are in service.")
		})
	})

	t.Run("another turn", func(t *testing.T) {
		broken := model.Fault{Node: "worker-1", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}

		inCluster(t, pairs(53, dead, broken), func(r *rig) {
			failed := failure(t, r.Worker("run-1").Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrInstaller, "worker-1")
			if !strings.HasSuffix(failed.State, worker0Unfinished+"; all others are in service.") {
				t.Errorf("it does not say how worker-0 is left: %v", failed)
			}
		})
	})
}

func TestFailureNamesNodesThatAreNotInService(t *testing.T) {
	inCluster(t, pairs(51, model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}), func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Install", "worker-0", func() {
			if err := r.CordonAsPerson("worker-4", true); err != nil {
				t.Error(err)
			}
		})

		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrInstaller, "worker-0")
		if want := "No other node is being upgraded. Not in service: worker-4 (cordoned)."; !strings.HasSuffix(failed.State, want) {
			t.Errorf("the cluster is said to be left like this: %s", failed.State)
		}
	})
}

// TestFallbackIsInServiceOnlyWhenItIs: the kubelet does not come up with the old
// system either.
func TestFallbackIsInServiceOnlyWhenItIs(t *testing.T) {
	inCluster(t, pairs(53, model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}), func(r *rig) {
		var once sync.Once

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			// The first boot is the one that fails.
			returned := len(r.Judge.Of(history.KindBoot)) > 1 && r.State("worker-0").Ready

			if call.Method == "Node" && call.Node == "worker-0" && returned {
				once.Do(func() {
					r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady}})
				})
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), engine.ErrFallback, "worker-0")
		leaves(t, failed, "The node runs its old system again, but did not come back into service. No other node is being upgraded; all others are in service.")
	})
}

// TestLostLeaseSpeaksForItsOwnRunOnly: what nodes are doing is no longer ours to
// say.
func TestLostLeaseSpeaksForItsOwnRunOnly(t *testing.T) {
	inCluster(t, pairs(59), func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Reboot", "worker-1", func() {
			if err := r.HoldLease("intruder"); err != nil {
				t.Error(err)
			}
		})

		var failed *engine.Failure
		if err := w.Apply(context.Background(), sharing(t, toLifecycle, "2")); !errors.As(err, &failed) || !errors.Is(err, engine.ErrLeaseLost) {
			t.Fatalf("got %v, want the loss of the lease", err)
		}

		if !strings.HasSuffix(failed.State, "No other node is being upgraded by this run. That is how it was when the lease was lost; this run has not looked since.") || strings.Contains(failed.State, "in service") {
			t.Errorf("the cluster is said to be left like this: %s", failed.State)
		}
	})
}
