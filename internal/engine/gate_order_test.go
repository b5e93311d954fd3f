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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// A gate may take its time to answer. What happens meanwhile must be seen before
// the node is cordoned.
func TestSlowGateDoesNotMakeAnOldObservationCount(t *testing.T) {
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
func TestGateThatTheRunItselfClosesIsWaitedFor(t *testing.T) {
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

func TestParallelWorkersWaitForAGateOutsideOfTheGuards(t *testing.T) {
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
func TestGateThatFlapsHasItsWholeTimeAgain(t *testing.T) {
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
func TestGateThatIsNeverOpenWhenItCountsEndsTheRun(t *testing.T) {
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

func TestWaitForAGateEndsWhereNobodyCanBeAsked(t *testing.T) {
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
		if took := time.Since(begun); !errors.Is(err, engine.ErrGate) || took > 15*time.Minute {
			t.Errorf("after %s: %v, want the gate", took, err)
		}
	})
}

func TestWaitForAGateEndsWithTheTimeOfTheRun(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		request := gated(&userGate{timeout: 10 * time.Hour, answer: func(string) (bool, string, error) { return false, "degraded", nil }})
		request.Deadline = time.Hour

		begun := time.Now()

		err := r.Worker("run-1").Apply(context.Background(), request)
		if took := time.Since(begun); !errors.Is(err, engine.ErrDeadline) || took > 65*time.Minute {
			t.Errorf("after %s: %v, want the end of the time", took, err)
		}

		r.Tidy()
	})
}

// A node that a dead run has only cordoned is still in service: nothing is done
// to it without its gates, and it is put back where these do not open.
func TestNodeThatWasOnlyCordonedHasItsGates(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		err := r.Worker("run-2").Apply(context.Background(),
			gated(&userGate{timeout: time.Minute, answer: func(string) (bool, string, error) { return false, "Volume a/b is degraded", nil }}))
		if !errors.Is(err, engine.ErrGate) {
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
func TestComponentIsNotRestartedBehindAGateThatClosed(t *testing.T) {
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

		if err := w.Apply(context.Background(), request); !errors.Is(err, engine.ErrGate) {
			t.Errorf("got %v, want the gate", err)
		}

		r.Sound()
	})
}

// A cluster that is where it should be waits for nothing, whoever left a lease.
func TestNothingToDoWaitsForNothing(t *testing.T) {
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
func TestSkippedIsNeverSilent(t *testing.T) {
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
func TestAlarmOfCorruptionCannotBeSkipped(t *testing.T) {
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

// The node that a dead run left cordoned may be what keeps the gate closed: when
// the window ends it is put back, and the next night begins anew.
func TestWindowThatEndsPutsACordonedNodeBack(t *testing.T) {
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

		first := within(0, 30*time.Minute)
		first.Gates = gated(&userGate{timeout: time.Hour, answer: whole}).Gates

		if err := r.Worker("run-2").Apply(context.Background(), first); !errors.Is(err, engine.ErrWindow) {
			t.Errorf("got %v, want the end of the window", err)
		}

		for name, node := range r.Judge.Verdict().Nodes {
			if node.Cordoned {
				t.Errorf("%s is left cordoned", name)
			}
		}

		second := within(0, 5*time.Hour)
		second.Gates = first.Gates
		r.Must(r.Worker("run-3"), second)
		r.At(toLifecycle)
	})
}

// A turn for which there is no room and whose gate is closed steps back from both,
// and holds up nobody.
func TestNoRoomAndAClosedGateAreWaitedForElsewhere(t *testing.T) {
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

func TestEverySkippedGateIsTold(t *testing.T) {
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
