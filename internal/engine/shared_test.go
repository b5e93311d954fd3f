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

// label is a selector for one value of one label.
type label struct{ key, value string }

func (l label) Matches(labels map[string]string) bool { return labels[l.key] == l.value }

func (l label) String() string { return l.key + "=" + l.value }

// The labels of these tests.
var (
	restrained = label{"upgrade", "hold"}
	leading    = label{"upgrade", "first"}
	storage    = label{"pool", "storage"}
	compute    = label{"pool", "compute"}
)

// give labels nodes.
func (r *rig) give(l label, nodes ...string) {
	r.T.Helper()

	for _, node := range nodes {
		if err := r.LabelAsPerson(node, l.key, l.value); err != nil {
			r.T.Error(err)
		}
	}
}

// take takes a label from a node.
func (r *rig) take(l label, node string) {
	r.T.Helper()

	if err := r.LabelAsPerson(node, l.key, ""); err != nil {
		r.T.Error(err)
	}
}

// restraining is a request that leaves the nodes with the label alone.
func restraining(request engine.Request) engine.Request {
	request.Policy.SelectorOverrides = []cluster.SelectorOverride{{Selector: restrained, Hold: true}}

	return request
}

// led is a request that moves the workers with the label first.
func led(request engine.Request) engine.Request {
	request.Policy.CanarySelector = leading

	return request
}

// pooled is a request with a bound for each of two pools.
func pooled(t testing.TB, request engine.Request, inStorage, inCompute string) engine.Request {
	t.Helper()

	for _, pool := range []struct {
		name string
		by   label
		most string
	}{{"compute", compute, inCompute}, {"storage", storage, inStorage}} {
		parsed, err := cluster.ParseShare(pool.most)
		if err != nil {
			t.Fatal(err)
		}

		request.Policy.Pools = append(request.Policy.Pools, cluster.Pool{Name: pool.name, Selector: pool.by, MaxUnavailable: parsed})
	}

	return request
}

// inPool judges the pool of storage.
func inPool(most int) checker.Option {
	return checker.Pool("storage", storage.Matches, func(int) int { return most })
}

// labelled is a cluster of three control planes and so many workers, two of which may be
// unavailable at a time, with a judge that knows the labels.
func labelled(workers int, judging ...checker.Option) setup {
	return setup{
		Options: model.Options{ControlPlanes: 3, Workers: workers},
		Judging: append([]checker.Option{checker.MaxUnavailable(2), checker.HeldBy(restrained.Matches), checker.CanaryBy(leading.Matches)}, judging...),
	}
}

// event is something that happens right after a call on a node, the first one once the
// installer of another node has run, where there is one.
type event struct {
	method, node, installed string
	do                      func()
}

// happening has a run meet the events.
func (r *rig) happening(w *worker, events ...event) { w.Client.Intercept(r.meeting(events...)) }

// meeting lets the events happen.
func (r *rig) meeting(events ...event) ports.Interceptor {
	firsts := make([]sync.Once, len(events))

	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		err := next(ctx)

		for index, one := range events {
			if call.Method == one.method && call.Node == one.node && (one.installed == "" || r.installed()[one.installed]) {
				firsts[index].Do(one.do)
			}
		}

		return err
	}
}

// left fails the test unless exactly these nodes were left at what they ran.
func (r *rig) left(nodes ...string) {
	r.T.Helper()
	r.Sound()
	r.Tidy()

	for name, node := range r.Judge.Verdict().Nodes {
		want := toLifecycle
		if slices.Contains(nodes, name) {
			want = fromLifecycle
		}

		if node.Talos != want || node.Cordoned {
			r.T.Errorf("%s: %+v, want Talos %s and no cordon\n%s", name, node, want, r.Judge.Text())
		}
	}
}

func TestSelection_HoldsNodesAndLeavesThemNoWork(t *testing.T) {
	t.Parallel()

	for name, nodes := range map[string][]string{"worker": {"worker-2"}, "control plane": {"cp-1"}, "both": {"cp-2", "worker-0"}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, labelled(5), func(r *rig) {
				r.give(restrained, nodes...)

				request := restraining(sharing(t, toLifecycle, "2"))
				r.Must(r.Worker("run-1"), request)
				r.left(nodes...)

				if notes := r.Annotations(); notes["talos-status"] != "completed" || notes["talos-current"] != toLifecycle {
					t.Errorf("%v", notes)
				}

				again := r.Worker("run-2")
				r.Must(again, request)

				if _, mutating := again.Client.Calls(); mutating != 0 {
					t.Errorf("the next upgrade made %d mutating calls", mutating)
				}
			})
		})
	}
}

// TestSelection_LabelInMidRollHoldsWhatHasNotBegun: it comes while the first worker is
// upgraded, and right before the last look at the node itself, when its upgrade has begun
// and its node is as it was.
func TestSelection_LabelInMidRollHoldsWhatHasNotBegun(t *testing.T) {
	t.Parallel()

	for name, at := range map[string]event{
		"another node is cordoned": {method: "Cordon", node: "worker-0"},
		"the node is judged":       {method: "Vitals", node: "worker-2", installed: "worker-1"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, labelled(4), func(r *rig) {
				w := r.Worker("run-1")
				at.do = func() { r.give(restrained, "worker-2") }
				r.happening(w, at)

				request := restraining(to(toLifecycle))
				r.Must(w, request)
				r.left("worker-2")

				if told := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(told, `worker-2 is held from now on (selector_overrides "upgrade=hold")`) {
					t.Errorf("the run did not say that it leaves the node: %s", told)
				}

				r.take(restrained, "worker-2")
				r.Must(r.Worker("run-2"), request)
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestSelection_LabelAfterTheCordonLetsTheNodeBeFinished
func TestSelection_LabelAfterTheCordonLetsTheNodeBeFinished(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(3), func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-1", func() {
			r.give(restrained, "worker-1")
			time.Sleep(10 * time.Second)
		})

		r.Must(w, restraining(to(toLifecycle)))
		r.left()
		r.Once()
	})
}

// TestSelection_LabelThatGoesAwayInMidRollReleasesNothing: neither one that was there from the
// beginning nor one that came meanwhile. The next apply decides anew.
func TestSelection_LabelThatGoesAwayInMidRollReleasesNothing(t *testing.T) {
	t.Parallel()

	for name, before := range map[string]bool{"from the beginning": true, "came meanwhile": false} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, labelled(4), func(r *rig) {
				w := r.Worker("run-1")

				events := []event{{method: "Cordon", node: "worker-2", do: func() { r.take(restrained, "worker-3") }}}

				if before {
					r.give(restrained, "worker-3")
				} else {
					events = append(events, event{method: "Cordon", node: "worker-0", do: func() { r.give(restrained, "worker-3") }})
				}

				r.happening(w, events...)

				request := restraining(to(toLifecycle))
				r.Must(w, request)
				r.left("worker-3")

				if told := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(told, "worker-3 stays held until this run ends") {
					t.Errorf("the run did not say that the node stays held: %s", told)
				}

				r.Must(r.Worker("run-2"), request)
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestSelection_NodeWithoutNodeObjectCountsAsHeld: nobody knows its labels, so the run does not
// begin; and where it loses its Node object in mid-roll it is left.
func TestSelection_NodeWithoutNodeObjectCountsAsHeld(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(3), func(r *rig) {
		if err := r.DeleteNodeAsPerson("worker-1"); err != nil {
			t.Fatal(err)
		}

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), restraining(to(toLifecycle))), say.ErrBlocked, "worker-1")
		if !strings.Contains(failed.Detail(), "no Node object") {
			t.Errorf("it does not say what is wrong: %v", failed)
		}

		if moved := r.installed(); len(moved) > 0 {
			t.Errorf("moved %v", moved)
		}
	})

	inCluster(t, labelled(4), func(r *rig) {
		w := r.Worker("run-1")
		r.happening(w, event{method: "Cordon", node: "worker-0", do: func() {
			if err := r.DeleteNodeAsPerson("worker-2"); err != nil {
				t.Error(err)
			}
		}}, event{method: "Uncordon", node: "worker-0", do: func() {
			// Whoever looks meanwhile finds no labels; those that it had are lost.
			time.AfterFunc(20*time.Second, func() { r.RegisterNode("worker-2") })
		}})

		r.Must(w, restraining(sharing(t, toLifecycle, "2")))
		r.left("worker-2")
	})
}

// TestSelection_KubernetesThatIsAwayHoldsNoNode: what nobody can read is never taken for a cluster
// in which nothing is to be done.
func TestSelection_KubernetesThatIsAwayHoldsNoNode(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(2), func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Nodes" {
				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		err := w.Apply(context.Background(), restraining(to(toLifecycle)))
		if failed := failure(t, err, say.ErrBlocked, ""); !strings.Contains(failed.Detail(), "Kubernetes API did not answer") {
			t.Errorf("it does not say what is wrong: %v", failed)
		}

		if moved := r.installed(); len(moved) > 0 {
			t.Errorf("moved %v", moved)
		}
	})
}

// before fails the test unless no other node was cordoned before the last uncordon of the
// canaries, those that are excused aside.
func (r *rig) before(canaries []string, but ...string) {
	r.T.Helper()

	spans := r.spans()

	for _, other := range spans {
		if slices.Contains(canaries, other.node) || slices.Contains(but, other.node) {
			continue
		}

		for _, canary := range spans {
			if slices.Contains(canaries, canary.node) && other.begin < canary.end {
				r.T.Errorf("%s did not wait for the canary %s: %+v", other.node, canary.node, spans)
			}
		}
	}
}

func TestSelection_CanariesMoveBeforeTheOthers(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(5, checker.Canary("worker-1")), func(r *rig) {
		r.give(leading, "worker-3", "worker-4", "cp-0")

		request := led(sharing(t, toLifecycle, "2"))
		request.Policy.Canary = []string{"worker-1"}

		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()
		r.before([]string{"worker-1", "worker-3", "worker-4"})
	})
}

// TestSelection_CanaryLabelInMidRollStopsOthersUntilItIsDone: whatever has begun is
// finished, also one that was cordoned and waits in its drain.
func TestSelection_CanaryLabelInMidRollStopsOthersUntilItIsDone(t *testing.T) {
	t.Parallel()

	for name, method := range map[string]string{"cordoned": "Cordon", "installed": "Install", "judged": "Vitals"} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, labelled(5), func(r *rig) {
				w := r.Worker("run-1")
				r.during(w, method, "worker-0", func() {
					r.give(leading, "worker-4")
					time.Sleep(5 * time.Second)
				})

				r.Must(w, led(to(toLifecycle)))
				r.At(toLifecycle)
				r.Once()
				r.before([]string{"worker-4"}, "worker-0")
			})
		})
	}
}

// TestSelection_CanaryStaysOneWhenItsLabelGoes
func TestSelection_CanaryStaysOneWhenItsLabelGoes(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(4), func(r *rig) {
		r.give(leading, "worker-2")

		w := r.Worker("run-1")
		r.during(w, "Pull", "worker-2", func() { r.take(leading, "worker-2") })

		r.Must(w, led(to(toLifecycle)))
		r.At(toLifecycle)
		r.before([]string{"worker-2"})
	})
}

// TestSelection_CanaryHeldInMidRollStopsTheOthers: it protects them no more. One that has
// moved has done what it is there for.
func TestSelection_CanaryHeldInMidRollStopsTheOthers(t *testing.T) {
	t.Parallel()

	both := func(request engine.Request) engine.Request { return restraining(led(request)) }

	// It has one label for both, so what holds it makes it no canary any more.
	inCluster(t, labelled(3), func(r *rig) {
		r.give(leading, "worker-1")

		w := r.Worker("run-1")
		r.during(w, "Pull", "worker-1", func() { r.give(restrained, "worker-1") })

		failed := failure(t, w.Apply(context.Background(), both(to(toLifecycle))), nil, "worker-1")
		if !strings.Contains(failed.Detail(), "this canary is to be left alone now") {
			t.Errorf("it does not say what is wrong: %v", failed)
		}

		r.Sound()

		if moved := r.installed(); len(moved) > 0 {
			t.Errorf("moved %v", moved)
		}

		// The next apply decides anew: it is held, and no canary.
		r.Must(r.Worker("run-2"), both(to(toLifecycle)))
		r.left("worker-1")
	})

	inCluster(t, labelled(3), func(r *rig) {
		r.give(leading, "worker-1")

		w := r.Worker("run-1")
		r.during(w, "Uncordon", "worker-1", func() { r.give(restrained, "worker-1") })

		r.Must(w, both(to(toLifecycle)))
		r.Sound()
		r.AllRun(toLifecycle)
	})
}

func TestSelection_PoolsBoundTheirWorkersWithinTheGlobalBound(t *testing.T) {
	t.Parallel()

	given := labelled(8, checker.MaxUnavailable(4), inPool(1))

	inCluster(t, given, func(r *rig) {
		r.give(storage, "worker-0", "worker-1", "worker-2")
		r.give(compute, "worker-3", "worker-4", "worker-5", "worker-6")

		r.Must(r.Worker("run-1"), pooled(t, sharing(t, toLifecycle, "4"), "34%", "50%"))
		r.At(toLifecycle)
		r.Once()

		spans := r.spans()
		of := func(nodes ...string) int {
			return most(slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return !slices.Contains(nodes, s.node) }))
		}

		if got := of("worker-0", "worker-1", "worker-2"); got != 1 {
			t.Errorf("%d workers of storage were away at a time, want 1: %+v", got, spans)
		}

		if got := of("worker-3", "worker-4", "worker-5", "worker-6"); got != 2 {
			t.Errorf("%d workers of compute were away at a time, want 2: %+v", got, spans)
		}

		// One of storage, two of compute, and the one that is in no pool.
		if got := most(ofRole(spans, "worker")); got != 4 {
			t.Errorf("%d workers were away at a time, want 4: %+v", got, spans)
		}
	})
}

// TestSelection_WorkerThatIsAwayTakesUpItsPool: the others of the pool wait for it, those of others
// go on, and where it does not come back the run says so.
func TestSelection_WorkerThatIsAwayTakesUpItsPool(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(6, inPool(1)), func(r *rig) {
		r.give(storage, "worker-0", "worker-1")
		r.give(compute, "worker-2", "worker-3")

		if err := r.CordonAsPerson("worker-1", true); err != nil {
			t.Fatal(err)
		}

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), pooled(t, sharing(t, toLifecycle, "2"), "1", "1")), say.ErrBlocked, "")
		if !strings.Contains(failed.Detail(), `pools["storage"].max_unavailable = 1 of 2 workers is 1, and that is taken up by worker-1 (cordoned)`) {
			t.Errorf("it does not say what is wrong: %v", failed)
		}
	})

	// It leaves while its neighbour is about to be cordoned.
	inCluster(t, labelled(6, inPool(1)), func(r *rig) {
		r.give(storage, "worker-0", "worker-1")

		w := r.Worker("run-1")
		r.happening(w, event{method: "Vitals", node: "worker-1", installed: "worker-0", do: func() {
			leave, back := cordoned(r, "worker-0")
			leave()
			time.AfterFunc(3*time.Minute, back)
		}})

		r.Must(w, pooled(t, sharing(t, toLifecycle, "2"), "1", "1"))
		r.At(toLifecycle)
	})
}

func TestSelection_PoolsBoundKubeletsAsWell(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 6},
		Judging: []checker.Option{checker.MaxUnavailableKubelets(3), inPool(1)},
	}

	inCluster(t, given, func(r *rig) {
		r.give(storage, "worker-0", "worker-1", "worker-2")

		request := kube(toKubernetes)
		request.Policy.Kubernetes.MaxUnavailableKubelets = share(t, "3")
		request = pooled(t, request, "1", "3")

		r.Must(r.Worker("run-1"), request)
		r.atKubernetes(toKubernetes, request)
		r.Sound()
	})
}

// TestSelection_LabelsHoldKubeletsAndLeadThem: of a node that is held no component is replaced, and
// kubelets wait for that of the canary.
func TestSelection_LabelsHoldKubeletsAndLeadThem(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 4},
		Judging: []checker.Option{checker.HeldBy(restrained.Matches), checker.CanaryBy(leading.Matches)},
	}

	inCluster(t, given, func(r *rig) {
		r.give(leading, "worker-3")

		w := r.Worker("run-1")
		r.during(w, "Configure", "worker-3", func() { r.give(restrained, "worker-1") })

		r.Must(w, led(restraining(kube(toKubernetes))))
		r.Sound()

		replaced := r.kubelets()
		if slices.Contains(replaced, "kubelet on worker-1") || len(replaced) != 3 || replaced[0] != "kubelet on worker-3" {
			t.Errorf("kubelets were replaced on %v, want worker-3 first and worker-1 not", replaced)
		}
	})

	// The label comes when the kubelet of another node is about to be replaced.
	inCluster(t, given, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "PullComponent", "worker-1", func() {
			r.give(leading, "worker-3")
			time.Sleep(5 * time.Second)
		})

		r.Must(w, led(kube(toKubernetes)))
		r.Sound()

		replaced := r.kubelets()
		if slices.Index(replaced, "kubelet on worker-3") > slices.Index(replaced, "kubelet on worker-1") {
			t.Errorf("kubelets were replaced on %v, want worker-3 before worker-1", replaced)
		}
	})
}

// TestSelection_ContradictingLabelsAreRefused before anything is touched.
func TestSelection_ContradictingLabelsAreRefused(t *testing.T) {
	t.Parallel()

	other := func(request engine.Request) engine.Request {
		request.Policy.SelectorOverrides = []cluster.SelectorOverride{
			{Selector: storage, Image: "example.com/a/installer"}, {Selector: label{"disk", "nvme"}, Image: "example.com/b/installer"},
		}

		return request
	}

	for name, given := range map[string]struct {
		request func(engine.Request) engine.Request
		label   func(*rig)
		says    string
	}{
		"two pools": {
			request: func(request engine.Request) engine.Request {
				request.Policy.Pools = []cluster.Pool{{Name: "a", Selector: storage, MaxUnavailable: cluster.OneAtATime()}, {Name: "b", Selector: leading, MaxUnavailable: cluster.OneAtATime()}}

				return request
			},
			label: func(r *rig) { r.give(storage, "worker-0"); r.give(leading, "worker-0") },
			says:  "the node is in more than one pool: a (pool=storage), b (upgrade=first)",
		},
		"two images": {
			request: other, label: func(r *rig) { r.give(storage, "worker-0"); r.give(label{"disk", "nvme"}, "worker-0") },
			says: `the selector "pool=storage" gives the node the installer image example.com/a/installer, and "disk=nvme" gives it example.com/b/installer`,
		},
		"held and a canary": {
			request: func(request engine.Request) engine.Request {
				request.Policy.CanarySelector = storage

				return restraining(request)
			},
			label: func(r *rig) { r.give(storage, "worker-0"); r.give(restrained, "worker-0") },
			says:  `the node is to be left alone (selector_overrides "upgrade=hold") and to move first (canary_selector "pool=storage")`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, labelled(2), func(r *rig) {
				given.label(r)

				w := r.Worker("run-1")

				failed := failure(t, w.Apply(context.Background(), given.request(to(toLifecycle))), say.ErrBlocked, "worker-0")
				if !strings.Contains(failed.Detail(), given.says) {
					t.Errorf("got %s, want %q", failed.Detail(), given.says)
				}

				if _, mutating := w.Client.Calls(); mutating != 0 {
					t.Errorf("%d mutating calls were made", mutating)
				}
			})
		})
	}
}

// TestSelection_SelectorThatMatchesNothingIsSaid and stops nothing.
func TestSelection_SelectorThatMatchesNothingIsSaid(t *testing.T) {
	t.Parallel()

	inCluster(t, labelled(2), func(r *rig) {
		w := r.Worker("run-1")
		r.Must(w, pooled(t, led(restraining(sharing(t, toLifecycle, "2"))), "1", "1"))
		r.At(toLifecycle)

		told := strings.Join(w.Texts(cluster.EventWarning), "\n")
		for _, selector := range []string{`"upgrade=hold"`, `"upgrade=first"`, `"pool=storage"`, `"pool=compute"`} {
			if !strings.Contains(told, "matches") || !strings.Contains(told, selector) {
				t.Errorf("the run does not say that %s matches nothing: %s", selector, told)
			}
		}
	})
}

func TestCanary_MovesBeforeEverythingElse(t *testing.T) {
	t.Parallel()

	for _, order := range []cluster.Order{cluster.WorkersFirst, cluster.ControlPlanesFirst} {
		t.Run(string(order), func(t *testing.T) {
			given := pairs(109)
			given.Judging = append(given.Judging, checker.Canary("worker-3", "worker-1"))

			inCluster(t, given, func(r *rig) {
				request := sharing(t, toLifecycle, "2")
				request.Policy.Canary, request.Policy.Order = []string{"worker-3", "worker-1"}, order

				r.Must(r.Worker("run-1"), request)
				r.At(toLifecycle)
				r.Once()

				spans := r.spans()
				canaries := append(ofRole(spans, "worker-1"), ofRole(spans, "worker-3")...)

				for _, other := range spans {
					if other.node == "worker-1" || other.node == "worker-3" {
						continue
					}

					for _, canary := range canaries {
						if other.begin < canary.end {
							t.Errorf("%s did not wait for the canary %s: %+v", other.node, canary.node, spans)
						}
					}
				}

				if most(canaries) != 2 {
					t.Errorf("the canaries did not move side by side: %+v", spans)
				}
			})
		})
	}
}

func TestCanary_FailureStopsTheRest(t *testing.T) {
	t.Parallel()

	for name, fault := range map[string]model.Fault{
		"installer": {Step: model.StepInstall, Effect: model.EffectFail, Times: 1},
		"fallback":  {Step: model.StepBoot, Effect: model.EffectFallback, Times: 1},
		"drain":     {Step: model.StepDrain, Effect: model.EffectBlockedByBudget},
		"lost":      {Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fault.Node = "worker-4"
			given := pairs(113, fault)
			given.Judging = append(given.Judging, checker.Canary("worker-4"))

			inCluster(t, given, func(r *rig) {
				r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 2})

				request := undrained(sharing(t, toLifecycle, "2"))
				request.Policy.Canary = []string{"worker-4"}

				failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), nil, "worker-4")
				if !strings.Contains(failed.Detail(), "canary") {
					t.Errorf("it does not say that the node is a canary: %v", failed)
				}

				r.Sound()

				for _, moved := range r.spans() {
					if moved.node != "worker-4" {
						t.Errorf("%s was cordoned", moved.node)
					}
				}

				r.World().SetFaults(nil)

				again := r.persistent(toLifecycle)
				again.Policy.MaxUnavailable, again.Policy.Canary = request.Policy.MaxUnavailable, request.Policy.Canary
				r.Must(r.Worker("run-2"), again)
				r.At(toLifecycle)
			})
		})
	}
}

// held is a request that leaves nodes alone.
func held(request engine.Request, nodes ...string) engine.Request {
	request.Policy.Hold = map[string]bool{}
	for _, node := range nodes {
		request.Policy.Hold[node] = true
	}

	return request
}

func TestHeld_NodesAreLeftAlone(t *testing.T) {
	t.Parallel()

	for name, nodes := range map[string][]string{
		"worker": {"worker-2"}, "control plane": {"cp-1"}, "both": {"cp-2", "worker-0"},
	} {
		t.Run(name, func(t *testing.T) {
			given := pairs(127)
			given.Judging = append(given.Judging, checker.Held(nodes...))

			inCluster(t, given, func(r *rig) {
				request := held(sharing(t, toLifecycle, "2"), nodes...)
				r.Must(r.Worker("run-1"), request)
				r.Sound()
				r.Tidy()

				for name, node := range r.Judge.Verdict().Nodes {
					want := toLifecycle
					if request.Policy.Holds(name) {
						want = fromLifecycle
					}

					if node.Talos != want || node.Cordoned {
						t.Errorf("%s: %+v, want Talos %s and no cordon", name, node, want)
					}
				}

				if notes := r.Annotations(); notes["talos-status"] != "completed" || notes["talos-current"] != toLifecycle {
					t.Errorf("%v", notes)
				}

				again := r.Worker("run-2")
				r.Must(again, request)

				if _, mutating := again.Client.Calls(); mutating != 0 {
					t.Errorf("the next upgrade made %d mutating calls", mutating)
				}
			})
		})
	}
}

// TestHeld_SilentWorkerIsNoObstacle: it costs its place in the budget and
// nothing else.
func TestHeld_SilentWorkerIsNoObstacle(t *testing.T) {
	t.Parallel()

	given := pairs(131, append(silent("worker-2"), model.Fault{
		Node: "worker-2", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1,
	})...)
	given.Judging = append(given.Judging, checker.Held("worker-2"))

	inCluster(t, given, func(r *rig) {
		r.Must(r.Worker("run-1"), held(sharing(t, toLifecycle, "2"), "worker-2"))
		r.Sound()
		r.Tidy()

		if together := most(ofRole(r.spans(), "worker")); together != 1 {
			t.Errorf("%d workers moved at a time beside the held one, want 1", together)
		}

		if nodes := r.installed(); len(nodes) != 7 || nodes["worker-2"] {
			t.Errorf("moved %v, want all but worker-2", nodes)
		}
	})
}

// attempts is how often an attack is tried, each time at another moment.
const attempts = 10

// attack has something happen to the cluster at a moment after a canary is back in
// service, and notes what the run begins to do to other nodes from then on.
type attack struct {
	rig    *rig
	canary string
	after  time.Duration
	does   func()

	mu       sync.Mutex
	happened time.Time
	begun    []string
}

func (a *attack) intercept(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	switch call.Method {
	case "Cordon", "Install", "Upgrade":
		a.mu.Lock()

		if !a.happened.IsZero() && time.Now().After(a.happened) && call.Node != a.canary {
			a.begun = append(a.begun, fmt.Sprintf("%s %s later", call, time.Since(a.happened)))
		}

		a.mu.Unlock()
	case "Pull":
		// Turns do not reach their cordons all at once.
		_, offset, _ := strings.Cut(call.Node, "-")
		defer time.Sleep(time.Duration(offset[0]-'0') * 3 * time.Second)
	}

	err := next(ctx)

	if call.Method == "Uncordon" && call.Node == a.canary {
		time.AfterFunc(a.after, func() {
			a.mu.Lock()
			defer a.mu.Unlock()

			a.happened = time.Now()
			a.does()
		})
	}

	return err
}

// TestCanary_LeavingServiceStopsTurnsThatHaveBegun: its turn is over, those of three
// workers have begun, and then it is not Ready any more, or cordoned. None of the
// others is cordoned or installed from then on.
func TestCanary_LeavingServiceStopsTurnsThatHaveBegun(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		for number := range attempts {
			t.Run(fmt.Sprintf("%s %d", name, number), func(t *testing.T) {
				given := setup{
					Options: model.Options{ControlPlanes: 3, Workers: 6, Talos: hop.from, Seed: uint64(200 + number)},
					Judging: []checker.Option{checker.MaxUnavailable(3), checker.Canary("worker-0")},
				}

				inCluster(t, given, func(r *rig) {
					r.AddApp("web", 9, &apiserver.Budget{MinAvailable: 4})

					leave, back := notReady(r, "worker-0")
					if number%2 == 1 {
						leave, back = cordoned(r, "worker-0")
					}

					struck := &attack{rig: r, canary: "worker-0", after: time.Duration(number)*4*time.Second + 250*time.Millisecond, does: leave}
					request := sharing(t, hop.to, "3")
					request.Policy.Canary = []string{"worker-0"}

					w := r.Worker("run-1")
					w.Client.Intercept(struck.intercept)

					var failed *say.Failure
					if err := w.Apply(context.Background(), request); !errors.As(err, &failed) {
						t.Fatalf("got %v, want a failure", err)
					}

					if !strings.Contains(failed.Error(), "canary") || !strings.Contains(failed.Error(), "worker-0") {
						t.Errorf("it does not say that the canary is why: %v", failed)
					}

					if len(struck.begun) > 0 {
						t.Errorf("the canary had left, and then: %s\n%s", strings.Join(struck.begun, ", "), r.Judge.Text())
					}

					r.Sound()

					back()
					time.Sleep(2 * time.Minute)
					r.Must(r.Worker("run-2"), request)
					r.At(hop.to)
					r.Once()
				})
			})
		}
	}
}

// notReady takes a node out of service for as long as its kubelet says so.
func notReady(r *rig, node string) (leave, back func()) {
	return func() {
			r.World().SetFaults([]model.Fault{{Node: node, Step: model.StepKubelet, Effect: model.EffectNotReady}})
		}, func() {
			r.World().SetFaults(nil)
		}
}

// cordoned has a person cordon a node.
func cordoned(r *rig, node string) (leave, back func()) {
	return func() {
			if err := r.CordonAsPerson(node, true); err != nil {
				r.T.Error(err)
			}
		}, func() {
			if err := r.CordonAsPerson(node, false); err != nil {
				r.T.Error(err)
			}
		}
}

func TestHeld_WorkerThatIsShutDownHoldsUpNobody(t *testing.T) {
	t.Parallel()

	judging := append(twoAtATime(), checker.Held("worker-1"))

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		client := r.Client("run-1")
		between := &shutDown{liar: liar{Client: client}}

		request := bare(sharing(t, toLifecycle, "2"))
		request.Policy.Hold = map[string]bool{"worker-1": true}
		r.Must(r.WorkerOver(client, between, between), request)
		r.Sound()

		if node := r.State("worker-0"); node.Talos != toLifecycle {
			t.Errorf("worker-0 runs %s", node.Talos)
		}
	})
}
