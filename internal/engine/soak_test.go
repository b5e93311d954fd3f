// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// resting is a request whose nodes must stay healthy for a while.
func resting(t testing.TB, share string, settle time.Duration, canaries ...string) engine.Request {
	t.Helper()

	request := sharing(t, toLifecycle, share)
	request.Policy.Settle, request.Policy.Canary = settle, canaries

	return request
}

// rested fails the test when a node was cordoned less than the pause after
// another one had come back into service.
func (r *rig) rested(pause time.Duration) {
	r.T.Helper()

	spans := r.spans()

	for _, one := range spans {
		for _, other := range spans {
			if other.end <= one.begin && one.begin-other.end < pause.Seconds()-1e-6 {
				r.T.Errorf("%s was cordoned %.1f s after %s had come back, want %s", one.node, one.begin-other.end, other.node, pause)
			}
		}
	}
}

func TestSoak_NextNodeWaitsUntilTheLastHasSettled(t *testing.T) {
	t.Parallel()

	const settle = 4 * time.Minute

	for share, together := range map[string]int{"1": 1, "2": 2} {
		t.Run(share, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 3, Workers: 4, Seed: 89},
				Judging: []checker.Option{checker.MaxUnavailable(together)},
			}

			inCluster(t, given, func(r *rig) {
				begun := time.Now()
				w := r.Worker("run-1")
				r.Must(w, resting(t, share, settle))
				r.At(toLifecycle)
				r.Once()
				r.rested(settle)

				if together := most(ofRole(r.spans(), "worker")); share == "2" && together != 2 {
					t.Errorf("%d workers moved at a time, want 2", together)
				}

				// Nobody is disturbed after the last one: nothing but the manifests is
				// left to wait for.
				last := slices.MaxFunc(r.spans(), func(a, b span) int { return int(a.end - b.end) })
				if after := time.Since(begun).Seconds() - last.end; after > settle.Seconds()/2 {
					t.Errorf("the run went on for %.0f s after its last node", after)
				}

				if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, "to stay healthy for 4m0s: worker-0 is healthy for") {
					t.Errorf("nobody was told what was waited for: %s", waits)
				}
			})
		})
	}
}

// TestSoak_NodeThatFallsIllBeginsAgain is about a node that is not
// ready once more, half a minute after it was: for long, or between two looks.
func TestSoak_NodeThatFallsIllBeginsAgain(t *testing.T) {
	t.Parallel()

	const settle = 3 * time.Minute

	for _, length := range []time.Duration{100 * time.Second, 300 * time.Millisecond} {
		t.Run(length.String(), func(t *testing.T) {
			flap := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFlap, Times: 1, For: length}

			inCluster(t, setup{Options: model.Options{Seed: 97, Faults: []model.Fault{flap}}}, func(r *rig) {
				r.Must(r.Worker("run-1"), resting(t, "1", settle))
				r.At(toLifecycle)
				r.Once()

				well := r.lastReady("worker-0")
				if next := ofRole(r.spans(), "worker-1")[0]; next.begin < well+settle.Seconds() {
					t.Errorf("worker-1 was cordoned at %.0f s, and worker-0 was well from %.0f s on", next.begin, well)
				}
			})
		})
	}
}

// lastReady is when the node last became ready.
func (r *rig) lastReady(node string) float64 {
	r.T.Helper()

	last := 0.0

	for _, event := range r.Judge.Of(history.KindKubelet) {
		if event.Node == node && event.Detail["ready"] == "true" {
			last = event.Sim
		}
	}

	return last
}

// TestSoak_NodeThatDoesNotSettleStopsTheRun is about a canary and another node, which
// are ready for a moment only.
func TestSoak_NodeThatDoesNotSettleStopsTheRun(t *testing.T) {
	t.Parallel()

	const settle = 2 * time.Minute

	for name, canaries := range map[string][]string{"canary": {"worker-1"}, "any node": nil} {
		t.Run(name, func(t *testing.T) {
			node := "worker-0"
			if canaries != nil {
				node = canaries[0]
			}

			flap := model.Fault{Node: node, Step: model.StepBoot, Effect: model.EffectFlap, Times: 1}
			given := setup{Options: model.Options{Seed: 101, Faults: []model.Fault{flap}}, Judging: []checker.Option{checker.Canary(canaries...)}}

			inCluster(t, given, func(r *rig) {
				begun := time.Now()
				failed := failure(t, r.Worker("run-1").Apply(context.Background(), resting(t, "1", settle, canaries...)), say.ErrUnsettled, node)

				if took, most := time.Since(begun), 6*time.Minute+settle+5*time.Minute; took > most {
					t.Errorf("it took %s to give up, want at most %s", took, most)
				}

				if strings.Contains(failed.Detail(), "canary") != (canaries != nil) {
					t.Errorf("does it say that the node is a canary? %v", failed)
				}

				r.Sound()
				r.stopped(node, false)

				if nodes := r.installed(); len(nodes) != 1 {
					t.Errorf("others were moved: %v", nodes)
				}

				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), resting(t, "1", settle, canaries...))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestSoak_SurvivesAKilledRun: the next run waits for the rest of
// the time before it disturbs another node.
func TestSoak_SurvivesAKilledRun(t *testing.T) {
	t.Parallel()

	const settle = 10 * time.Minute

	for name, node := range map[string]string{"worker": "worker-0", "canary": "worker-1"} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Seed: 103}}, func(r *rig) {
				request := resting(t, "1", settle)
				if name == "canary" {
					request.Policy.Canary = []string{node}
				}

				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(ctx, request) }()

				r.Until("moved", 20*time.Minute, func() bool {
					spans := ofRole(r.spans(), node)

					return len(spans) == 1 && spans[0].end < r.World().Now().Seconds()
				})

				time.Sleep(time.Minute)
				cancel()

				if err := <-ended; err == nil {
					t.Error("the killed run reports success")
				}

				begun := r.World().Now().Seconds()
				r.Must(r.Worker("run-2"), request)
				r.At(toLifecycle)
				r.Once()

				ready := r.lastReady(node)
				next := slices.DeleteFunc(r.spans(), func(s span) bool { return s.node == node })[0]
				if wait := next.begin - ready; wait < settle.Seconds()-1 || wait > settle.Seconds()+10 {
					t.Errorf("%s was cordoned %.0f s after %s had become ready, and %.0f s after the run began", next.node, wait, node, next.begin-begun)
				}
			})
		})
	}
}

// TestSoak_EndsWithTheTimeOfTheRun: the deadline does not wait for nodes
// to settle.
func TestSoak_EndsWithTheTimeOfTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Seed: 107}}, func(r *rig) {
		request := resting(t, "1", time.Hour)
		request.Deadline = 20 * time.Minute

		begun := time.Now()
		_ = failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrDeadline, "")

		if took := time.Since(begun); took > 21*time.Minute {
			t.Errorf("it took %s to stop", took)
		}

		r.Sound()
		r.stopped("", false)
	})
}

// TestSoak_TurnThatHasBegunWaitsForOthersToSettle: it was begun beside another one, and
// that is over before it comes to its own node.
func TestSoak_TurnThatHasBegunWaitsForOthersToSettle(t *testing.T) {
	t.Parallel()

	const settle = 4 * time.Minute

	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 4, Seed: 211},
		Judging: []checker.Option{checker.MaxUnavailable(2), checker.Settle(settle)},
	}

	inCluster(t, given, func(r *rig) {
		// Nobody has to be waited for when the run begins.
		time.Sleep(settle)

		w := r.Worker("run-1")
		w.Client.Intercept(pullsSlowly("worker-1", 270*time.Second))
		r.Must(w, resting(t, "2", settle))
		r.At(toLifecycle)
		r.Once()
		r.rested(settle)

		if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, "worker-1 has to wait: worker-0: a node that was moved has to stay healthy for 4m0s") {
			t.Errorf("nobody was told what worker-1 waited for: %s", waits)
		}
	})
}

// TestSoak_NodeIsWatchedWhileTheScheduleLooks: its turn ends while the run looks whether anything else can be
// started, and another turn that has begun comes to its own node before that look is over.
func TestSoak_NodeIsWatchedWhileTheScheduleLooks(t *testing.T) {
	t.Parallel()

	const settle = 4 * time.Minute

	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 5, Seed: 219},
		Judging: []checker.Option{checker.MaxUnavailable(3), checker.Settle(settle), checker.Held("worker-4")},
	}

	inCluster(t, given, func(r *rig) {
		// Nobody has to be waited for when the run begins, and it has a place left that the cordon takes up.
		time.Sleep(settle)

		leave, back := cordoned(r, "worker-4")
		leave()

		var (
			pulls                     atomic.Int32
			looks                     atomic.Bool
			returns, ends             sync.Once
			returning, looking, ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
			looked                    bool
		)

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch {
			case call.Method == "Uncordon" && call.Node == "worker-0":
				returns.Do(func() { close(returning) })

				if err := until(ctx, looking); err != nil {
					return err
				}
			case call.Method == "NodesNow" && closed(returning) && !looks.Swap(true):
				close(looking)

				if err := until(ctx, ended); err != nil {
					return err
				}

				time.Sleep(5 * time.Second)

				looked = true
			case call.Method == "Pull" && call.Node == "worker-1" && pulls.Add(1) == 2:
				if err := until(ctx, ended); err != nil {
					return err
				}
			}

			err := next(ctx)

			if err == nil && call.Method == "Uncordon" && call.Node == "worker-0" {
				ends.Do(func() { close(ended) })
			}

			return err
		})

		request := resting(t, "3", settle)
		request.Policy.Hold = map[string]bool{"worker-4": true}

		r.Must(w, request)
		back()
		r.Sound()
		r.rested(settle)

		if !looked {
			t.Error("the run did not look while worker-0 returned")
		}

		if waits := strings.Join(w.Texts(cluster.EventWaiting), "\n"); !strings.Contains(waits, "worker-1 has to wait: worker-0: a node that was moved has to stay healthy for 4m0s") {
			t.Errorf("worker-1 did not come to its node: %s", waits)
		}
	})
}

// closed reports whether a channel is closed that nobody sends on.
func closed(one <-chan struct{}) bool {
	select {
	case <-one:
		return true
	default:
		return false
	}
}

// TestSoak_NodeThatFallsIllAgainHoldsUpTurnsThatHaveBegun: it had stayed healthy for
// long enough, and is not Ready once more when another one's turn has begun. A node
// that is not cordoned yet stays in service, and on one that is nothing is installed.
func TestSoak_NodeThatFallsIllAgainHoldsUpTurnsThatHaveBegun(t *testing.T) {
	t.Parallel()

	const settle, ill = 20 * time.Second, 2 * time.Minute

	for name, moment := range map[string]string{"before the cordon": "Vitals", "behind the cordon": "Cordon"} {
		t.Run(name, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 3, Workers: 4, Seed: 213},
				Judging: []checker.Option{checker.MaxUnavailable(2), checker.Settle(settle)},
			}

			inCluster(t, given, func(r *rig) {
				var (
					mu     sync.Mutex
					vitals int
					struck time.Time
					begun  []string
				)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					mu.Lock()

					if !struck.IsZero() && time.Since(struck) < ill && slices.Contains([]string{"Cordon", "Install"}, call.Method) {
						begun = append(begun, call.String())
					}

					mu.Unlock()

					err := next(ctx)

					mu.Lock()
					defer mu.Unlock()

					if call.Method == "Vitals" && call.Node == "worker-2" {
						vitals++
					}

					// They are asked before the run, and again when the turn has come.
					if struck.IsZero() && call.Method == moment && call.Node == "worker-2" && vitals == 2 {
						struck = time.Now()
						r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1, For: ill}})
					}

					return err
				})

				r.Must(w, resting(t, "2", settle))
				r.At(toLifecycle)
				r.Once()

				if struck.IsZero() || len(begun) > 0 {
					t.Errorf("worker-0 was not Ready from %s on, and meanwhile: %v\n%s", struck, begun, r.Judge.Text())
				}
			})
		})
	}
}

// TestSoak_SurvivesAKilledRunBeforeTheNextHop: the last node of a
// hop was moved when the run was killed, so that all nodes run what the next hop
// begins with.
func TestSoak_SurvivesAKilledRunBeforeTheNextHop(t *testing.T) {
	t.Parallel()

	const settle = 10 * time.Minute

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Talos: walkFrom, Seed: 79}}, func(r *rig) {
		request := walk(t, "1")
		request.Policy.Settle = settle

		ctx, cancel := context.WithCancel(context.Background())
		first := r.Worker("run-1")
		r.during(first, "Uncordon", "cp-2", func() { time.AfterFunc(time.Minute, cancel) })

		if err := first.Apply(ctx, request); err == nil {
			t.Error("the killed run reports success")
		}

		second, stop := context.WithCancel(context.Background())
		w := r.Worker("run-2")
		r.during(w, "Cordon", "worker-0", stop)

		if err := w.Apply(second, request); err == nil {
			t.Error("the cancelled run reports success")
		}

		last := 0.0
		for _, node := range []string{"worker-0", "worker-1", "cp-0", "cp-1", "cp-2"} {
			last = max(last, r.lastReady(node))
		}

		spans := r.spans()
		if wait := spans[len(spans)-1].begin - last; len(spans) != 6 || wait < settle.Seconds()-1 || wait > settle.Seconds()+10 {
			t.Errorf("the next hop began %.0f s after the last node had become ready, want %s: %+v", wait, settle, spans)
		}

		if len(w.Texts(cluster.EventWaiting)) == 0 {
			t.Error("nobody was told what was waited for")
		}
	})
}
