// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// returning is a request that sends a node back which does not become healthy.
func returning(request engine.Request) engine.Request {
	request.Policy.OnFailure = cluster.RollBackOnFailure

	return request
}

// neverReady lets a node run its new system without ever being Ready with it.
func neverReady(node string) model.Fault {
	return model.Fault{Node: node, Step: model.StepBoot, Effect: model.EffectNotReady, Times: 1}
}

// statuses are the values of an annotation in the order in which they were
// written.
func (r *rig) statuses(key string) []string {
	var values []string

	for _, event := range r.Judge.Of(history.KindAnnotation) {
		if event.Detail["key"] == key && (len(values) == 0 || values[len(values)-1] != event.Detail["value"]) {
			values = append(values, event.Detail["value"])
		}
	}

	return values
}

// rollbacks counts the calls that send a node back.
func (r *rig) rollbacks() int {
	count := 0

	for _, call := range r.Judge.Of(history.KindRPC) {
		if strings.HasSuffix(call.Detail["method"], "/Rollback") && call.Detail["code"] == "OK" {
			count++
		}
	}

	return count
}

// sentBack fails the test unless the node runs its old system, in service, and is
// recorded as one that was sent back.
func (r *rig) sentBack(node, from string) {
	r.T.Helper()

	if found := r.Judge.Verdict().Nodes[node]; found.Talos != from || found.Cordoned {
		r.T.Errorf("%s: %+v, want Talos %s and no cordon\n%s", node, found, from, r.Judge.Text())
	}

	if entry := r.entryOf(node); entry.Phase != cluster.PhaseRolledBack || entry.BootID != r.State(node).BootID {
		r.T.Errorf("the journal says %+v, want it rolled back with boot ID %s", entry, r.State(node).BootID)
	}
}

func TestRollback_OfAnUnhealthyNodeWhenAsked(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		for _, node := range []string{"worker-0", "cp-1"} {
			t.Run(name+" "+node, func(t *testing.T) {
				inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 5, Faults: []model.Fault{neverReady(node)}}}, func(r *rig) {
					r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

					first := r.Worker("run-1")
					failed := failure(t, first.Apply(context.Background(), returning(to(hop.to))), say.ErrRolledBack, node)

					for _, want := range []string{"rolled back to Talos " + hop.from, "back in service", "did not get back into service with it: waited", "The last lines of the log of machined on " + node} {
						if !strings.Contains(failed.Detail(), want) {
							t.Errorf("%q is missing in:\n%s", want, failed.Detail())
						}
					}

					r.Sound()
					r.stopped(node, false)
					r.sentBack(node, hop.from)

					if first.FailedNodes() != node {
						t.Errorf("failed nodes are %q", first.FailedNodes())
					}

					said := strings.Join(r.statuses("talos-status"), " ")
					if !strings.HasSuffix(said, "rolling-back failed") {
						t.Errorf("talos-status was %q", said)
					}

					again := r.Worker("run-2")
					_ = failure(t, again.Apply(context.Background(), returning(to(hop.to))), say.ErrBlocked, node)

					if _, mutating := again.Client.Calls(); mutating != 0 {
						t.Errorf("the refused run made %d mutating calls", mutating)
					}

					told := returning(to(hop.to))
					told.Policy.Retry = map[string]string{node: r.State(node).BootID}
					r.Must(r.Worker("run-3"), told)
					r.At(hop.to)
				})
			})
		}
	}
}

// TestRollback_OfANodeThatChangedItsSchematic: the new system is told by what the node says
// in its new boot, ready or not.
func TestRollback_OfANodeThatChangedItsSchematic(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		for _, quick := range []bool{false, true} {
			for _, node := range []string{"worker-0", "cp-1"} {
				t.Run(fmt.Sprintf("%s %s, quick %t", name, node, quick), func(t *testing.T) {
					options := model.Options{Talos: hop.from, QuickReboots: quick, Faults: []model.Fault{neverReady(node)}}

					inCluster(t, setup{Options: options}, func(r *rig) {
						request := returning(to(hop.to))
						request.Target.InstallerImage = "factory.talos.dev/metal-installer/" + schematicOfTests

						_ = failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrRolledBack, node)
						r.Sound()
						r.sentBack(node, hop.from)
					})
				})
			}
		}
	}
}

// TestRollback_AlsoWhereTheLastLookIsCutOff: the time is up while the node is
// being asked, as nearly always over a network.
func TestRollback_AlsoWhereTheLastLookIsCutOff(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{neverReady("worker-0")}}}, func(r *rig) {
		const slow = 47 * time.Second

		cut := 0
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Machine" || call.Node != "worker-0" || r.State("worker-0").Talos == fromLifecycle {
				return next(ctx)
			}

			timer := time.NewTimer(slow)
			defer timer.Stop()

			select {
			case <-ctx.Done():
				cut++

				return context.Cause(ctx)
			case <-timer.C:
				return next(ctx)
			}
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrUnhealthy, "worker-0")
		if !strings.Contains(failed.State, "runs the new system") {
			t.Errorf("the state is %q", failed.State)
		}

		if cut == 0 {
			t.Error("no look at the node was cut off")
		}
	})
}

func TestRollback_NotUnlessAsked(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Faults: []model.Fault{neverReady("worker-0")}}}, func(r *rig) {
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), say.ErrUnhealthy, "worker-0")
		if !strings.Contains(failed.State, "runs the new system") {
			t.Errorf("the state is %q", failed.State)
		}

		r.Sound()
		r.stopped("worker-0", true)

		if r.rollbacks() > 0 {
			t.Error("the node was rolled back although nobody asked for that")
		}
	})
}

// TestRollback_NotWhereItIsNotSafe: the etcd of the old system could not join.
func TestRollback_NotWhereItIsNotSafe(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{neverReady("cp-1")}}}, func(r *rig) {
		w := r.Worker("run-1")
		forgetful := &liar{Client: w.Client, etcd: func(view *cluster.EtcdView) { view.Status.Version = "" }}
		w = r.WorkerOver(w.Client, forgetful, forgetful)

		failed := failure(t, w.Apply(context.Background(), returning(to(toLifecycle))), say.ErrUnhealthy, "cp-1")
		if !strings.Contains(failed.State, "It was not rolled back: that is not safe: the journal does not say which version of etcd it ran before.") {
			t.Errorf("the state is %q", failed.State)
		}

		r.Sound()
		r.stopped("cp-1", true)

		if r.rollbacks() > 0 {
			t.Error("the node was rolled back")
		}
	})
}

func TestRollback_NotOfANodeWhoseInstallerNobodySawEnd(t *testing.T) {
	t.Parallel()

	lost := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectConnectionLostEarly, Times: 1}

	inCluster(t, setup{Options: model.Options{Faults: []model.Fault{lost, neverReady("worker-0")}}}, func(r *rig) {
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), returning(to(toLifecycle))), say.ErrUnhealthy, "worker-0")
		if !strings.Contains(failed.State, "It was not rolled back: that is not safe: nobody saw the end of the installer") {
			t.Errorf("the state is %q", failed.State)
		}

		r.Sound()
		r.stopped("worker-0", true)

		if r.rollbacks() > 0 {
			t.Error("the node was rolled back")
		}

		r.World().SetFaults(nil)
		r.Until("healthy", time.Hour, r.whole)
		r.Must(r.Worker("run-2"), returning(to(toLifecycle)))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestRollback_NotBegunWhileAnotherControlPlaneIsAway: the one that is ill is
// missing already.
func TestRollback_NotBegunWhileAnotherControlPlaneIsAway(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Faults: []model.Fault{neverReady("cp-1")}}}, func(r *rig) {
		w := r.Worker("run-1")
		r.during(w, "Logs", "cp-1", func() {
			r.World().SetFaults(append(silent("cp-2"), neverReady("cp-1")))
		})

		failed := failure(t, w.Apply(context.Background(), returning(to(toLifecycle))), say.ErrUnhealthy, "cp-1")
		if !strings.Contains(failed.State, "It was not rolled back") || !strings.Contains(failed.State, "cp-2") {
			t.Errorf("the state is %q", failed.State)
		}

		r.Sound()

		if r.rollbacks() > 0 {
			t.Error("the node was rolled back")
		}
	})
}

// TestRollback_NotAskedTwicePerBoot: a second one would undo the first.
func TestRollback_NotAskedTwicePerBoot(t *testing.T) {
	t.Parallel()

	for name, fault := range map[string]model.Fault{
		"reply lost": {Node: "worker-0", Step: model.Step("rollback"), Effect: model.EffectConnectionLost, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Faults: []model.Fault{neverReady("worker-0"), fault}}}, func(r *rig) {
				_ = failure(t, r.Worker("run-1").Apply(context.Background(), returning(to(toLifecycle))), say.ErrRolledBack, "worker-0")
				r.Sound()
				r.sentBack("worker-0", fromLifecycle)

				if count := r.rollbacks(); count > 1 {
					t.Errorf("%d rollbacks", count)
				}
			})
		})
	}
}

func TestRollback_RefusalLeavesTheNodeAsItIs(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "worker-0", Step: model.Step("rollback"), Effect: model.EffectFail}

	inCluster(t, setup{Options: model.Options{Faults: []model.Fault{neverReady("worker-0"), fault}}}, func(r *rig) {
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), returning(to(toLifecycle))), say.ErrUnhealthy, "worker-0")
		if !strings.Contains(failed.State, "It was not rolled back") {
			t.Errorf("the state is %q", failed.State)
		}

		r.Sound()

		if entry := r.entryOf("worker-0"); entry.Phase != cluster.PhaseRebooting {
			t.Errorf("the journal says %+v", entry)
		}

		// A person heals it, and the next run finishes it.
		r.World().SetFaults(nil)
		r.Must(r.Worker("run-2"), returning(to(toLifecycle)))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestRollback_NotOfANodeThatHealsInTime is about one that is slow.
func TestRollback_NotOfANodeThatHealsInTime(t *testing.T) {
	t.Parallel()

	fault := neverReady("worker-0")
	fault.For = 20 * time.Minute

	inCluster(t, setup{Options: model.Options{Faults: []model.Fault{fault}}}, func(r *rig) {
		r.Must(r.Worker("run-1"), returning(to(toLifecycle)))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestRollback_GoesOnWhereItWasKilled strikes a rollback at each of its calls that
// change something, in every way. Another run finishes it, with the same policy
// or without.
func TestRollback_GoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()

	for _, node := range []string{"worker-0", "cp-1"} {
		t.Run(node, func(t *testing.T) {
			t.Parallel()

			for mutation, kind := 1, 0; ; kind++ {
				if kind == len(crashesOfRollback()) {
					mutation, kind = mutation+stride, 0
				}

				if !killedRollingBack(t, node, crashesOfRollback()[kind], mutation) || t.Failed() {
					t.Logf("fewer than %d mutating calls from the record of the rollback on", mutation)

					return
				}
			}
		})
	}
}

func crashesOfRollback() []crash { return []crash{dieBefore, dieAfter, loseReply} }

// killedRollingBack strikes at one mutation, counted from the first after the
// node was given up. It reports whether there was such a call.
func killedRollingBack(t *testing.T, node string, kind crash, mutation int) bool {
	t.Helper()

	came := false

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{neverReady(node)}}}, func(r *rig) {
		first, begun := 0, false
		struck, wait, _ := r.Crashing("run-1", returning(to(toLifecycle)), kind, func(call ports.Call) bool {
			begun = begun || call.Method == "Logs" && call.Node == node
			if begun && call.Mutation > 0 && call.Method != "WriteLease" {
				first++
			}

			return begun && first == mutation && call.Method != "WriteLease"
		})
		came = struck != ""

		wait()

		if !came {
			return
		}

		err := r.Worker("run-2").Apply(context.Background(), returning(to(toLifecycle)))
		if err == nil && r.rollbacks() == 0 {
			// It was not known whether the node had been told, so it was rebooted;
			// that cured it.
			r.At(toLifecycle)

			return
		}

		if err == nil {
			t.Errorf("%s %s: the next run reports success\n%s", kind, struck, r.Judge.Text())
		}

		if violations := r.Judge.Verdict().Violations; len(violations) > 0 {
			t.Errorf("%s %s: %+v\n%s", kind, struck, violations, r.Judge.Text())

			return
		}

		r.sentBack(node, fromLifecycle)

		told := to(toLifecycle)
		told.Policy.Retry = map[string]string{node: r.State(node).BootID}
		r.Must(r.Worker("run-3"), told)
		r.At(toLifecycle)
	})

	return came
}

// TestRollback_NotOfANodeThatIsWell: what keeps it from service is the Kubernetes
// API, which is away until the time of the node is up.
func TestRollback_NotOfANodeThatIsWell(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
		var (
			since    time.Time
			rebooted atomic.Bool
		)

		ofMachines := []string{"Machine", "Members", "ClusterID", "Etcd", "Vitals", "Logs", "Component", "InstallerIdle"}
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if rebooted.Load() && time.Since(since) < cluster.DefaultNodeTimeout+30*time.Second && !slices.Contains(ofMachines, call.Method) {
				return fmt.Errorf("%w: the API server is away", cluster.ErrUnreachable)
			}

			err := next(ctx)

			if call.Method == "Reboot" && !rebooted.Load() {
				since = time.Now()
				rebooted.Store(true)
			}

			return err
		})

		r.Must(w, returning(to(toLifecycle)))
		r.At(toLifecycle)
		r.Once()

		if r.rollbacks() > 0 {
			t.Error("it was rolled back")
		}
	})
}

// TestRollback_NotOfAControlPlaneThatIsWell: it is the member of another one that
// complains.
func TestRollback_NotOfAControlPlaneThatIsWell(t *testing.T) {
	t.Parallel()

	for name, long := range map[string]time.Duration{"for a while": 45 * time.Minute, "for good": 100 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
				var since time.Time

				w := r.Worker("run-1")
				between := &liar{Client: w.Client, etcd: func(view *cluster.EtcdView) {
					if !since.IsZero() && time.Since(since) < long && view.Status.MemberID == r.memberOf("cp-2") {
						view.Status.Errors = []string{"etcdserver: no leader"}
					}
				}}
				w = r.WorkerOver(w.Client, between, between)
				r.during(w, "Reboot", "cp-1", func() { since = time.Now() })

				err := w.Apply(context.Background(), returning(to(toLifecycle)))
				r.Sound()

				if r.rollbacks() > 0 {
					t.Error("it was rolled back")
				}

				if long > time.Hour {
					if failed := failure(t, err, say.ErrUnhealthy, "cp-1"); !strings.Contains(failed.State, "nothing is wrong with the node itself") || !strings.Contains(failed.Seen, "cp-2") {
						t.Errorf("got %v", failed)
					}

					return
				}

				if err != nil {
					t.Fatal(err)
				}

				r.At(toLifecycle)
			})
		})
	}
}

// memberOf is the ID of the member of etcd on a control plane.
func (r *rig) memberOf(node string) uint64 {
	r.T.Helper()

	view, err := r.Client("looker").Etcd(context.Background(), r.State(node).Address, true)
	if err != nil {
		return 0
	}

	return view.Status.MemberID
}

// heedless is a connection to nodes that answer that they roll back, and do not.
type heedless struct {
	*ports.Client

	told int
}

// Rollback implements [cluster.Talos].
func (d *heedless) Rollback(context.Context, string) error {
	d.told++

	return nil
}

// TestRollback_WithoutAnyEffectIsNotTriedAgain: a node that was told and starts the
// new system again has a bootloader that nobody understands.
func TestRollback_WithoutAnyEffectIsNotTriedAgain(t *testing.T) {
	t.Parallel()

	fault := neverReady("worker-0")
	fault.Times = 0

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
		told := 0

		for number := range 3 {
			w := r.Worker(fmt.Sprintf("run-%d", number))
			between := &heedless{Client: w.Client}
			w = r.WorkerOver(w.Client, between, w.Client)

			failed := failure(t, w.Apply(context.Background(), returning(to(toLifecycle))), say.ErrUnhealthy, "worker-0")
			if number > 0 && !strings.Contains(failed.State, "it was sent back once before, and started the new system again") {
				t.Errorf("the state is %q", failed.State)
			}

			told += between.told
		}

		r.Sound()

		if told != 1 {
			t.Errorf("it was told %d times", told)
		}

		r.World().SetFaults(nil)
		r.Must(r.Worker("run-last"), returning(to(toLifecycle)))
		r.At(toLifecycle)
	})
}

// TestRollback_FailureIsAWarningOnceTheTargetIsSetBack: the target was set back to what runs while the
// node was on its way back.
func TestRollback_FailureIsAWarningOnceTheTargetIsSetBack(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{neverReady("worker-0")}}}, func(r *rig) {
		r.killedAfter("run-1", "Rollback", "worker-0", returning(to(toLifecycle)))
		time.Sleep(15 * time.Minute)

		w := r.Worker("run-2")
		r.Must(w, to(fromLifecycle))
		r.Sound()
		r.sentBack("worker-0", fromLifecycle)

		if said := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(said, "did not come up with") {
			t.Errorf("warned of %q", said)
		}
	})
}

// TestRollback_LeavesNoNodeIllAfterACrash: a node that gets well by the time of the next
// run is in service at its end, whatever was wrong with it.
func TestRollback_LeavesNoNodeIllAfterACrash(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		node   string
		effect model.Effect
	}{
		"stuck worker":        {"worker-0", model.EffectStuck},
		"stuck control plane": {"cp-1", model.EffectStuck},
		"etcd down":           {"cp-1", model.EffectEtcdDown},
	} {
		t.Run(name, func(t *testing.T) {
			fault := model.Fault{Node: given.node, Step: model.StepBoot, Effect: given.effect, Times: 1}

			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
				_, wait, _ := r.Crashing("run-1", returning(to(toLifecycle)), dieBefore, func(call ports.Call) bool { return call.Method == "Rollback" })
				wait()

				err := r.Worker("run-2").Apply(context.Background(), returning(to(toLifecycle)))
				if state := r.State(given.node); !state.Ready {
					t.Errorf("%s is %s and not ready after the next run, which ended with %v", given.node, state.Stage, err)
				}
			})
		})
	}
}

// TestRollback_AutomaticOneGoesOnWhereItWasKilled: the node does not get well by itself,
// so the next run asks for the rollback that the journal names.
func TestRollback_AutomaticOneGoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Talos: toLifecycle}

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
		_, wait, _ := r.Crashing("run-1", returning(to(toLifecycle)), dieBefore, func(call ports.Call) bool { return call.Method == "Rollback" })
		wait()

		_ = r.Worker("run-2").Apply(context.Background(), returning(to(toLifecycle)))
		r.sentBack("worker-0", fromLifecycle)
	})
}
