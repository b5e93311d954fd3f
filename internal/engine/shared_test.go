// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestShared_ManyWorkersMoveSideBySide is about clusters so large, and so slow to
// answer, that all the looks before the cordons take longer than one turn waits
// for its guards.
func TestShared_ManyWorkersMoveSideBySide(t *testing.T) {
	t.Parallel()

	const latency = 6 * time.Second

	for workers, together := range map[int]int{20: 19, 70: 60} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 3, Workers: workers, Seed: 41},
				Judging: []checker.Option{checker.MaxUnavailable(together)},
			}

			inCluster(t, given, func(r *rig) {
				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "StaticPods" {
						time.Sleep(latency)
					}

					return next(ctx)
				})

				begun := time.Now()
				r.Must(w, sharing(t, toLifecycle, fmt.Sprint(together)))
				r.At(toLifecycle)
				r.Once()

				calls, mutating := w.Client.Calls()
				t.Logf("it took %s, %d calls and %d changes", time.Since(begun).Round(time.Second), calls, mutating)
			})
		})
	}
}

// TestShared_SlowMachinesHoldUpNobodyElse: the Talos API of a tenth of the workers takes its time
// for each answer. The others take as long as they do where all are quick.
func TestShared_SlowMachinesHoldUpNobodyElse(t *testing.T) {
	t.Parallel()

	slow := []string{"worker-3", "worker-13"}
	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 20, Seed: 43},
		Judging: []checker.Option{checker.MaxUnavailable(5)},
	}

	// longest is the longest time that one of the others took.
	longest := func(latency time.Duration) (most float64) {
		inCluster(t, given, func(r *rig) {
			w := r.Worker("run-1")
			w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
				if slices.Contains(slow, call.Node) && slices.Contains([]string{"Machine", "Vitals", "Pull"}, call.Method) {
					time.Sleep(latency)
				}

				return next(ctx)
			})

			r.Must(w, sharing(t, toLifecycle, "25%"))
			r.At(toLifecycle)
			r.Once()

			for _, one := range ofRole(r.spans(), "worker") {
				if !slices.Contains(slow, one.node) {
					most = max(most, one.end-one.begin)
				}
			}
		})

		return most
	}

	const patience = 10

	if quick, beside := longest(0), longest(4*time.Second); beside > quick+patience {
		t.Errorf("one of the others took %.0f s beside slow machines, and %.0f s beside quick ones", beside, quick)
	}
}

// TestShared_WaitingForOthersIsNotTakenFromNodeTimeout: where a look takes long and
// many workers queue for their cordons, the last of them still has all of its
// time once it is cordoned.
func TestShared_WaitingForOthersIsNotTakenFromNodeTimeout(t *testing.T) {
	t.Parallel()

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

// TestShared_RetryAfterAFallbackHoldsNobodyBack: a node that fell back in an earlier run,
// was rebooted by a person and is to be tried again holds nobody else back.
func TestShared_RetryAfterAFallbackHoldsNobodyBack(t *testing.T) {
	t.Parallel()

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

// until waits until a channel is closed, or returns the cause why ctx ended.
func until(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// TestShared_TurnThatHasNotTouchedItsNodeStandsDown: its image takes long to pull, and
// meanwhile the run must not begin another node.
func TestShared_TurnThatHasNotTouchedItsNodeStandsDown(t *testing.T) {
	t.Parallel()

	const pull = 20 * time.Minute

	broken := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}

	t.Run("after a failure, at once", func(t *testing.T) {
		inCluster(t, pairs(51, broken), func(r *rig) {
			w := r.Worker("run-1")
			w.Client.Intercept(pullsSlowly("worker-1", pull))

			begun := time.Now()
			failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrInstaller, "worker-0")

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

			failed := failure(t, w.Apply(context.Background(), request), say.ErrDeadline, "")
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

// TestShared_NothingStartsBesideATurnThatIsSeenToFail: its node is long on its way back
// with the old system, and nobody doubts how that ends.
func TestShared_NothingStartsBesideATurnThatIsSeenToFail(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		from, to string
		kind     error
		faults   []model.Fault
	}{
		"fell back": {fromLifecycle, toLifecycle, say.ErrFallback, []model.Fault{
			{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
			{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1, For: 15 * time.Minute},
			{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 4 * time.Minute},
		}},
		"installer of the legacy API": {fromLegacy, toLegacy, say.ErrInstaller, []model.Fault{
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

// TestShared_NothingBeginsBesideATurnThatIsToSendItsNodeBack: another turn comes to its node after that was decided,
// and before it is recorded.
func TestShared_NothingBeginsBesideATurnThatIsToSendItsNodeBack(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(59, neverReady("worker-0")), func(r *rig) {
		var (
			pulls   atomic.Int32
			held    atomic.Bool
			decides sync.Once
			decided = make(chan struct{})
		)

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch {
			case call.Method == "Pull" && call.Node == "worker-1" && pulls.Add(1) == 2:
				if err := until(ctx, decided); err != nil {
					return err
				}

				time.Sleep(5 * time.Second)
			case call.Method == "Logs" && call.Node == "worker-0":
				decides.Do(func() { close(decided) })
			case call.Method == "WriteJournal" && closed(decided) && !held.Swap(true):
				time.Sleep(15 * time.Second)
			}

			return next(ctx)
		})

		request := returning(sharing(t, toLifecycle, "2"))
		request.Policy.NodeTimeout = 10 * time.Minute

		_ = failure(t, w.Apply(context.Background(), request), say.ErrRolledBack, "worker-0")
		r.Sound()
		r.sentBack("worker-0", fromLifecycle)
		r.untouched("worker-1")

		if !held.Load() {
			t.Error("nothing was recorded before worker-0 was sent back")
		}
	})
}

// TestShared_UncertainInstallHoldsOthersBack: the reply was lost, and no node
// begins before the reboot has shown that the install took. Then all go on.
func TestShared_UncertainInstallHoldsOthersBack(t *testing.T) {
	t.Parallel()

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
