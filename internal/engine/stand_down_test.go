// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// pullsSlowly makes the pull of a node's own turn take its time; the one before
// it brings the images onto all nodes.
func pullsSlowly(node string, pause time.Duration) ports.Interceptor {
	var pulls atomic.Int32

	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == "Pull" && call.Node == node && pulls.Add(1) == 2 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}

		return next(ctx)
	}
}

// untouched fails the test when a node was cordoned or installed.
func (r *rig) untouched(node string) {
	r.T.Helper()

	if spans := ofRole(r.spans(), node); len(spans) > 0 || r.installed()[node] {
		r.T.Errorf("%s was disturbed: %+v\n%s", node, spans, r.Judge.Text())
	}
}

// TestTurnThatHasNotTouchedItsNodeStandsDown: its image takes long to pull, and
// meanwhile the run must not begin another node.
func TestTurnThatHasNotTouchedItsNodeStandsDown(t *testing.T) {
	const pull = 20 * time.Minute

	broken := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}

	t.Run("after a failure, at once", func(t *testing.T) {
		inCluster(t, pairs(51, broken), func(r *rig) {
			w := r.Worker("run-1")
			w.Client.Intercept(pullsSlowly("worker-1", pull))

			begun := time.Now()
			failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrInstaller, "worker-0")

			if took := time.Since(begun); took > pull {
				t.Errorf("it took %s to stop", took)
			}

			if len(failed.Findings) > 0 || w.FailedNodes() != "worker-0" {
				t.Errorf("that it stood down is called a failure: %v", failed)
			}

			r.Sound()
			r.untouched("worker-1")
			r.stopped("worker-0", true)

			r.World().SetFaults(nil)
			r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
			r.At(toLifecycle)
		})
	})

	t.Run("when the time is up", func(t *testing.T) {
		inCluster(t, pairs(51), func(r *rig) {
			w := r.Worker("run-1")
			w.Client.Intercept(pullsSlowly("worker-1", pull))

			request := sharing(t, toLifecycle, "2")
			request.Deadline = 15 * time.Minute

			failed := failure(t, w.Apply(context.Background(), request), engine.ErrDeadline, "")
			if !strings.Contains(failed.State, "every node is in service") {
				t.Errorf("%v", failed)
			}

			r.Sound()
			r.untouched("worker-1")
			r.stopped("", false)
			r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
			r.At(toLifecycle)
			r.Once()
		})
	})
}

// TestNothingStartsBesideATurnThatIsSeenToFail: its node is long on its way back
// with the old system, and nobody doubts how that ends.
func TestNothingStartsBesideATurnThatIsSeenToFail(t *testing.T) {
	for name, given := range map[string]struct {
		from, to string
		kind     error
		faults   []model.Fault
	}{
		"fell back": {fromLifecycle, toLifecycle, engine.ErrFallback, []model.Fault{
			{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
			{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1, For: 15 * time.Minute},
			{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 4 * time.Minute},
		}},
		"installer of the legacy API": {fromLegacy, toLegacy, engine.ErrInstaller, []model.Fault{
			{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1},
			{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 8 * time.Minute},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			roll := pairs(53, given.faults...)
			roll.Talos = given.from

			inCluster(t, roll, func(r *rig) {
				_ = failure(t, r.Worker("run-1").Apply(context.Background(), sharing(t, given.to, "2")), given.kind, "worker-0")
				r.Sound()
				r.stopped("worker-0", false)

				if nodes := r.installed(); len(nodes) != 2 {
					t.Errorf("moved %v, want the two that were on their way\n%s", nodes, r.Judge.Text())
				}
			})
		})
	}
}

// TestInstallThatNobodyKnowsOfHoldsOthersBack: the reply was lost, and no node
// begins before the reboot has shown that the install took. Then all go on.
func TestInstallThatNobodyKnowsOfHoldsOthersBack(t *testing.T) {
	inCluster(t, pairs(57), func(r *rig) {
		var lost atomic.Bool

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)
			if err == nil && call.Method == "Install" && call.Node == "worker-0" && !lost.Swap(true) {
				return cluster.ErrOutcomeUnknown
			}

			return err
		})

		r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 10 * time.Minute}})
		r.Must(w, sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()

		doubtful := ofRole(r.spans(), "worker-0")[0]
		for _, other := range ofRole(r.spans(), "worker") {
			if other.begin > doubtful.begin+300 && other.begin < doubtful.end {
				t.Errorf("%s was begun while nobody knew of worker-0: %+v", other.node, r.spans())
			}
		}
	})
}
