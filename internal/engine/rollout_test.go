// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// sharing is a request that lets so many workers be unavailable.
func sharing(t testing.TB, target, share string) engine.Request {
	t.Helper()

	parsed, err := cluster.ParseShare(share)
	if err != nil {
		t.Fatal(err)
	}

	request := to(target)
	request.Policy.MaxUnavailable = parsed

	return request
}

// span is the time that a node was out of service, in seconds.
type span struct {
	node       string
	begin, end float64
}

// spans are the times from each cordon of ours to the uncordon after it, in
// order of their beginning.
func (r *rig) spans() []span {
	r.T.Helper()

	var found []span

	for _, event := range r.Judge.Of(history.KindCordon) {
		if event.Detail["by"] != "client" {
			continue
		}

		if event.Detail["unschedulable"] == "true" {
			found = append(found, span{node: event.Node, begin: event.Sim, end: r.World().Now().Seconds()})

			continue
		}

		for index := range found {
			if found[index].node == event.Node && found[index].end > event.Sim {
				found[index].end = event.Sim
			}
		}
	}

	return found
}

// most is how many spans overlapped at a time.
func most(spans []span) int {
	highest := 0

	for _, one := range spans {
		count := 0

		for _, other := range spans {
			if other.begin <= one.begin && one.begin < other.end {
				count++
			}
		}

		highest = max(highest, count)
	}

	return highest
}

// ofRole keeps the spans of the nodes whose names begin with a prefix.
func ofRole(spans []span, prefix string) []span {
	return slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return !strings.HasPrefix(s.node, prefix) })
}

func TestParallel_WorkersMoveSideBySide(t *testing.T) {
	t.Parallel()

	for _, given := range []struct {
		share    string
		workers  int
		together int
		from, to string
	}{
		{"2", 5, 2, fromLifecycle, toLifecycle},
		{"50%", 6, 3, fromLifecycle, toLifecycle},
		{"50%", 6, 3, fromLegacy, toLegacy},
		{"30%", 5, 1, fromLifecycle, toLifecycle},
		// One stays for the pods.
		{"9", 4, 3, fromLifecycle, toLifecycle},
	} {
		t.Run(fmt.Sprintf("%s of %d from %s", given.share, given.workers, given.from), func(t *testing.T) {
			judged := setup{
				Options: model.Options{ControlPlanes: 3, Workers: given.workers, Talos: given.from, Seed: 41},
				Judging: []checker.Option{checker.MaxUnavailable(given.together)},
			}

			inCluster(t, judged, func(r *rig) {
				r.AddApp("web", 6, &apiserver.Budget{MinAvailable: 2})
				r.Must(r.Worker("run-1"), sharing(t, given.to, given.share))
				r.At(given.to)
				r.Once()
				r.Settled(given.to)

				if together := most(ofRole(r.spans(), "worker")); together != given.together {
					t.Errorf("%d workers moved at a time, want %d: %+v", together, given.together, r.spans())
				}

				if together := most(r.spans()); together > given.together {
					t.Errorf("a control plane moved beside something else: %+v", r.spans())
				}
			})
		})
	}
}

// TestParallel_SlotIsRefilledWithoutBatches: a node that takes its time holds back
// nobody but itself.
func TestParallel_SlotIsRefilledWithoutBatches(t *testing.T) {
	t.Parallel()

	slow := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 15 * time.Minute}
	judged := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 5, Seed: 43, Faults: []model.Fault{slow}},
		Judging: []checker.Option{checker.MaxUnavailable(2)},
	}

	inCluster(t, judged, func(r *rig) {
		r.Must(r.Worker("run-1"), sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()

		spans := r.spans()
		held := ofRole(spans, "worker-0")

		if len(held) != 1 || len(ofRole(spans, "worker")) != 5 {
			t.Fatalf("%+v", spans)
		}

		for _, other := range ofRole(spans, "worker") {
			if other.end > held[0].end {
				t.Errorf("%s was held back by worker-0: %+v", other.node, spans)
			}
		}

		for _, control := range ofRole(spans, "cp") {
			if control.begin < held[0].end {
				t.Errorf("%s did not wait for worker-0: %+v", control.node, spans)
			}
		}
	})
}

// TestParallel_WorkerThatIsAwayGoesFirstAndCostsItsPlace is about a worker that is
// not ready before anything is done to it, and becomes ready with its upgrade.
func TestParallel_WorkerThatIsAwayGoesFirstAndCostsItsPlace(t *testing.T) {
	t.Parallel()

	sick := model.Fault{Node: "worker-4", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1}
	judged := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 6, Seed: 47, Faults: []model.Fault{sick}},
		Judging: []checker.Option{checker.MaxUnavailable(3)},
	}

	inCluster(t, judged, func(r *rig) {
		r.AddApp("web", 6, &apiserver.Budget{MinAvailable: 3})
		time.Sleep(2 * time.Minute)

		r.Must(r.Worker("run-1"), sharing(t, toLifecycle, "50%"))
		r.At(toLifecycle)
		r.Once()

		spans := ofRole(r.spans(), "worker")
		if own := ofRole(spans, "worker-4"); len(own) != 1 || own[0].begin > spans[0].begin {
			t.Errorf("worker-4 was not among the first: %+v", spans)
		}

		if together := most(spans); together != 3 {
			t.Errorf("%d workers moved at a time, want 3: %+v", together, spans)
		}
	})
}

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

func TestParallel_FailureLetsOthersFinishAndStartsNone(t *testing.T) {
	t.Parallel()

	slow := model.Fault{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 10 * time.Minute}
	broken := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}

	inCluster(t, pairs(51, broken, slow), func(r *rig) {
		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrInstaller, "worker-0")
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

func TestParallel_SecondFailureIsNamedInTheFirst(t *testing.T) {
	t.Parallel()

	faults := []model.Fault{
		{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1},
		{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
	}

	inCluster(t, pairs(53, faults...), func(r *rig) {
		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), sharing(t, toLifecycle, "2")), say.ErrInstaller, "worker-0")
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

// TestParallel_LostLeaseStopsBothOnTheirWay wants nothing done by the run from a
// moment after the loss on, wherever its turns are.
func TestParallel_LostLeaseStopsBothOnTheirWay(t *testing.T) {
	t.Parallel()

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

				if err := <-ended; !errors.Is(err, say.ErrLeaseLost) || !strings.Contains(err.Error(), "intruder") {
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

// TestParallel_CancelTidiesUpBothOnTheirWay cancels a parallel roll every few
// seconds of its length.
func TestParallel_CancelTidiesUpBothOnTheirWay(t *testing.T) {
	t.Parallel()

	stride := 7 * time.Second
	if testing.Short() || raceEnabled {
		stride = time.Minute
	}

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const first, last = 80 * time.Second, 9 * time.Minute

			beside(t, int((last-first-1)/stride)+1, func(number int) {
				moment, given := first+time.Duration(number)*stride, pairs(61)
				given.Talos = hop.from

				inCluster(t, given, func(r *rig) { r.cancelAt(moment, sharing(t, hop.to, "2")) })

				if t.Failed() {
					t.Errorf("cancelled after %s", moment)
				}
			})
		})
	}
}

// TestParallel_CrashThenApplyAgainConverges is the sweep of crashes over
// a parallel roll.
func TestParallel_CrashThenApplyAgainConverges(t *testing.T) {
	t.Parallel()

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

			crashEach(t, mutationsOf(t, given, request), 1, stride, lasts, func(kind crash, mutation int) {
				crashOnce(t, given, request, kind, mutation)
			})
		})
	}
}

// TestParallel_WorkerThatHasNoRoomStandsBack: where a third worker falls ill after two
// turns were started and before the second one has cordoned its node, that one
// waits for the first instead of failing.
func TestParallel_WorkerThatHasNoRoomStandsBack(t *testing.T) {
	t.Parallel()

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

// TestParallel_TwoTurnsDoNotBothTakeTheLastPlace: a worker falls ill when two turns are
// about to cordon, and there is room for one of them. Cordons take their time, so
// that each turn sees the other one's node available still.
func TestParallel_TwoTurnsDoNotBothTakeTheLastPlace(t *testing.T) {
	t.Parallel()

	const thought, faded = 2 * time.Second, 80 * time.Second

	inCluster(t, pairs(149), func(r *rig) {
		var pulls [2]atomic.Int32

		inTurn := map[string]*atomic.Int32{"worker-0": &pulls[0], "worker-1": &pulls[1]}

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Cordon" {
				time.Sleep(thought)
			}

			err := next(ctx)

			if call.Method != "Pull" || inTurn[call.Node] == nil {
				return err
			}

			// Every node pulls before the first turn, and in its turn once more.
			if inTurn[call.Node].Add(1) == 2 {
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

// TestParallel_SilentNodeOnItsWayHoldsBackNobody: a worker that is being
// drained for long, and does not answer meanwhile, is its own turn's affair.
func TestParallel_SilentNodeOnItsWayHoldsBackNobody(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(151), func(r *rig) {
		r.AddPod("precious", "worker-0", &apiserver.Budget{MinAvailable: 1})

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

// TestParallel_LastOneGivesBackAPlaceThatOthersUsedUp: three workers are cordoned, as many
// as may be unavailable, and then somebody cordons a fourth. The last of the three
// goes back into service, without anything having been installed, and has its turn
// when there is room again.
func TestParallel_LastOneGivesBackAPlaceThatOthersUsedUp(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 6, Seed: 217},
		Judging: []checker.Option{checker.MaxUnavailable(3)},
	}

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 9, &apiserver.Budget{MinAvailable: 4})

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

// TestParallel_DeadlineLetsOthersFinish: when the time is up the nodes that are on their
// way finish, and none is started.
func TestParallel_DeadlineLetsOthersFinish(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(163), func(r *rig) {
		request := sharing(t, toLifecycle, "2")
		request.Deadline = 3 * time.Minute

		_ = failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrDeadline, "")
		r.Sound()
		r.stopped("", false)

		nodes := r.installed()
		for name := range nodes {
			if state := r.State(name); state.Talos != toLifecycle {
				t.Errorf("%s was left on Talos %s", name, state.Talos)
			}
		}

		if len(nodes) != 2 {
			t.Errorf("moved %v, want the two that were on their way", nodes)
		}

		r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestParallel_ObstacleBesideATurnIsWaitedOut: a worker that has not moved yet falls
// silent while another one takes its time. It is waited for when its own turn comes;
// when it does not answer, the run ends once the other one is done.
func TestParallel_ObstacleBesideATurnIsWaitedOut(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		silence time.Duration
		passes  bool
	}{
		"for a while": {4 * time.Minute, true},
		"for good":    {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			slow := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1, For: 20 * time.Minute}

			inCluster(t, pairs(167), func(r *rig) {
				w := r.Worker("run-1")
				r.during(w, "Install", "worker-1", func() {
					faults := append(silent("worker-4"), slow)
					faults[0].Times, faults[0].For = 1, given.silence
					r.World().SetFaults(faults)
				})

				err := w.Apply(context.Background(), sharing(t, toLifecycle, "2"))
				r.Sound()

				if state := r.State("worker-0"); state.Talos != toLifecycle || state.Unschedulable {
					t.Errorf("the node that was on its way did not finish: %+v", state)
				}

				if given.passes {
					if err != nil {
						t.Fatal(err)
					}

					r.At(toLifecycle)

					return
				}

				if failed := failure(t, err, say.ErrGuard, "worker-4"); !strings.HasSuffix(failed.State, "No other node is being upgraded; all others are in service.") {
					t.Errorf("%v", failed)
				}

				if nodes := r.installed(); len(nodes) != 4 || nodes["worker-4"] {
					t.Errorf("moved %v, want all workers but the silent one", nodes)
				}

				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "2"))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// refused fails the test unless an upgrade is refused for a check and changes
// nothing.
func (r *rig) refused(w *worker, request engine.Request, kind error, check string) {
	r.T.Helper()

	err := w.Apply(context.Background(), request)

	var failed *say.Failure
	if !errors.As(err, &failed) || !errors.Is(err, kind) {
		r.T.Fatalf("got %v, want it refused with %v", err, kind)
	}

	if check != "" && !slices.ContainsFunc(failed.Findings, func(f cluster.Finding) bool { return f.Check == check && f.Remedy != "" }) {
		r.T.Errorf("no finding of %s with a remedy: %+v", check, failed.Findings)
	}

	if _, mutating := w.Client.Calls(); mutating != 0 {
		r.T.Errorf("the refused run made %d mutating calls", mutating)
	}

	r.Sound()
}

// ofCluster is a request for a certain cluster.
func ofCluster(request engine.Request, id string) engine.Request {
	request.ClusterID = id

	return request
}

func TestRollout_RunsThatMustNotBeginChangeNothing(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		options model.Options
		roles   []string
		request engine.Request
		kind    error
		check   string
	}{
		"two members":          {model.Options{ControlPlanes: 2, Workers: 1}, nil, to(toLifecycle), say.ErrBlocked, "two-members"},
		"two members, legacy":  {model.Options{ControlPlanes: 2, Workers: 1, Talos: fromLegacy}, nil, to(toLegacy), say.ErrBlocked, "two-members"},
		"reader":               {model.Options{}, []string{"os:reader"}, to(toLifecycle), say.ErrBlocked, "roles"},
		"older than the nodes": {model.Options{Talos: "1.13.4"}, nil, to("1.13.2"), say.ErrBlocked, "versions"},
		"minor skipped":        {model.Options{Talos: "1.11.5"}, nil, to("1.13.4"), say.ErrBlocked, "versions"},
		"unpinned components":  {model.Options{Unpinned: true}, nil, to(toLifecycle), say.ErrBlocked, "component-images"},
		"another cluster":      {model.Options{}, nil, ofCluster(to(toLifecycle), "somebody-elses"), say.ErrWrongCluster, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: given.options}, func(r *rig) {
				w := r.Worker("run-1")
				if given.roles != nil {
					w.Client.WithRoles(given.roles...)
				}

				r.refused(w, given.request, given.kind, given.check)
			})
		})
	}
}

// during does something once, when a worker has made its first call of a method
// on a node.
func (r *rig) during(w *worker, method, node string, do func()) {
	var first sync.Once

	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := next(ctx)

		if call.Method == method && call.Node == node {
			first.Do(do)
		}

		return err
	})
}

func TestRollout_NodesThatJoinMoveLast(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-0", func() {
			if _, err := r.World().AddNode(model.NodeOptions{Role: model.Worker}); err != nil {
				t.Error(err)
			}
		})

		r.Must(w, to(toLifecycle))
		r.Sound()
		r.AllRun(toLifecycle)

		if nodes := r.Judge.Verdict().Nodes; len(nodes) != 6 || nodes["worker-2"].Installs != 1 {
			t.Errorf("the node that joined was not upgraded: %+v", nodes)
		}
	})
}

func TestRollout_NodesThatLeaveAreDropped(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3}}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-0", func() {
			if err := r.RemoveNode("worker-2"); err != nil {
				t.Error(err)
			}
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		if nodes := r.Judge.Verdict().Nodes; len(nodes) != 5 {
			t.Errorf("%d nodes are left, want 5", len(nodes))
		}
	})
}

// TestRollout_ControlPlaneIsDoneWhenItsPodsAreToldOf: after a boot Kubernetes shows the
// static pods as they were before, until the kubelet has come to them.
func TestRollout_ControlPlaneIsDoneWhenItsPodsAreToldOf(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 5, Workers: 1, Seed: 7}}, func(r *rig) {
		w := r.Worker("run-1")
		back := 0

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Uncordon" && strings.HasPrefix(call.Node, "cp-") {
				back++

				if !r.State(call.Node).PodsReported {
					t.Errorf("%s is put back into service, and Kubernetes shows its static pods as they were before the boot", call.Node)
				}
			}

			return next(ctx)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		if back != 5 {
			t.Errorf("%d control planes were put back into service, want 5", back)
		}
	})
}

// TestRollout_WaitsForPodsToBeToldOf: a control plane that somebody has rebooted is
// well, and only Kubernetes does not show it yet.
func TestRollout_WaitsForPodsToBeToldOf(t *testing.T) {
	t.Parallel()

	for _, given := range []struct {
		name  string
		never bool
	}{{"they are soon", false}, {"they never are", true}} {
		t.Run(given.name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Workers: 1, Seed: 7}}, func(r *rig) {
				client := r.Client("run-1")
				between := &liar{Client: client}
				w := r.WorkerOver(client, between, between)
				before := time.Now()

				if err := r.World().RebootByHand("cp-1", model.RebootDefault); err != nil {
					t.Fatal(err)
				}

				r.Until("cp-1 is back, and its pods are not told of", time.Hour, func() bool {
					state := r.State("cp-1")

					return state.BootedAt.After(before) && state.Ready && state.Kubelet.Ready && !state.PodsReported
				})

				if !given.never {
					r.Must(w, to(toLifecycle))
					r.At(toLifecycle)

					return
				}

				between.pods = func(pod *cluster.ComponentPod) {
					if pod.Node == "cp-1" && pod.Component.Static() {
						pod.Started = before
					}
				}

				r.refused(w, to(toLifecycle), say.ErrBlocked, cluster.CheckControlPlane)
			})
		})
	}
}

// TestRollout_PodsThatAreNotReadyForNoReasonAreWaitedFor: Kubernetes marks the pods of a node that missed its
// heartbeats, and the kubelet corrects that some seconds after it is back.
func TestRollout_PodsThatAreNotReadyForNoReasonAreWaitedFor(t *testing.T) {
	t.Parallel()

	crashing := "CrashLoopBackOff: exit code 1"

	for _, given := range []struct {
		name string
		// troubled has the components with a reason.
		troubled []cluster.Component
		marked   time.Duration
		request  engine.Request
		// within is how long the run may take; refused is whether it ends like that.
		within  time.Duration
		refused bool
	}{
		{name: "they are corrected soon", marked: 10 * time.Second, request: to(toLifecycle)},
		{name: "they stay like that", marked: 24 * time.Hour, request: to(toLifecycle), within: 4 * time.Minute, refused: true},
		{
			name: "there is a reason", troubled: cluster.Components(cluster.ControlPlane), marked: 10 * time.Second, request: to(toLifecycle),
			within: 5 * time.Second, refused: true,
		},
		{
			name: "there is a reason for one", troubled: []cluster.Component{cluster.Scheduler}, marked: 10 * time.Second, request: to(toLifecycle),
			within: 5 * time.Second, refused: true,
		},
		{name: "nothing is left to do", marked: 24 * time.Hour, request: to(fromLifecycle), within: 5 * time.Second},
	} {
		t.Run(given.name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Workers: 1, Seed: 7}}, func(r *rig) {
				client := r.Client("run-1")
				between := &liar{Client: client}
				w := r.WorkerOver(client, between, between)
				begun := time.Now()

				between.pods = func(pod *cluster.ComponentPod) {
					if pod.Node == "cp-1" && pod.Component.Static() && time.Since(begun) < given.marked {
						pod.Ready = false

						if slices.Contains(given.troubled, pod.Component) {
							pod.Trouble = crashing
						}
					}
				}

				if given.refused {
					r.refused(w, given.request, say.ErrBlocked, cluster.CheckControlPlane)
				} else {
					r.Must(w, given.request)
				}

				if took := time.Since(begun); given.within > 0 && took > given.within {
					t.Errorf("it took %s, want at most %s", took, given.within)
				}
			})
		})
	}
}

// TestRollout_StatusThatIsNotAvailableYetIsWaitedFor: the node behind the endpoint of the
// cluster cannot say for a while after its boot whether it is Ready. That is no news
// to anybody.
func TestRollout_StatusThatIsNotAvailableYetIsWaitedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Workers: 1, Seed: 7}}, func(r *rig) {
		const unavailable = `nodeReady: node "cp-1" status is not available yet`

		var (
			first  sync.Once
			back   time.Time
			before = r.State("cp-1").BootID
		)

		client := r.Client("run-1")
		w := r.WorkerOver(client, &liar{Client: client, machine: func(m *cluster.Machine) {
			if m.NodeName != "cp-1" || m.BootID == before || !m.Settled() {
				return
			}

			first.Do(func() { back = time.Now() })

			if time.Since(back) < 90*time.Second {
				m.Ready, m.Unmet = false, []string{unavailable}
			}
		}}, client)

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)

		waits := w.Texts(cluster.EventWaiting)
		if !slices.ContainsFunc(waits, func(text string) bool { return strings.Contains(text, unavailable) }) {
			t.Errorf("what is waited for is not said: %q", waits)
		}

		if warnings := w.Texts(cluster.EventWarning); len(warnings) > 0 {
			t.Errorf("warnings: %q", warnings)
		}
	})
}

// silent takes the API of a machine away for good.
func silent(node string) []model.Fault {
	return []model.Fault{{Node: node, Step: model.StepObserve, Effect: model.EffectUnreachable}}
}

func TestRollout_SilentControlPlaneStopsTheRunWhereItIs(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		after string
		armed bool
	}{
		"before the install": {"Cordon", false},
		"before the reboot":  {"Install", true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")
				r.during(w, given.after, "worker-0", func() { r.World().SetFaults(silent("cp-2")) })

				failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrGuard, "worker-0")
				if !strings.Contains(failed.Error(), "cp-2") {
					t.Errorf("the silent control plane is not named: %v", failed)
				}

				r.Sound()
				r.stopped("worker-0", given.armed)

				for _, call := range r.Judge.Of(history.KindRPC) {
					if strings.HasSuffix(call.Detail["method"], "/Reboot") {
						t.Errorf("rebooted %s without etcd being known", call.Node)
					}
				}

				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestRollout_ControlPlaneSilentForAWhileIsWaitedFor is about an armed node,
// whose whole time is worth waiting for.
func TestRollout_ControlPlaneSilentForAWhileIsWaitedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Install", "worker-0", func() {
			faults := silent("cp-2")
			faults[0].Times, faults[0].For = 1, 17*time.Minute
			r.World().SetFaults(faults)
		})

		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestRollout_EtcdAlarmStopsTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		first := r.Worker("run-1")

		// Before the run it would have been found by the preflight.
		r.during(first, "Cordon", "worker-0", func() {
			if err := r.World().SetEtcdAlarm("cp-1", "NOSPACE"); err != nil {
				t.Error(err)
			}
		})

		failed := failure(t, first.Apply(context.Background(), to(toLifecycle)), say.ErrGuard, "worker-0")
		if !strings.Contains(failed.Error(), "NOSPACE") {
			t.Errorf("the alarm is not named: %v", failed)
		}

		r.Sound()
		r.stopped("worker-0", false)

		if err := r.World().SetEtcdAlarm("cp-1", ""); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestRollout_DeadlineStopsBetweenNodes(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := to(toLifecycle)
		request.Deadline = 4 * time.Minute

		err := r.Worker("run-1").Apply(context.Background(), request)
		if !errors.Is(err, say.ErrDeadline) {
			t.Fatalf("got %v, want the deadline", err)
		}

		r.Sound()
		r.stopped("", false)
		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestRollout_ControlPlanesFirstWhenAsked(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := to(toLifecycle)
		request.Policy.Order = cluster.ControlPlanesFirst
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()

		var order []string
		for _, boot := range r.Judge.Of(history.KindBoot) {
			order = append(order, boot.Node)
		}

		if want := []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"}; !slices.Equal(order, want) {
			t.Errorf("moved in the order %v, want %v", order, want)
		}
	})
}

// TestRollout_NodeThatAnEarlierRunCordonedWaitsForTheOthers: it still runs its pods, so that a drain and a reboot take
// away what the budget leaves to the workers that somebody else cordoned.
func TestRollout_NodeThatAnEarlierRunCordonedWaitsForTheOthers(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		if err := r.CordonAsPerson("worker-1", true); err != nil {
			t.Fatal(err)
		}

		err := r.Worker("run-2").Apply(context.Background(), to(toLifecycle))
		if err == nil || !strings.Contains(err.Error(), "worker-1") {
			t.Errorf("got %v, want that worker-1 takes the place", err)
		}

		for name, node := range r.Judge.Verdict().Nodes {
			if node.Installs > 0 {
				t.Errorf("%s was installed", name)
			}
		}
	})
}
