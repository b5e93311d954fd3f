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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
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

// upgraded is a cluster that was upgraded a while ago.
func (r *rig) upgraded(target string) {
	r.T.Helper()

	r.Must(r.Worker("run-first"), to(target))
	r.At(target)
	time.Sleep(time.Hour)
}

// remembered is what the journal remembers of a node.
func (r *rig) remembered(node string) (entry cluster.Entry, found bool) {
	entry, found = r.Journal().Confirmed[r.State(node).MachineID]

	return entry, found
}

func TestRollBackNode_WhereAPersonAsks(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		for _, node := range []string{"worker-0", "cp-1"} {
			t.Run(name+" "+node, func(t *testing.T) {
				inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 5}}, func(r *rig) {
					r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})
					r.upgraded(hop.to)

					w := r.Worker("run-back")
					request := harness.OfNode(node)
					request.Reason = "its storage is slow"

					entry, err := w.RollBackNode(context.Background(), request)
					if err != nil {
						t.Fatalf("%v\n%s", err, r.Judge.Text())
					}

					w.Notes.Finish()
					r.Sound()
					r.sentBack(node, hop.from)

					if entry.Phase != cluster.PhaseRolledBack || entry.Previous.String() != hop.from || entry.Target.String() != hop.to {
						t.Errorf("got %+v", entry)
					}

					if said := strings.Join(r.statuses("talos-status"), " "); !strings.HasSuffix(said, "completed rolling-back idle") {
						t.Errorf("talos-status was %q", said)
					}

					if _, found := r.remembered(node); found {
						t.Error("the journal still remembers what the node ran before")
					}

					// Whoever asks again finds it done, and nothing more is done.
					again := r.Worker("run-again")
					if err := again.RollBack(context.Background(), node); err != nil {
						t.Errorf("asked again: %v", err)
					}

					if _, mutating := again.Client.Calls(); mutating != 0 {
						t.Errorf("asked again it made %d mutating calls", mutating)
					}

					r.keptUntilTold(node, hop.from, hop.to)
				})
			})
		}
	}
}

// keptUntilTold wants the node to be left with its old system until somebody says that
// it may be tried again.
func (r *rig) keptUntilTold(node, from, target string) {
	r.T.Helper()

	kept := r.Worker("run-kept")
	failed := failure(r.T, kept.Apply(context.Background(), to(target)), say.ErrBlocked, node)

	for _, want := range []string{"was rolled back to Talos " + from + ", as run-back (talosupgrade_cluster.test) asked at ", "(its storage is slow)", "talosupgrade_retry_node"} {
		if !strings.Contains(failed.Detail(), want) {
			r.T.Errorf("%q is missing in:\n%s", want, failed.Detail())
		}
	}

	if _, mutating := kept.Client.Calls(); mutating != 0 {
		r.T.Errorf("the refused run made %d mutating calls", mutating)
	}

	if err := r.Worker("run-retry").Retry(context.Background(), node); err != nil {
		r.T.Fatal(err)
	}

	if entry := r.entryOf(node); !entry.Retry || entry.Phase != cluster.PhaseRolledBack {
		r.T.Errorf("the journal says %+v", entry)
	}

	r.Must(r.Worker("run-told"), to(target))
	r.At(target)
	r.Settled(target)
}

// TestRollBackNode_RefusedWhileSuspended: nothing new is begun, whoever asks for it.
func TestRollBackNode_RefusedWhileSuspended(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)
		r.brake()

		failed := failure(t, r.Worker("run-back").RollBack(context.Background(), "worker-0"), say.ErrSuspended, "")
		if !strings.Contains(failed.Seen, "storage is degraded") || failed.State != "No node was disturbed." {
			t.Errorf("got %+v", failed)
		}

		r.untouchedBy(toLifecycle)
	})
}

// untouchedBy fails the test unless every node runs the version as before.
func (r *rig) untouchedBy(talos string) {
	r.T.Helper()
	r.Sound()
	r.AllRun(talos)
	r.Tidy()

	if count := r.rollbacks(); count > 0 {
		r.T.Errorf("%d rollbacks", count)
	}
}

// TestRollBackNode_RefusedWhereItIsNotCertain is about each reason against one: said in one
// sentence, before anything is touched.
func TestRollBackNode_RefusedWhereItIsNotCertain(t *testing.T) {
	t.Parallel()

	const node = "worker-0"

	forget := func(change func(*cluster.Entry)) func(*rig) {
		return func(r *rig) {
			key := r.State(node).MachineID

			r.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal {
				entry := j.Confirmed[key]
				change(&entry)

				return j.WithConfirmed(key, entry, nil)
			})
		}
	}

	for name, test := range map[string]struct {
		node    string
		prepare func(*rig)
		says    string
	}{
		"no such node": {node: "worker-9", says: `No node of this cluster is called "worker-9". There are: cp-0, cp-1, cp-2, worker-0.`},
		"rebooted since": {prepare: func(r *rig) {
			if _, err := r.World().Reboot(context.Background(), node, model.RebootDefault); err != nil {
				r.T.Fatal(err)
			}

			time.Sleep(15 * time.Minute)
		}, says: "It has booted since its upgrade to Talos 1.13.4 was confirmed"},
		"nothing is remembered": {prepare: func(r *rig) {
			r.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal { j.Confirmed = nil; return j })
		}, says: "The journal does not say what it ran before"},
		"another platform":                {prepare: forget(func(e *cluster.Entry) { e.Platform = "aws" }), says: "and ran on aws when it was upgraded"},
		"another version":                 {prepare: forget(func(e *cluster.Entry) { e.Target = version.MustParse("1.13.5") }), says: "It runs Talos 1.13.4, which is not what was installed"},
		"another schematic":               {prepare: forget(func(e *cluster.Entry) { e.Schematic = "ce4c" }), says: "It shows no schematic"},
		"what it runs already":            {prepare: forget(func(e *cluster.Entry) { e.Previous = version.MustParse(toLifecycle) }), says: "It runs what it ran before"},
		"Kubernetes that it does not run": {prepare: forget(func(e *cluster.Entry) { e.Previous = version.MustParse("1.6.0") }), says: "Its previous Talos 1.6.0 does not fit the Kubernetes that runs now"},
		"etcd that has moved on": {node: "cp-1", prepare: func(r *rig) {
			key := r.State("cp-1").MachineID

			r.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal {
				entry := j.Confirmed[key]
				entry.PreviousEtcd = "3.4.0"

				return j.WithConfirmed(key, entry, nil)
			})
		}, says: "could not join it"},
		"an upgrade in the middle": {prepare: func(r *rig) {
			key := r.State(node).MachineID

			r.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal {
				entry := j.Confirmed[key]
				entry.Phase = cluster.PhaseInstalled

				return j.With(key, entry)
			})
		}, says: "It is in the middle of its upgrade to Talos 1.13.4, which the next terraform apply finishes."},
		"a container": {prepare: nil, says: "platform container"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
				r.upgraded(toLifecycle)

				if test.prepare != nil {
					test.prepare(r)
				}

				asked := test.node
				if asked == "" {
					asked = node
				}

				w := r.Worker("run-back")
				if name == "a container" {
					between := &liar{Client: w.Client, machine: func(m *cluster.Machine) { m.Platform = "container" }}
					w = r.WorkerOver(w.Client, between, between)
				}

				about := asked
				if name == "no such node" {
					about = ""
				}

				failed := failure(t, w.RollBack(context.Background(), asked), say.ErrBlocked, about)
				if !strings.Contains(failed.Seen, test.says) || failed.State != "Nothing was touched." {
					t.Errorf("seen is %q, state %q", failed.Seen, failed.State)
				}

				if _, mutating := w.Client.Calls(); mutating != 0 {
					t.Errorf("the refused rollback made %d mutating calls", mutating)
				}

				r.Sound()

				if count := r.rollbacks(); count > 0 {
					t.Errorf("%d rollbacks", count)
				}
			})
		})
	}
}

// TestRollBackNode_WaitsForItsGuards, and gives up where they do not come to hold: another
// control plane is away, or another worker.
func TestRollBackNode_WaitsForItsGuards(t *testing.T) {
	t.Parallel()

	for node, away := range map[string]string{"cp-1": "cp-2", "worker-0": "worker-1"} {
		t.Run(node, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				r.upgraded(toLifecycle)
				r.World().SetFaults([]model.Fault{{Node: away, Step: model.StepKubelet, Effect: model.EffectNotReady}})
				time.Sleep(2 * time.Minute)

				failed := failure(t, r.Worker("run-back").RollBack(context.Background(), node), say.ErrGuard, node)
				if !strings.Contains(failed.Detail(), away) || failed.State != "The node runs as before and is not cordoned by this run." {
					t.Errorf("got %v", failed)
				}

				r.Sound()

				if count := r.rollbacks(); count > 0 {
					t.Errorf("%d rollbacks", count)
				}

				if _, found := r.remembered(node); !found {
					t.Error("what it ran before is forgotten, though nothing was done")
				}
			})
		})
	}
}

// TestRollBackNode_RefusedBesideAnotherRun: it takes the same lease.
func TestRollBackNode_RefusedBesideAnotherRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.upgraded(toLifecycle)

		w := r.Worker("run-next")
		r.during(w, "Cordon", "worker-0", func() {
			for name, does := range map[string]func(context.Context, string) error{
				"roll back": r.Worker("run-back").RollBack,
			} {
				failed := failure(t, does(context.Background(), "worker-1"), say.ErrLocked, "")
				if !strings.Contains(failed.Seen, "run-next") || !strings.Contains(failed.Remedy, "invoke the action again") || strings.Contains(failed.Remedy, "apply again") {
					t.Errorf("%s: %+v", name, failed)
				}
			}
		})
		r.Must(w, to("1.13.6"))
		r.At("1.13.6")
	})
}

// TestRollBackNode_RefusalLeavesTheNodeInService: the node has no other system.
func TestRollBackNode_RefusalLeavesTheNodeInService(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)
		r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepRollback, Effect: model.EffectFail}})

		failed := failure(t, r.Worker("run-back").RollBack(context.Background(), "worker-0"), cluster.ErrRefused, "worker-0")
		if failed.State != "The node runs as before and is not cordoned by this run." {
			t.Errorf("got %+v", failed)
		}

		r.untouchedBy(toLifecycle)

		// Nothing was done to it, so that what is remembered is as true as before.
		r.World().SetFaults(nil)

		if err := r.Worker("run-again").RollBack(context.Background(), "worker-0"); err != nil {
			t.Fatalf("%v\n%s", err, r.Judge.Text())
		}

		r.Sound()
		r.sentBack("worker-0", fromLifecycle)
	})
}

// TestRollBackNode_NodeThatStartsTheNewSystemAgainIsNamed: it was told, and did not obey.
func TestRollBackNode_NodeThatStartsTheNewSystemAgainIsNamed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		w := r.Worker("run-back")
		between := &heedless{Client: w.Client}
		w = r.WorkerOver(w.Client, between, w.Client)

		failed := failure(t, w.RollBack(context.Background(), "worker-0"), nil, "worker-0")
		if !strings.Contains(failed.Seen, "it runs Talos 1.13.4") || !strings.Contains(failed.Remedy, "not certain any more") {
			t.Errorf("got %+v", failed)
		}

		r.untouchedBy(toLifecycle)

		failed = failure(t, r.Worker("run-again").RollBack(context.Background(), "worker-0"), say.ErrBlocked, "worker-0")
		if !strings.Contains(failed.Seen, "The journal does not say what it ran before") {
			t.Errorf("got %+v", failed)
		}
	})
}

// TestRollBackNode_GoesOnWhereItWasKilled strikes it at each of its calls
// that change something, in every way. Another rollback finishes it, or another apply.
func TestRollBackNode_GoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()

	for _, node := range []string{"worker-0", "cp-1"} {
		for _, next := range []string{"rollback", "apply"} {
			t.Run(node+" then "+next, func(t *testing.T) {
				t.Parallel()

				for mutation, kind := 1, 0; ; kind++ {
					if kind == len(harness.Crashes()) {
						mutation, kind = mutation+stride, 0
					}

					if !killedInRollback(t, node, next, harness.Crashes()[kind], mutation) || t.Failed() {
						t.Logf("fewer than %d mutating calls", mutation)

						return
					}
				}
			})
		}
	}
}

// killedInRollback strikes at one mutation. It reports whether there was such a call.
func killedInRollback(t *testing.T, node, next string, kind crash, mutation int) bool {
	t.Helper()

	came := false

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		count := 0
		struck, wait, _ := r.CrashingIn("run-back", func(ctx context.Context, w *worker) error { return w.RollBack(ctx, node) }, kind, func(call ports.Call) bool {
			if call.Mutation > 0 && call.Method != "WriteLease" {
				count++
			}

			return count == mutation && call.Mutation > 0 && call.Method != "WriteLease"
		})
		came = struck != ""

		wait()

		if !came {
			return
		}

		var err error
		if next == "rollback" {
			err = r.Worker("run-2").RollBack(context.Background(), node)
		} else {
			err = r.Worker("run-2").Apply(context.Background(), to(toLifecycle))
		}

		if violations := r.Judge.Verdict().Violations; len(violations) > 0 {
			t.Errorf("%s %s: %+v\n%s", kind, struck, violations, r.Judge.Text())

			return
		}

		switch {
		case next == "rollback" && err != nil:
			t.Errorf("%s %s: %v\n%s", kind, struck, err, r.Judge.Text())
		case next == "apply" && r.rollbacks() == 0:
			// Nothing was begun, or it was not known whether the node had been told, so
			// that it was rebooted.
			if err != nil {
				t.Errorf("%s %s: %v\n%s", kind, struck, err, r.Judge.Text())
			}

			r.At(toLifecycle)

			return
		case next == "apply" && err == nil:
			t.Errorf("%s %s: the apply says nothing of the rollback\n%s", kind, struck, r.Judge.Text())
		case next == "apply":
			if said := err.Error(); !strings.Contains(said, "as run-back (talosupgrade_cluster.test) asked") {
				t.Errorf("%s %s: the apply says %s", kind, struck, said)
			}
		}

		r.sentBack(node, fromLifecycle)

		if got := r.rollbacks(); got != 1 {
			t.Errorf("%s %s: %d rollbacks\n%s", kind, struck, got, r.Judge.Text())
		}

		if err := r.Worker("run-retry").Retry(context.Background(), node); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-3"), to(toLifecycle))
		r.At(toLifecycle)
	})

	return came
}

// TestRollBackNode_CancelledSaysWhereTheNodeIs, and the next one goes on there.
func TestRollBackNode_CancelledSaysWhereTheNodeIs(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		w := r.Worker("run-back")
		r.during(w, "Rollback", "worker-0", cancel)

		failed := failure(t, w.RollBack(ctx, "worker-0"), context.Canceled, "worker-0")
		if failed.Summary != "The rollback of node worker-0 was cancelled" || !strings.Contains(failed.State, "was to start its old system again") {
			t.Errorf("got %+v", failed)
		}

		if holder := r.Lease().Holder; holder != "" {
			t.Errorf("the lease is still held by %s", holder)
		}

		if err := r.Worker("run-again").RollBack(context.Background(), "worker-0"); err != nil {
			t.Fatalf("%v\n%s", err, r.Judge.Text())
		}

		r.Sound()
		r.sentBack("worker-0", fromLifecycle)
	})
}

// TestRollBackNode_RecordWithoutAReplyIsTakenBack: the node was said to run as before, and the next apply leaves it so.
func TestRollBackNode_RecordWithoutAReplyIsTakenBack(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		key := r.State("worker-0").MachineID

		w := r.Worker("run-back")
		w.Client.Intercept(func(within context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(within)
			if call.Method == "WriteJournal" && ctx.Err() == nil && r.Journal().Entries[key].Phase == cluster.PhaseRollingBack {
				cancel()

				return fmt.Errorf("no reply: %w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
			}

			return err
		})

		_ = failure(t, w.RollBack(ctx, "worker-0"), context.Canceled, "worker-0")

		if _, found := r.remembered("worker-0"); !found || len(r.Journal().Entries) > 0 {
			t.Errorf("the journal says %+v", r.Journal().Entries)
		}

		r.Must(r.Worker("run-next"), to(toLifecycle))
		r.Sound()
		r.At(toLifecycle)
	})
}

// TestRollBackNode_NodeThatDoesNotReturnIsNamed, with how long it was waited for.
func TestRollBackNode_NodeThatDoesNotReturnIsNamed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)
		r.World().SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}})

		failed := failure(t, r.Worker("run-back").RollBack(context.Background(), "worker-0"), say.ErrNeverReturned, "worker-0")
		if !strings.Contains(failed.Remedy, "Look at its console.") || r.entryOf("worker-0").Phase != cluster.PhaseRollingBack {
			t.Errorf("got %+v", failed)
		}

		r.Sound()

		if said := strings.Join(r.statuses("talos-status"), " "); !strings.HasSuffix(said, "rolling-back failed") {
			t.Errorf("talos-status was %q", said)
		}
	})
}

// TestRollBackNode_KubernetesAloneWaitsForAnUnfinishedOne: whatever reboots the node shows what
// became of it.
func TestRollBackNode_KubernetesAloneWaitsForAnUnfinishedOne(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		_, wait, _ := r.CrashingIn("run-back", func(ctx context.Context, w *worker) error { return w.RollBack(ctx, "worker-0") }, dieAfter, func(call ports.Call) bool {
			return call.Method == "Rollback"
		})
		wait()
		time.Sleep(15 * time.Minute)

		request := to(toLifecycle)
		request.Target = cluster.Target{Kubernetes: version.MustParse("1.35.2")}

		failed := failure(t, r.Worker("run-2").Apply(context.Background(), request), say.ErrBlocked, "worker-0")
		if !strings.Contains(failed.Detail(), "it is being rolled back to Talos 1.13.2, as run-back (talosupgrade_cluster.test) asked at ") {
			t.Errorf("got %v", failed)
		}

		if err := r.Worker("run-3").RollBack(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		r.Sound()
		r.sentBack("worker-0", fromLifecycle)
	})
}

// TestAllowRetry_RefusedWhereNothingIsKept, and where the node is in the middle of something.
func TestAllowRetry_RefusedWhereNothingIsKept(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.upgraded(toLifecycle)

		for node, says := range map[string]string{
			"worker-0": "no image is kept from it", "worker-9": `No node of this cluster is called "worker-9"`,
		} {
			about := node
			if node == "worker-9" {
				about = ""
			}

			w := r.Worker("run-retry")

			failed := failure(t, w.Retry(context.Background(), node), say.ErrBlocked, about)
			if !strings.Contains(failed.Seen, says) {
				t.Errorf("seen is %q", failed.Seen)
			}

			if _, mutating := w.Client.Calls(); mutating != 0 {
				t.Errorf("it made %d mutating calls", mutating)
			}
		}

		r.killedAfter("run-next", "Install", "worker-0", to("1.13.6"))
		time.Sleep(time.Minute)

		failed := failure(t, r.Worker("run-retry").Retry(context.Background(), "worker-0"), say.ErrBlocked, "worker-0")
		if !strings.Contains(failed.Seen, "in the middle of its upgrade to Talos 1.13.6") {
			t.Errorf("seen is %q", failed.Seen)
		}

		r.Must(r.Worker("run-last"), to("1.13.6"))
		r.At("1.13.6")
	})
}

// TestAllowRetry_LastsUntilTheNextFallback, and changes that one entry.
func TestAllowRetry_LastsUntilTheNextFallback(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		apply := func(run string) error { return r.Worker(run).Apply(context.Background(), returning(to(toLifecycle))) }

		r.World().SetFaults([]model.Fault{neverReady("worker-0")})

		_ = failure(t, apply("run-1"), say.ErrRolledBack, "worker-0")
		before := r.entryOf("worker-0")

		for range 2 {
			if err := r.Worker("run-retry").Retry(context.Background(), "worker-0"); err != nil {
				t.Fatal(err)
			}
		}

		wanted, got := before, r.entryOf("worker-0")
		wanted.Retry, wanted.Run, wanted.Written = true, "run-retry", got.Written

		if got != wanted {
			t.Errorf("the entry is %+v, want %+v", got, wanted)
		}

		writes := 0

		for _, event := range r.Judge.Of(history.KindJournal) {
			if event.Detail["client"] == "run-retry" && event.Node == "worker-0" {
				writes++
			}
		}

		if writes != 1 {
			t.Errorf("the entry was written %d times", writes)
		}

		denied, journals := r.Worker("run-denied"), 0
		denied.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteJournal" {
				journals++
			}

			if journals > 1 {
				return cluster.ErrDenied
			}

			return next(ctx)
		})

		_, err := denied.RollBackNode(context.Background(), harness.OfNode("worker-0"))
		if failed := failure(t, err, cluster.ErrDenied, "worker-0"); !strings.Contains(failed.State, "may install the same image again") {
			t.Errorf("it says %q", failed.State)
		}

		// Whoever asks for a rollback after it takes it back.
		back, err := r.Worker("run-back").RollBackNode(context.Background(), harness.OfNode("worker-0"))
		if err != nil || back.Image != before.Image || r.entryOf("worker-0").Retry {
			t.Errorf("got %+v, %v, and the entry is %+v", back, err, r.entryOf("worker-0"))
		}

		_ = failure(t, apply("run-refused"), say.ErrBlocked, "worker-0")

		if err := r.Worker("run-retry").Retry(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		r.World().SetFaults([]model.Fault{neverReady("worker-0")})

		_ = failure(t, apply("run-2"), say.ErrRolledBack, "worker-0")
		_ = failure(t, apply("run-3"), say.ErrBlocked, "worker-0")

		if err := r.Worker("run-retry").Retry(context.Background(), "worker-0"); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-4"), returning(to(toLifecycle)))
		r.At(toLifecycle)
	})
}
