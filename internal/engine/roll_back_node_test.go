// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

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
