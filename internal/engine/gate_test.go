// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
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

// userGate is a condition that a test decides about.
type userGate struct {
	timeout time.Duration
	// answer decides, given the node.
	answer func(node string) (bool, string, error)

	mu    sync.Mutex
	asked []string
}

func (g *userGate) String() string { return "gates[0] (test)" }

func (g *userGate) Timeout() time.Duration { return g.timeout }

func (g *userGate) Holds(ctx context.Context, node string) (bool, string, error) {
	if err := ctx.Err(); err != nil {
		return false, "", err
	}

	g.mu.Lock()
	g.asked = append(g.asked, node)
	g.mu.Unlock()

	return g.answer(node)
}

// nodes are those that the gate was asked about.
func (g *userGate) nodes() []string {
	g.mu.Lock()
	defer g.mu.Unlock()

	asked := slices.Clone(g.asked)
	slices.Sort(asked)

	return slices.Compact(asked)
}

// gated is a request with a gate.
func gated(gate *userGate) engine.Request {
	request := to(toLifecycle)
	request.Gates = []cluster.Gate{gate}

	return request
}

// after holds from a moment on.
func after(begun time.Time, wait time.Duration) func(string) (bool, string, error) {
	return func(string) (bool, string, error) { return time.Since(begun) >= wait, "Volume a/b is degraded", nil }
}

func TestGate_AskedBeforeTheRollAndBeforeEachNode(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return true, "", nil }}
		r.Must(r.Worker("run-1"), gated(gate))
		r.At(toLifecycle)

		if want := []string{"", "cp-0", "cp-1", "cp-2", "worker-0", "worker-1"}; !slices.Equal(gate.nodes(), want) {
			t.Errorf("asked about %q, want %q", gate.nodes(), want)
		}
	})
}

func TestGate_ThatOpensInTimeIsWaitedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: 10 * time.Minute, answer: after(time.Now(), 7*time.Minute)}
		w := r.Worker("run-1")
		r.Must(w, gated(gate))
		r.At(toLifecycle)

		if first := r.firstDisturbance(); first < 7*60 {
			t.Errorf("a node was disturbed after %.0f s, want none before the gate opened", first)
		}

		if texts := w.Texts(cluster.EventWaiting); !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, "Volume a/b is degraded") }) {
			t.Errorf("nobody was told what is waited for: %q", texts)
		}
	})
}

// firstDisturbance is when a node was first disturbed, in seconds; a very late
// moment where none was.
func (r *rig) firstDisturbance() float64 {
	events := r.Judge.Of(history.KindCordon, history.KindInstall, history.KindDown)
	if len(events) == 0 {
		return 1e9
	}

	return events[0].Sim
}

func TestGate_StayingClosedStopsTheRunBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		answer func(string) (bool, string, error)
		says   []string
		within time.Duration
	}{
		"it does not hold": {
			answer: func(string) (bool, string, error) { return false, "Volume a/b is degraded", nil },
			says:   []string{"gates[0] (test) does not hold: Volume a/b is degraded", "for 3m"}, within: 5 * time.Minute,
		},
		"nobody can tell": {
			answer: func(string) (bool, string, error) { return true, "", errors.New("no such key: robustness") },
			says:   []string{"gates[0] (test) cannot be judged", "no such key"}, within: 5 * time.Minute,
		},
		"the cluster serves no such kind": {
			answer: func(string) (bool, string, error) { return false, "", cluster.ErrNotFound },
			says:   []string{"gates[0] (test) cannot be judged", "not found"}, within: time.Second,
		},
		"the API server refuses the question": {
			answer: func(string) (bool, string, error) { return false, "", cluster.ErrRefused },
			says:   []string{"gates[0] (test) cannot be judged", "refused"}, within: time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				begun := time.Now()

				err := r.Worker("run-1").Apply(context.Background(), gated(&userGate{timeout: 3 * time.Minute, answer: given.answer}))
				if !errors.Is(err, say.ErrGate) {
					t.Fatalf("got %v, want a gate", err)
				}

				for _, want := range append(given.says, "No node was disturbed") {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}

				if took := time.Since(begun); took > given.within {
					t.Errorf("took %s, want at most %s", took, given.within)
				}

				if disturbed := r.Judge.Of(history.KindCordon, history.KindInstall); len(disturbed) > 0 {
					t.Errorf("disturbed: %+v", disturbed)
				}

				r.Sound()
				r.Tidy()
			})
		})
	}
}

// A gate is asked once more on the observation on which the node is cordoned:
// between that and the wait for it somebody may have closed it.
func TestGate_ClosingInTheMiddleStopsTheRunAfterTheNode(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: 2 * time.Minute, answer: func(node string) (bool, string, error) {
			return node != "cp-1", "Volume a/b is degraded", nil
		}}

		err := r.Worker("run-1").Apply(context.Background(), gated(gate))
		if !errors.Is(err, say.ErrGate) || !strings.Contains(err.Error(), "node cp-1") {
			t.Fatalf("got %v, want the gate before cp-1", err)
		}

		r.Sound()
		r.Tidy()

		if node := r.Judge.Verdict().Nodes["cp-1"]; node.Installs != 0 || node.Cordoned {
			t.Errorf("cp-1 was disturbed: %+v", node)
		}

		gate.answer = func(string) (bool, string, error) { return true, "", nil }

		r.Must(r.Worker("run-2"), gated(gate))
		r.At(toLifecycle)
		r.Once()
	})
}

// What keeps a gate closed may be the very node that an earlier run left out of
// service.
func TestGate_UnfinishedNodeIsFinishedWhateverItSays(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Install", r.Worker("run-1"), to(toLifecycle))

		armed := ""

		for _, entry := range r.Journal().Entries {
			armed = entry.Node
		}

		if armed == "" {
			t.Fatal("no node was left armed")
		}

		gate := &userGate{timeout: time.Minute, answer: func(string) (bool, string, error) {
			return r.State(armed).Talos == toLifecycle, "a pod of " + armed + " is missing", nil
		}}

		r.Must(r.Worker("run-2"), gated(gate))
		r.At(toLifecycle)
		r.Once()
	})
}

// dieBehind runs an upgrade whose process is killed behind its first call of the
// method.
func (r *rig) dieBehind(method string, dying *worker, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	dying.Client.Intercept(atMethod(method, newStrike(dieAfter, atWill, cancel)))

	if err := dying.Apply(ctx, request); err == nil {
		r.T.Fatalf("no %s was called", method)
	}
}

// atMethod strikes at every call of a method.
func atMethod(method string, hit *strike) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method {
			call.Mutation = atWill
		}

		return hit.Intercept(ctx, call, next)
	}
}

func TestGate_HoldsUpComponentsAsWell(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		gate := &userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			return node != "worker-1", "Volume a/b is degraded", nil
		}}

		request := kube(toKubernetes)
		request.Gates = []cluster.Gate{gate}

		err := r.Worker("run-1").Apply(context.Background(), request)
		if !errors.Is(err, say.ErrGate) || !strings.Contains(err.Error(), "worker-1") {
			t.Fatalf("got %v, want the gate before the kubelet of worker-1", err)
		}

		r.Sound()

		if kubelet := r.State("worker-1").Kubelet.Version; kubelet == toKubernetes {
			t.Errorf("the kubelet of worker-1 runs %s", kubelet)
		}
	})
}

// Nothing else holds a run up than its gates.
func TestGate_SkippedHoldsNothingUp(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := gated(&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "closed", nil }})
		request.Policy.SkipChecks = map[string]bool{cluster.CheckGates: true}

		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
	})
}

func TestGate_LostAPIServerIsNoOpenOne(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1}}, func(r *rig) {
		gate := &userGate{timeout: 20 * time.Minute, answer: func(string) (bool, string, error) {
			if !r.World().Serving() {
				return false, "", cluster.ErrUnreachable
			}

			return true, "", nil
		}}

		r.Must(r.Worker("run-1"), gated(gate))
		r.At(toLifecycle)
	})
}

// A gate may take its time to answer. What happens meanwhile must be seen before
// the node is cordoned.
func TestGate_SlowAnswerDoesNotMakeAnOldObservationCount(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3}}, func(r *rig) {
		asked := 0
		gate := &userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			if node != "worker-0" {
				return true, "", nil
			}

			if asked++; asked == 2 {
				time.Sleep(time.Second)

				if err := r.CordonAsPerson("worker-1", true); err != nil {
					t.Error(err)
				}

				time.Sleep(25 * time.Second)
				time.AfterFunc(2*time.Minute, func() { _ = r.CordonAsPerson("worker-1", false) })
			}

			return true, "", nil
		}}

		r.Must(r.Worker("run-1"), gated(gate))
		r.At(toLifecycle)
		r.Once()
	})
}

// What a node of this run does to a gate must not use up the time of another
// node's gate, and waiting for it holds up nobody.
func TestGate_ClosedByTheRunItselfIsWaitedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: nil}, func(r *rig) {
		var last time.Time

		gate := &userGate{timeout: 10 * time.Minute, answer: func(string) (bool, string, error) {
			for name, node := range r.Judge.Verdict().Nodes {
				if strings.HasPrefix(name, "worker") && node.Cordoned {
					last = time.Now()
				}
			}

			// It rebuilds for a while after each worker that is back.
			return last.IsZero() || time.Since(last) > 6*time.Minute, "Volume a/b is rebuilding", nil
		}}

		request := sharing(t, toLifecycle, "1")
		request.Gates = []cluster.Gate{gate}
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()
	})
}

func TestGate_ParallelWorkersWaitForItOutsideOfTheGuards(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3}, Judging: twoAtATime()}, func(r *rig) {
		var last time.Time

		gate := &userGate{timeout: 2 * time.Hour, answer: func(string) (bool, string, error) {
			for name, node := range r.Judge.Verdict().Nodes {
				if strings.HasPrefix(name, "worker") && node.Cordoned {
					last = time.Now()
				}
			}

			return last.IsZero() || time.Since(last) > 8*time.Minute, "Volume a/b is rebuilding", nil
		}}

		request := sharing(t, toLifecycle, "2")
		request.Gates = []cluster.Gate{gate}
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()
	})
}

// The time of a gate begins anew when it was open in between.
func TestGate_ThatFlapsHasItsWholeTimeAgain(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		begun := time.Now()
		flapping := &userGate{timeout: 5 * time.Minute, answer: func(string) (bool, string, error) {
			since := time.Since(begun)

			return since < 40*time.Minute || since > 40*time.Minute+10*time.Second, "it flaps", nil
		}}
		slow := &userGate{timeout: 2 * time.Hour, answer: after(begun, 45*time.Minute)}

		request := to(toLifecycle)
		request.Gates = []cluster.Gate{flapping, slow}
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
	})
}

// A gate that is open whenever it is waited for, and closed whenever it counts,
// ends with the time of the run.
func TestGate_NeverOpenWhenItCountsEndsTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		asked := map[string]int{}
		request := gated(&userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			asked[node]++

			return node == "" || asked[node]%2 == 1, "it flickers", nil
		}})
		request.Deadline = time.Hour

		begun := time.Now()

		err := r.Worker("run-1").Apply(context.Background(), request)
		if took := time.Since(begun); err == nil || took > 75*time.Minute {
			t.Errorf("after %s: %v, want an end", took, err)
		}

		r.Sound()
		r.Tidy()
	})
}

func TestGate_WaitEndsWhereNobodyCanBeAsked(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var away atomic.Bool

		gate := &userGate{timeout: 10 * time.Minute, answer: func(string) (bool, string, error) {
			away.Store(true)

			return false, "degraded", nil
		}}

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if away.Load() && slices.Contains([]string{"Nodes", "Lease", "WriteLease", "Journal", "ComponentPods"}, call.Method) {
				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		begun := time.Now()

		err := w.Apply(context.Background(), gated(gate))
		if took := time.Since(begun); !errors.Is(err, say.ErrGate) || took > 15*time.Minute {
			t.Errorf("after %s: %v, want the gate", took, err)
		}
	})
}

func TestGate_WaitEndsWithTheTimeOfTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := gated(&userGate{timeout: 10 * time.Hour, answer: func(string) (bool, string, error) { return false, "degraded", nil }})
		request.Deadline = time.Hour

		begun := time.Now()

		err := r.Worker("run-1").Apply(context.Background(), request)
		if took := time.Since(begun); !errors.Is(err, say.ErrDeadline) || took > 65*time.Minute {
			t.Errorf("after %s: %v, want the end of the time", took, err)
		}

		r.Tidy()
	})
}

// A node that a dead run has only cordoned is still in service: nothing is done
// to it without its gates, and it is put back where these do not open.
func TestGate_HoldsForANodeThatWasOnlyCordoned(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		err := r.Worker("run-2").Apply(context.Background(),
			gated(&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "Volume a/b is degraded", nil }}))
		if !errors.Is(err, say.ErrGate) {
			t.Errorf("got %v, want the gate", err)
		}

		for name, node := range r.Judge.Verdict().Nodes {
			if node.Installs > 0 || node.Cordoned {
				t.Errorf("%s: %+v", name, node)
			}
		}

		r.Sound()
		r.Tidy()
	})
}

// A component is not restarted on an answer that is older than the guards.
func TestGate_ComponentIsNotRestartedAfterItClosed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var closed, away atomic.Bool

		gate := &userGate{timeout: 3 * time.Minute, answer: func(node string) (bool, string, error) {
			return !closed.Load() || node == "", "degraded", nil
		}}

		request := bare(kube(toKubernetes))
		request.Gates = []cluster.Gate{gate}

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Component" && call.Node == "worker-0" && !closed.Swap(true) {
				away.Store(true)
				time.AfterFunc(2*time.Minute, func() { away.Store(false) })
			}

			if away.Load() && call.Method == "Nodes" {
				return cluster.ErrUnreachable
			}

			if call.Method == "Configure" && call.Node == "worker-0" {
				t.Error("worker-0 was configured behind a closed gate")
			}

			return next(ctx)
		})

		if err := w.Apply(context.Background(), request); !errors.Is(err, say.ErrGate) {
			t.Errorf("got %v, want the gate", err)
		}

		r.Sound()
	})
}

// A cluster that is where it should be waits for nothing, whoever left a lease.
func TestGate_NothingToDoWaitsForNothing(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: toLifecycle}}, func(r *rig) {
		r.Must(r.Worker("run-0"), to(toLifecycle))

		if err := r.HoldLease("somebody"); err != nil {
			t.Fatal(err)
		}

		store := ports.NewVault()
		request := within(time.Hour, 2*time.Hour)
		request.Gates = gated(&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "degraded", nil }}).Gates
		request.Snapshots = store

		r.Must(r.Worker("run-1"), request)
		r.Tidy()

		if saved := store.Saved(); len(saved) > 0 {
			t.Errorf("saved %+v", saved)
		}
	})
}

// What is skipped is told, also where it comes up in the middle of the run.
func TestSkip_ToldOnceAlsoInMidRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Judging: skipping(cluster.CheckEtcdAlarms)}, func(r *rig) {
		request := gated(&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "Volume a/b is degraded", nil }})
		request.Policy.SkipChecks = map[string]bool{cluster.CheckEtcdAlarms: true, cluster.CheckGates: true}

		w := r.Worker("run-1")
		r.during(w, "Install", "worker-0", func() {
			r.World().SetFaults([]model.Fault{{Node: "cp-2", Step: model.StepEtcd, Effect: model.EffectAlarmNoSpace}})
		})

		r.Must(w, request)
		r.At(toLifecycle)

		told := strings.Join(w.Texts(cluster.EventWarning), "\n")
		for _, want := range []string{"NOSPACE", "etcd-alarms, skipped", "gates, skipped", "Volume a/b is degraded"} {
			if !strings.Contains(told, want) {
				t.Errorf("nobody was told of %q: %s", want, told)
			}
		}

		if strings.Count(told, "etcd raised NOSPACE") != 1 {
			t.Errorf("told more than once: %s", told)
		}
	})
}

// Corruption spreads: that alarm stops a run whatever is skipped.
func TestSkip_AlarmOfCorruptionCannotBeSkipped(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := to(toLifecycle)
		request.Policy.SkipChecks = map[string]bool{cluster.CheckEtcdAlarms: true}

		w := r.Worker("run-1")
		r.during(w, "Install", "worker-0", func() {
			r.World().SetFaults([]model.Fault{{Node: "cp-2", Step: model.StepEtcd, Effect: model.EffectAlarmCorrupt}})
		})

		if err := w.Apply(context.Background(), request); err == nil || !strings.Contains(err.Error(), "CORRUPT") || !strings.Contains(err.Error(), "cp-2") {
			t.Errorf("got %v, want the alarm of cp-2", err)
		}

		r.Sound()

		for _, event := range r.Judge.Of(history.KindInstall) {
			if strings.HasPrefix(event.Node, "cp-") {
				t.Errorf("%s was installed", event.Node)
			}
		}
	})
}

// The node that a dead run left cordoned may be what keeps the gate closed: it is
// put back at once, and upgraded when the gate holds.
func TestGate_CordonOfADeadRunDoesNotKeepItClosed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		whole := func(string) (bool, string, error) {
			for _, node := range r.Judge.Verdict().Nodes {
				if node.Cordoned {
					return false, "a replica on the cordoned node is missing", nil
				}
			}

			return true, "", nil
		}

		r.Must(r.Worker("run-2"), gated(&userGate{timeout: 5 * time.Minute, answer: whole}))
		r.Sound()
		r.At(toLifecycle)
		r.Tidy()
	})
}

// A turn for which there is no room and whose gate is closed steps back from both,
// and holds up nobody.
func TestGate_TurnWithoutRoomAndGateHoldsUpNobody(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}, Judging: twoAtATime()}, func(r *rig) {
		gate := &userGate{timeout: 2 * time.Hour, answer: func(string) (bool, string, error) {
			for _, node := range r.Judge.Verdict().Nodes {
				if node.Cordoned {
					return false, "Volume a/b is degraded", nil
				}
			}

			return true, "", nil
		}}

		request := sharing(t, toLifecycle, "2")
		request.Gates = []cluster.Gate{gate}

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Install" && strings.HasPrefix(call.Node, "worker") {
				time.Sleep(8 * time.Minute)
			}

			return next(ctx)
		})

		r.Must(w, request)
		r.At(toLifecycle)
	})
}

// secondGate is told apart from the first by its name.
type secondGate struct{ *userGate }

func (secondGate) String() string { return "gates[1] (second)" }

func TestGate_EverySkippedOneIsTold(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		no := func(string) (bool, string, error) { return false, "closed", nil }
		first := &userGate{timeout: time.Minute, answer: no}

		request := gated(first)
		request.Gates = append(request.Gates, secondGate{&userGate{timeout: time.Minute, answer: no}})
		request.Policy.SkipChecks = map[string]bool{cluster.CheckGates: true}

		w := r.Worker("run-1")
		r.Must(w, request)

		told := strings.Join(w.Texts(cluster.EventWarning), "\n")
		if !strings.Contains(told, "gates[0] (test)") || !strings.Contains(told, "gates[1] (second)") {
			t.Errorf("told %q, want both", told)
		}

		if asked := len(first.asked); asked != 1 {
			t.Errorf("a skipped gate was asked %d times, want once", asked)
		}
	})
}

// interval is a window that is open once.
type interval struct{ from, to time.Time }

func (s interval) String() string { return "a test" }

func (s interval) Open(at time.Time) (open bool, until time.Time) {
	switch {
	case at.Before(s.from):
		return false, s.from
	case at.Before(s.to):
		return true, s.to
	default:
		return false, time.Time{}
	}
}

// within is a request with a window that begins and ends so long from now.
func within(from, to time.Duration) engine.Request {
	request := aim()
	request.Window = interval{from: time.Now().Add(from), to: time.Now().Add(to)}

	return request
}

func aim() engine.Request { return to(toLifecycle) }

func TestWindow_NothingIsTouchedOutsideOfIt(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		from, to time.Duration
		says     string
	}{
		"before it": {from: time.Hour, to: 2 * time.Hour, says: "it opens at 2000-01-01T01:00:00Z"},
		"after it":  {from: -2 * time.Hour, to: -time.Hour, says: "it does not open again"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")

				err := w.Apply(context.Background(), within(given.from, given.to))
				if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), given.says) || !strings.Contains(err.Error(), "maintenance-window") {
					t.Fatalf("got %v, want the window", err)
				}

				if _, mutating := w.Client.Calls(); mutating > 0 {
					t.Errorf("%d mutating calls, want none", mutating)
				}
			})
		})
	}
}

func TestWindow_RunStopsResumableWhenItCloses(t *testing.T) {
	t.Parallel()

	for _, length := range []time.Duration{time.Minute, 4 * time.Minute, 7 * time.Minute, 11 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				err := r.Worker("run-1").Apply(context.Background(), within(0, length))
				if !errors.Is(err, say.ErrWindow) || !strings.Contains(err.Error(), "Run terraform apply again") {
					t.Fatalf("got %v, want the end of the window", err)
				}

				r.Sound()
				r.Tidy()
				r.startedBefore(length)

				for name, node := range r.Judge.Verdict().Nodes {
					if node.Cordoned || node.Installs != node.Reboots {
						t.Errorf("%s was left in the middle: %+v", name, node)
					}
				}

				r.Must(r.Worker("run-2"), within(0, 5*time.Hour))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestWindow_ClosesBetweenComponents: the component in progress is finished, the next run
// goes on with the one after it, and nothing is configured twice.
func TestWindow_ClosesBetweenComponents(t *testing.T) {
	t.Parallel()

	for _, length := range []time.Duration{5 * time.Minute, 8 * time.Minute, 11 * time.Minute} {
		t.Run(length.String(), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
				request := kube(toKubernetes)
				request.Window = interval{to: time.Now().Add(length)}

				err := r.Worker("run-1").Apply(context.Background(), request)
				if !errors.Is(err, say.ErrWindow) || !strings.Contains(err.Error(), "The next would have been") || !strings.Contains(err.Error(), "every node is in service") {
					t.Fatalf("got %v, want the end of the window", err)
				}

				r.Sound()
				r.Tidy()

				if len(r.configured()) == 0 {
					t.Error("nothing was done while the window was open")
				}

				request.Window = interval{to: time.Now().Add(5 * time.Hour)}
				r.Must(r.Worker("run-2"), request)
				r.atKubernetes(toKubernetes, request)

				changes := r.configured()
				if once := slices.Compact(slices.Sorted(slices.Values(changes))); len(once) != len(changes) {
					t.Errorf("some components were configured more than once: %v", changes)
				}
			})
		})
	}
}

// startedBefore fails the test if a node was cordoned after the moment.
func (r *rig) startedBefore(moment time.Duration) {
	r.T.Helper()

	for _, event := range r.Judge.Of(history.KindCordon) {
		if event.Sim > moment.Seconds() && event.Detail["unschedulable"] == "true" {
			r.T.Errorf("%s was cordoned after %.0f s: %v", event.Node, event.Sim, event.Detail)
		}
	}
}

func TestWindow_ClosesWhileAGateIsWaitedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := within(0, 5*time.Minute)
		request.Gates = gated(&userGate{timeout: time.Hour, answer: after(time.Now(), 20*time.Minute)}).Gates

		err := r.Worker("run-1").Apply(context.Background(), request)
		if !errors.Is(err, say.ErrWindow) || !strings.Contains(err.Error(), "No node was disturbed") {
			t.Fatalf("got %v, want the end of the window", err)
		}

		if disturbed := r.Judge.Of(history.KindCordon); len(disturbed) > 0 {
			t.Errorf("disturbed: %+v", disturbed)
		}
	})
}

// TestWindow_CheckerSeesARunThatDoesNotLookAtIt shows that the checker sees a run that does not look
// at its window, and that it has nothing to say of one that does.
func TestWindow_CheckerSeesARunThatDoesNotLookAtIt(t *testing.T) {
	t.Parallel()

	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	judging := []checker.Option{checker.Window(begin, checker.Opening{From: begin, To: begin.Add(4 * time.Minute)})}

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.Must(r.Worker("run-1"), aim())

		if broken := r.Judge.Verdict().Broken(); !slices.Contains(broken, checker.S13) {
			t.Errorf("a run that goes on outside its window broke %v, want %s", broken, checker.S13)
		}
	})

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		if err := r.Worker("run-1").Apply(context.Background(), within(0, 4*time.Minute)); !errors.Is(err, say.ErrWindow) {
			t.Errorf("got %v, want the end of the window", err)
		}

		r.Sound()
	})
}

// A closed window says which node it keeps waiting.
func TestWindow_RefusalNamesTheNodeThatWaits(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Install", r.Worker("run-1"), to(toLifecycle))

		err := r.Worker("run-2").Apply(context.Background(), within(time.Hour, 2*time.Hour))
		if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), "worker-0 is left in the middle of its upgrade") {
			t.Errorf("got %v, want the window and the node", err)
		}
	})
}

// TestGate_TurnsOfOthersDoNotCountAgainstItsTimeout: the gate of a node is closed while
// another one of the run is on its way, for longer than the gate may take.
func TestGate_TurnsOfOthersDoNotCountAgainstItsTimeout(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 4}, Judging: twoAtATime()}, func(r *rig) {
		request := sharing(t, toLifecycle, "2")
		request.Gates = []cluster.Gate{&userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			for name, state := range r.Judge.Verdict().Nodes {
				if strings.HasPrefix(name, "worker") && name != node && state.Cordoned {
					return false, "Volume a/b is rebuilding", nil
				}
			}

			return true, "", nil
		}}}

		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
	})
}

// TestWindow_ClosesWhileAGateAnswers: no component is changed after the end.
func TestWindow_ClosesWhileAGateAnswers(t *testing.T) {
	t.Parallel()

	for length := 2 * time.Minute; length < 8*time.Minute; length += 30 * time.Second {
		t.Run(length.String(), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
				begun := time.Now()
				request := kube(toKubernetes)
				request.Window = interval{to: begun.Add(length)}
				request.Gates = []cluster.Gate{&userGate{timeout: time.Hour, answer: func(string) (bool, string, error) {
					if at := time.Since(begun); at > length-25*time.Second && at < length {
						time.Sleep(length - at + time.Second)
					}

					return true, "", nil
				}}}

				if err := r.Worker("run-1").Apply(context.Background(), request); err == nil {
					t.Error("the run ended well, with less time than it takes")
				}

				for _, event := range r.Judge.Of(history.KindConfig) {
					if event.Sim > length.Seconds() {
						t.Errorf("the configuration of %s was changed at %.0f s", event.Node, event.Sim)
					}
				}
			})
		})
	}
}
