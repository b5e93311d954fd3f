// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// pairs is a cluster whose workers may move two at a time.
func pairs(seed uint64, faults ...model.Fault) setup {
	return setup{
		Options: model.Options{ControlPlanes: 3, Workers: 5, Seed: seed, Faults: faults},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}
}

// installed are the nodes on which an installer of ours has run.
func (r *rig) installed() map[string]bool {
	nodes := map[string]bool{}
	for _, event := range r.Judge.Of(history.KindInstall) {
		nodes[event.Node] = true
	}

	return nodes
}

func TestFailureLetsOthersFinishAndStartsNone(t *testing.T) {
	slow := model.Fault{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 10 * time.Minute}
	broken := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}

	inCluster(t, pairs(51, broken, slow), func(r *rig) {
		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrInstaller, "worker-0")
		r.Sound()
		r.stopped("worker-0", true)

		if state := r.State("worker-1"); state.Talos != toLifecycle || state.Unschedulable {
			t.Errorf("the node that was on its way did not finish: %+v", state)
		}

		if nodes := r.installed(); len(nodes) != 2 {
			t.Errorf("something was started after the failure: %v", nodes)
		}

		if len(failed.Findings) != 0 {
			t.Errorf("another failure is named: %v", failed)
		}

		r.World().SetFaults(nil)
		r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
	})
}

func TestSecondFailureIsNamedInTheFirst(t *testing.T) {
	faults := []model.Fault{
		{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1},
		{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
	}

	inCluster(t, pairs(53, faults...), func(r *rig) {
		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), engine.ErrInstaller, "worker-0")
		r.Sound()

		if detail := failed.Detail(); !strings.Contains(detail, "worker-1: ") || !strings.Contains(detail, "fell back") {
			t.Errorf("the second failure is not named: %s", detail)
		}

		if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warnings, "worker-1") {
			t.Errorf("nobody was warned of the second failure: %s", warnings)
		}

		if nodes := w.FailedNodes(); nodes != "worker-0,worker-1" {
			t.Errorf("observers were told of the failure of %q, want worker-0,worker-1", nodes)
		}

		r.World().SetFaults(nil)

		request := r.persistent(toLifecycle)
		request.Policy.MaxUnavailable = sharing(t, toLifecycle, "2").Policy.MaxUnavailable
		r.Must(r.Worker("run-2"), request)
		r.At(toLifecycle)
	})
}

// TestLeaseLostWithTwoOnTheirWayStopsBoth wants nothing done by the run from a
// moment after the loss on, wherever its turns are.
func TestLeaseLostWithTwoOnTheirWayStopsBoth(t *testing.T) {
	for _, moment := range []time.Duration{95 * time.Second, 130 * time.Second, 170 * time.Second, 5 * time.Minute} {
		t.Run(moment.String(), func(t *testing.T) {
			inCluster(t, pairs(59), func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), sharing(t, toLifecycle, "2")) }()

				time.Sleep(moment)

				if err := r.HoldLease("intruder"); err != nil {
					t.Fatal(err)
				}

				taken := time.Now()

				if err := <-ended; !errors.Is(err, engine.ErrLeaseLost) || !strings.Contains(err.Error(), "intruder") {
					t.Errorf("got %v, want the loss of the lease to intruder", err)
				}

				// The renewal finds out within its interval, and everything ends
				// as after a cancel.
				if took := time.Since(taken); took > 10*time.Second+cancelMost {
					t.Errorf("it took %s to stop\n%s", took, r.Judge.Text())
				}

				if err := r.HoldLease(""); err != nil {
					t.Fatal(err)
				}

				r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
				r.AllRun(toLifecycle)
				r.Sound()
			})
		})
	}
}

// TestCancelWithTwoOnTheirWayTidiesUpBoth cancels a parallel roll every few
// seconds of its length.
func TestCancelWithTwoOnTheirWayTidiesUpBoth(t *testing.T) {
	stride := 7 * time.Second
	if testing.Short() || raceEnabled {
		stride = time.Minute
	}

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			for moment := 80 * time.Second; moment < 9*time.Minute && !t.Failed(); moment += stride {
				given := pairs(61)
				given.Talos = hop.from

				inCluster(t, given, func(r *rig) { r.cancelAt(moment, sharing(t, hop.to, "2")) })

				if t.Failed() {
					t.Errorf("cancelled after %s", moment)
				}
			}
		})
	}
}

// TestCrashWithTwoOnTheirWayThenApplyAgainConverges is the sweep of crashes over
// a parallel roll.
func TestCrashWithTwoOnTheirWayThenApplyAgainConverges(t *testing.T) {
	stride := 3
	if testing.Short() || raceEnabled {
		stride = 23
	}

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			given := pairs(67)
			given.Talos, given.Workers = hop.from, 4
			request := sharing(t, hop.to, "2")
			methods := mutationsOf(t, given, request)

			for mutation := 1; mutation <= len(methods) && !t.Failed(); mutation += stride {
				for _, kind := range harness.Crashes() {
					if kind != dieDuring || lasts(methods[mutation-1]) {
						crashOnce(t, given, request, kind, mutation)
					}
				}
			}
		})
	}
}

// TestWorkerThatHasNoRoomStandsBack: where a third worker falls ill after two
// turns were started and before the second one has cordoned its node, that one
// waits for the first instead of failing.
func TestWorkerThatHasNoRoomStandsBack(t *testing.T) {
	inCluster(t, pairs(71), func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(r.fallsIll("worker-4"))

		r.Must(w, sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()

		if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, "worker-1 has to wait") {
			t.Errorf("worker-1 did not stand back: %s", waits)
		}
	})
}

// fallsIll makes a worker not ready as soon as worker-0 is cordoned, and holds
// worker-1 up on its way to the cordon until that shows.
func (r *rig) fallsIll(node string) ports.Interceptor {
	var pulls atomic.Int32

	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := next(ctx)

		switch {
		case call.Method == "Cordon" && call.Node == "worker-0":
			r.World().SetFaults([]model.Fault{{Node: node, Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1, For: 6 * time.Minute}})
		case call.Method == "Pull" && call.Node == "worker-1" && pulls.Add(1) == 2:
			time.Sleep(80 * time.Second)
		}

		return err
	}
}

// TestTwoTurnsDoNotBothTakeTheLastPlace: a worker falls ill when two turns are
// about to cordon, and there is room for one of them. Guards take their time, so
// that each turn would see the other one's node available still.
func TestTwoTurnsDoNotBothTakeTheLastPlace(t *testing.T) {
	const thought, faded, atOnce = 2 * time.Second, 80 * time.Second, 8

	inCluster(t, pairs(149), func(r *rig) {
		var pulls atomic.Int32

		w := r.Worker("run-1")
		w.HoldUpGuards(func() { time.Sleep(thought) })
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)

			if call.Method != "Pull" {
				return err
			}

			// Every node pulls before the first turn.
			if number := pulls.Add(1); number == atOnce+1 || number == atOnce+2 {
				r.World().SetFaults([]model.Fault{{Node: "worker-4", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1}})
				time.Sleep(faded)
			}

			return err
		})

		r.Must(w, sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()

		if most(ofRole(r.spans(), "worker")) != 2 {
			t.Errorf("no two workers moved side by side: %+v", r.spans())
		}
	})
}

// TestNodeOnItsWayThatFallsSilentDoesNotHoldBackOthers: a worker that is being
// drained for long, and does not answer meanwhile, is its own turn's affair.
func TestNodeOnItsWayThatFallsSilentDoesNotHoldBackOthers(t *testing.T) {
	inCluster(t, pairs(151), func(r *rig) {
		r.AddPod("precious", "worker-0", &ports.Budget{MinAvailable: 1})

		request := undrained(sharing(t, toLifecycle, "2"))
		request.Policy.Drain.Timeout = 25 * time.Minute

		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-0", func() {
			faults := silent("worker-0")
			faults[0].Times, faults[0].For = 1, 12*time.Minute
			r.World().SetFaults(faults)
			_, _ = r.World().MachineStatus(context.Background(), "worker-0")
			time.AfterFunc(15*time.Minute, func() { r.RemoveBudget("precious") })
		})

		r.Must(w, request)
		r.At(toLifecycle)
		r.Once()

		slow := ofRole(r.spans(), "worker-0")[0]
		for _, other := range ofRole(r.spans(), "worker") {
			if other.end > slow.end {
				t.Errorf("%s was held back: %+v", other.node, r.spans())
			}
		}
	})
}

// TestLastOneGivesItsPlaceBackThatOthersUsedUp: three workers are cordoned, as many
// as may be unavailable, and then somebody cordons a fourth. The last of the three
// goes back into service, without anything having been installed, and has its turn
// when there is room again.
func TestLastOneGivesItsPlaceBackThatOthersUsedUp(t *testing.T) {
	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 6, Seed: 217},
		Judging: []checker.Option{checker.MaxUnavailable(3)},
	}

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 9, &ports.Budget{MinAvailable: 4})

		w := r.Worker("run-1")
		leave, back := cordoned(r, "worker-5")

		var (
			cordons atomic.Int32
			last    string
		)

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)

			if call.Method == "Cordon" && cordons.Add(1) == 3 {
				last = call.Node
				leave()
			}

			return err
		})

		r.Must(w, sharing(t, toLifecycle, "3"))
		back()
		r.At(toLifecycle)
		r.Once()

		spans := ofRole(r.spans(), last)
		if len(spans) != 2 || spans[0].end-spans[0].begin > 60 {
			t.Errorf("%s did not give its place back: %+v", last, r.spans())
		}

		if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, last+" has to wait") {
			t.Errorf("nobody was told that %s waits: %s", last, waits)
		}
	})
}
