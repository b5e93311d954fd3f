// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// undrained is a request that does not look at the pods before the run, so that
// the drain itself finds out.
func undrained(request engine.Request) engine.Request {
	request.Policy.SkipChecks = map[string]bool{cluster.CheckDrain: true}

	return request
}

// Before anything is touched a budget that never gives is named; a transient
// shortage is waited for.
func TestDrain_BudgetsAreLookedAtBeforeTheFirstCordon(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		prepare func(*rig)
		refused bool
		// within is how long the answer may take.
		within time.Duration
	}{
		"one that never gives": {
			prepare: func(r *rig) { r.AddPod("precious", "worker-1", &apiserver.Budget{MinAvailable: 1}) }, refused: true, within: time.Second,
		},
		"one that has nothing to give for a while": {
			prepare: func(r *rig) {
				r.AddApp("web", 3, &apiserver.Budget{MinAvailable: 3})
				r.StartPod(apiserver.PodSpec{App: "web", Node: "worker-0", NotReady: true})
				time.AfterFunc(3*time.Minute, func() { r.RemoveBudget("web") })
			},
		},
		"one pod never comes up": {
			prepare: func(r *rig) {
				r.AddApp("web", 3, &apiserver.Budget{MinAvailable: 3})
				r.StartPod(apiserver.PodSpec{App: "web", Node: "worker-0", NotReady: true})
			}, refused: true, within: 6 * time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				given.prepare(r)

				begun, w := time.Now(), r.Worker("run-1")

				err := w.Apply(context.Background(), to(toLifecycle))
				if !given.refused {
					if err != nil {
						t.Fatal(err)
					}

					r.At(toLifecycle)

					return
				}

				if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), "check drain") || time.Since(begun) > given.within {
					t.Errorf("after %s: got %v, want the budget", time.Since(begun), err)
				}

				if _, mutating := w.Client.Calls(); mutating > 0 {
					t.Errorf("%d mutating calls, want none", mutating)
				}
			})
		})
	}
}

func TestDrain_BudgetThatNeverGivesStopsTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.AddPod("precious", "worker-1", &apiserver.Budget{MinAvailable: 1})

		err := r.Worker("run-1").Apply(context.Background(), undrained(to(toLifecycle)))
		failed := failure(t, err, say.ErrDrain, "worker-1")

		for _, want := range []string{"workload/precious-1", "workload/precious", "drain.on_timeout"} {
			if !strings.Contains(failed.Detail(), want) {
				t.Errorf("%q is missing in: %s", want, failed.Detail())
			}
		}

		r.Sound()
		r.stopped("worker-1", false)

		if deleted := r.Judge.Of(history.KindDelete); len(deleted) != 0 {
			t.Errorf("pods were deleted: %+v", deleted)
		}

		r.RemoveBudget("precious")
		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestDrain_CutOffByNodeTimeoutNamesPodsAndLimit: what is left, what keeps it, and which
// time was over.
func TestDrain_CutOffByNodeTimeoutNamesPodsAndLimit(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.AddPod("precious", "worker-1", &apiserver.Budget{MinAvailable: 1})

		request := undrained(to(toLifecycle))
		request.Policy.NodeTimeout, request.Policy.Drain.Timeout = 3*time.Minute, 10*time.Minute

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrDrain, "worker-1")

		const want = "node_timeout (3m0s) was over while these pods were still there: workload/precious-1: unable to evict pod workload/precious-1: disruption budget exhausted: The disruption budget precious needs 1 healthy pods and has 1 currently\n\n" +
			"The node runs as before and is not cordoned by this run. No other node is being upgraded; all others are in service.\n\n" +
			"Make room in the PodDisruptionBudgets, or give the node longer: node_timeout covers its whole upgrade and has to be longer than drain.timeout. Then run terraform apply again."
		if failed.Detail() != want {
			t.Errorf("got\n%s\nwant\n%s", failed.Detail(), want)
		}

		r.stopped("worker-1", false)
	})
}

// TestDrain_PodThatIsStoppingIsBlamedOnNoBudget: what was told to stop is kept by no
// budget, and is not told again by deleting it.
func TestDrain_PodThatIsStoppingIsBlamedOnNoBudget(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.AddPod("slow", "worker-1", nil)

		request := undrained(to(toLifecycle))
		request.Policy.Drain.Timeout = 2 * time.Second

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrDrain, "worker-1")

		const want = "after 2s these pods were still there: workload/slow-1: is shutting down\n\n" +
			"The node runs as before and is not cordoned by this run. No other node is being upgraded; all others are in service.\n\n" +
			"They were told to stop and have not stopped yet: find out what keeps them (a long terminationGracePeriodSeconds, a volume, a finalizer), or set a longer drain.timeout, and keep node_timeout longer than that, then run terraform apply again."
		if failed.Detail() != want {
			t.Errorf("got\n%s\nwant\n%s", failed.Detail(), want)
		}

		r.stopped("worker-1", false)
	})
}

func TestDrain_PodsAreDeletedAfterTheTimeoutWhenThePolicySaysSo(t *testing.T) {
	t.Parallel()

	judging := []checker.Option{checker.DrainDelete(cluster.DefaultDrainTimeout)}

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.AddPod("precious", "worker-1", &apiserver.Budget{MinAvailable: 1})

		request := to(toLifecycle)
		request.Policy.Drain.OnTimeout = cluster.DrainDelete
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()

		if deleted := r.Judge.Of(history.KindDelete); len(deleted) != 1 || deleted[0].Detail["budget"] != "workload/precious" {
			t.Errorf("deleted %+v, want the one pod against its budget", deleted)
		}
	})
}

func TestDrain_LegacyUpgradeCannotLeaveItOut(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: fromLegacy}}, func(r *rig) {
		request := to(toLegacy)
		request.Policy.Drain.Enabled = false

		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), request), say.ErrBlocked, "worker-0")

		if !strings.Contains(failed.Detail(), "drain.enabled") {
			t.Errorf("the attribute is not named: %v", failed)
		}

		if _, mutating := w.Client.Calls(); mutating != 0 {
			t.Errorf("the refused run made %d mutating calls", mutating)
		}
	})
}

func TestDrain_DisabledEvictsNothing(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.AddApp("web", 4, nil)

		request := to(toLifecycle)
		request.Policy.Drain.Enabled = false
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
		r.Once()

		if evicted := r.Judge.Of(history.KindEvict); len(evicted) != 0 {
			t.Errorf("evicted %+v", evicted)
		}
	})
}

// TestCatalogue48_VolumesThatStayAttachedAreWaitedFor: what a driver takes some seconds to detach has left the node
// when it reboots, and what does not leave it is waited for as long as the policy says.
func TestCatalogue48_VolumesThatStayAttachedAreWaitedFor(t *testing.T) {
	t.Parallel()

	const still = "after 2m0s volumes were still attached to the node that no pod on it uses: pv-db (csi.example.com)"

	for name, given := range map[string]struct {
		// stays is how long the volume stays attached; 0 for as long as usual.
		stays  time.Duration
		change func(*cluster.DrainPolicy)
		// ignores: nobody waits.
		ignores bool
		// waited is how long the drain took at least, and said what it ended with.
		waited time.Duration
		said   string
		failed bool
	}{
		"that leave it":  {waited: 10 * time.Second},
		"that stay":      {stays: 4 * time.Hour, waited: 2 * time.Minute, said: still + ". The upgrade goes on, and pods on other nodes may have to wait for these volumes."},
		"and are needed": {stays: 4 * time.Hour, change: func(p *cluster.DrainPolicy) { p.Volumes = cluster.RequireVolumes }, waited: 2 * time.Minute, said: still, failed: true},
		"and do not matter": {
			stays: 4 * time.Hour, change: func(p *cluster.DrainPolicy) { p.Volumes = cluster.IgnoreVolumes }, ignores: true,
		},
		"where a drain may take less": {
			stays: 4 * time.Hour, change: func(p *cluster.DrainPolicy) { p.Timeout, p.Volumes = time.Minute, cluster.RequireVolumes }, waited: time.Minute,
			said: strings.ReplaceAll(still, "2m0s", "1m0s"), failed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			of := setup{}
			if given.ignores {
				of.Judging = append(of.Judging, checker.IgnoresVolumes())
			}

			inCluster(t, of, func(r *rig) {
				if given.stays > 0 {
					r.KeepAttached(given.stays)
				}

				r.StartPod(apiserver.PodSpec{App: "db", Node: "worker-0", Volume: "pv-db"})

				request := to(toLifecycle)
				if given.change != nil {
					given.change(&request.Policy.Drain)
				}

				w := r.Worker("run-1")
				err := w.Apply(context.Background(), request)
				said := strings.Join(w.Texts(cluster.EventWarning), "\n")

				if given.failed {
					failed := failure(t, err, say.ErrDrain, "worker-0")
					said = failed.Detail()
					r.stopped("worker-0", false)
				} else if err != nil {
					t.Fatal(err)
				}

				if !strings.Contains(said, given.said) || given.said == "" && said != "" {
					t.Errorf("it says %q, want %q", said, given.said)
				}

				r.Sound()

				if took := r.drained("worker-0"); took < given.waited || given.waited == 0 && took > 10*time.Second {
					t.Errorf("the drain of worker-0 took %s, want %s", took, given.waited)
				}

				if !given.failed {
					r.At(toLifecycle)
					r.Once()
				}
			})
		})
	}
}

// TestDrain_VolumesAreNotWaitedForWithoutACordon: a node that is in service again does not reboot.
func TestDrain_VolumesAreNotWaitedForWithoutACordon(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.KeepAttached(4 * time.Hour)
		r.StartPod(apiserver.PodSpec{App: "db", Node: "worker-0", Volume: "pv-db"})

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "VolumesLeft" && call.Node == "worker-0" {
				if err := r.CordonAsPerson("worker-0", false); err != nil {
					t.Error(err)
				}
			}

			return next(ctx)
		})

		_ = failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrUncordoned, "worker-0")

		r.Sound()
		r.stopped("worker-0", false)
	})
}

// drained is how long it took from the first eviction on a node until its installer ran or,
// where none did, until it was uncordoned.
func (r *rig) drained(node string) time.Duration {
	r.T.Helper()

	var begun float64

	for _, event := range r.Judge.Of(history.KindEvict, history.KindJournal, history.KindCordon) {
		switch {
		case event.Kind == history.KindEvict && event.Node == node && begun == 0:
			begun = event.Sim
		case begun == 0:
		case event.Kind == history.KindJournal && event.Detail["phase"] != "", event.Kind == history.KindCordon && event.Node == node:
			return time.Duration((event.Sim - begun) * float64(time.Second))
		}
	}

	r.T.Fatalf("nothing was drained from %s\n%s", node, r.Judge.Text())

	return 0
}

// TestDrain_VolumesThatNobodyMayList: a warning, or the end where they are required.
func TestDrain_VolumesThatNobodyMayList(t *testing.T) {
	t.Parallel()

	for _, volumes := range []cluster.VolumeWait{cluster.AwaitVolumes, cluster.RequireVolumes} {
		t.Run(string(volumes), func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{}, func(r *rig) {
				r.AddApp("web", 2, nil)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "VolumesLeft" {
						return fmt.Errorf("unable to list the pods on %s: %w", call.Node, cluster.ErrDenied)
					}

					return next(ctx)
				})

				request := to(toLifecycle)
				request.Policy.Drain.Volumes = volumes

				begun := time.Now()
				err := w.Apply(context.Background(), request)

				if volumes == cluster.AwaitVolumes {
					const want = "whether volumes are still attached to the node is not known: unable to list the pods on worker-"
					if said := strings.Join(w.Texts(cluster.EventWarning), "\n"); err != nil || strings.Count(said, want) != 1 {
						t.Errorf("it ended with %v and says %q, want %q once", err, said, want)
					}

					return
				}

				failed := failure(t, err, say.ErrDrain, "worker-0")
				if detail := failed.Detail(); !strings.Contains(detail, "Allow the credentials to list volumeattachments") || time.Since(begun) > 5*time.Minute {
					t.Errorf("after %s it says %q", time.Since(begun), detail)
				}

				r.stopped("worker-0", false)
			})
		})
	}
}

func TestCordon_OfAPersonSurvives(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		options model.Options
		node    string
		target  string
	}{
		"only worker":           {model.Options{ControlPlanes: 3, Workers: 1}, "worker-0", toLifecycle},
		"control plane":         {model.Options{}, "cp-1", toLifecycle},
		"only worker, legacy":   {model.Options{ControlPlanes: 3, Workers: 1, Talos: fromLegacy}, "worker-0", toLegacy},
		"control plane, legacy": {model.Options{Talos: fromLegacy}, "cp-1", toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: given.options}, func(r *rig) {
				if err := r.CordonAsPerson(given.node, true); err != nil {
					t.Fatal(err)
				}

				r.Must(r.Worker("run-1"), to(given.target))
				r.Sound()
				r.Once()

				for node, found := range r.Judge.Verdict().Nodes {
					if want := node == given.node; found.Cordoned != want {
						t.Errorf("%s: cordoned is %t, want %t", node, found.Cordoned, want)
					}
				}
			})
		})
	}
}

// TestCordon_OfAPersonUnderTheMarkOfADeadRunSurvives: kubectl uncordon leaves the mark.
func TestCordon_OfAPersonUnderTheMarkOfADeadRunSurvives(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 1}}, func(r *rig) {
		r.dieBehind("Cordon", r.Worker("run-1"), to(toLifecycle))

		for _, on := range []bool{false, true} {
			if err := r.CordonAsPerson("worker-0", on); err != nil {
				t.Fatal(err)
			}
		}

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.Sound()
		r.Once()

		if !r.Judge.Verdict().Nodes["worker-0"].Cordoned {
			t.Error("the cordon of a person was lifted")
		}
	})
}

func TestCordon_CordonedWorkerSpendsTheBudgetOfTheOthers(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		if err := r.CordonAsPerson("worker-0", true); err != nil {
			t.Fatal(err)
		}

		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrBlocked, "")

		if !strings.Contains(failed.Detail(), "worker-0 (cordoned)") {
			t.Errorf("the cordoned worker is not named: %v", failed)
		}

		if _, mutating := w.Client.Calls(); mutating != 0 {
			t.Errorf("the refused run made %d mutating calls", mutating)
		}

		if err := r.CordonAsPerson("worker-0", false); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Once()
	})
}

// TestDrain_OfANotReadyNodeDoesNotWaitForItsKubelet: nobody is there to
// confirm that a pod has stopped, and a budget holds all the same.
func TestDrain_OfANotReadyNodeDoesNotWaitForItsKubelet(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			sick := model.Fault{Node: "worker-1", Step: model.StepKubelet, Effect: model.EffectNotReady, Times: 1}

			inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 139, Faults: []model.Fault{sick}}}, func(r *rig) {
				r.AddPod("plain", "worker-1", nil)
				r.AddPod("plain", "worker-1", nil)
				time.Sleep(time.Minute)

				r.Must(r.Worker("run-1"), bare(to(hop.to)))
				r.At(hop.to)
				r.Once()

				if evicted := r.Judge.Of(history.KindEvict); len(evicted) < 2 || evicted[0].Node != "worker-1" || evicted[1].Node != "worker-1" {
					t.Errorf("evicted %+v, want both pods of worker-1 first", evicted)
				}

				// The legacy call drains once more, and that is the node's affair.
				recorded := slices.DeleteFunc(r.Judge.Of(history.KindJournal), func(e history.Event) bool { return e.Node == "" })
				begun, drained := r.spans()[0], recorded[0]
				if begun.node != "worker-1" || drained.Node != "worker-1" || drained.Sim-begun.begin > 10 {
					t.Errorf("worker-1 was not drained within 10 s: %+v, %+v", begun, drained)
				}
			})
		})
	}
}

// TestDrain_OtherNodeThatIsNotReadyForAMomentHasRoom: pods are evicted all the same, as their budgets want it.
func TestDrain_OtherNodeThatIsNotReadyForAMomentHasRoom(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.AddPod("plain", "worker-0", nil)

		w := r.Worker("run-1")
		r.during(w, "Cordon", "worker-0", func() {
			r.World().SetFaults([]model.Fault{{Node: "worker-1", Step: model.StepKubelet, Effect: model.EffectNotReady, For: 20 * time.Second}})
		})

		r.Must(w, bare(to(toLifecycle)))
		r.At(toLifecycle)

		if evicted := r.Judge.Of(history.KindEvict); len(evicted) == 0 || evicted[0].Node != "worker-0" {
			t.Errorf("evicted %+v, want the pod of worker-0", evicted)
		}
	})
}

// TestDrain_WaitsForAKubeletThatIsNotReadyForAMoment: its pods have not stopped.
func TestDrain_WaitsForAKubeletThatIsNotReadyForAMoment(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		r.AddPod("plain", "worker-1", nil)

		w := r.Worker("run-1")
		r.during(w, "Evict", "", func() {
			r.World().SetFaults([]model.Fault{{Node: "worker-1", Step: model.StepKubelet, Effect: model.EffectNotReady, For: 20 * time.Second}})
		})

		r.Must(w, bare(to(toLifecycle)))
		r.At(toLifecycle)

		var back, intent float64

		for _, event := range r.Judge.Of(history.KindKubelet) {
			if event.Node == "worker-1" && event.Detail["ready"] == "true" && back == 0 {
				back = event.Sim
			}
		}

		for _, event := range r.Judge.Of(history.KindJournal) {
			if event.Node == "worker-1" && event.Detail["phase"] == "intent" && intent == 0 {
				intent = event.Sim
			}
		}

		if intent < back {
			t.Errorf("the install was begun at %.1f s, before the kubelet was back at %.1f s and could say that the pod has stopped", intent, back)
		}
	})
}

// TestDrain_LooksAfterItsCordon: somebody uncordons the node while it is being
// drained, and the pods that were evicted would come back again and again.
func TestDrain_LooksAfterItsCordon(t *testing.T) {
	t.Parallel()

	const replicas = 3

	for name, given := range map[string]struct {
		// times is how often somebody does so, most how many pods may be evicted from the
		// node: all once, and once more for each time.
		times, most int
		deletes     bool
	}{
		"once":                              {times: 1, most: 2 * replicas},
		"whenever they see it":              {times: 1000, most: 3 * replicas},
		"and what is left is to be deleted": {times: 1000, most: 3 * replicas, deletes: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Judging: []checker.Option{checker.DrainDelete(cluster.DefaultDrainTimeout)}}, func(r *rig) {
				r.AddApp("web", replicas, &apiserver.Budget{MinAvailable: replicas - 1})

				request := undrained(to(toLifecycle))
				if given.deletes {
					request.Policy.Drain.OnTimeout = cluster.DrainDelete
				}

				ctx, end := context.WithCancel(context.Background())
				defer end()

				w := r.Worker("run-1")
				r.during(w, "Evict", "", func() { go r.uncordons(ctx, "worker-0", given.times) })

				err := w.Apply(context.Background(), request)
				end()

				if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warnings, "somebody uncordoned the node while it was being drained; it was cordoned again") {
					t.Errorf("nobody was told: %s", warnings)
				}

				if given.times == 1 {
					if err != nil {
						t.Fatal(err)
					}

					r.At(toLifecycle)
				} else {
					failed := failure(t, err, say.ErrUncordoned, "worker-0")
					if text := failed.Detail(); strings.Contains(text, "on_timeout") || strings.Contains(text, "drain.timeout") || !strings.Contains(text, "Find out who uncordons it") {
						t.Errorf("it leads the wrong way: %s", text)
					}

					r.Sound()
					r.stopped("worker-0", false)
				}

				evicted := slices.DeleteFunc(r.Judge.Of(history.KindEvict, history.KindDelete), func(e history.Event) bool {
					return e.Node != "worker-0" || e.Kind == history.KindEvict && e.Detail["outcome"] != "evicted"
				})
				if len(evicted) > given.most || len(r.Judge.Of(history.KindDelete)) > 0 {
					t.Errorf("%d pods were removed from worker-0, want %d at most and none deleted\n%s", len(evicted), given.most, r.Judge.Text())
				}
			})
		})
	}
}

// uncordons has a person uncordon a node whenever it is cordoned, so many times.
func (r *rig) uncordons(ctx context.Context, node string, times int) {
	for times > 0 && ctx.Err() == nil {
		if r.State(node).Unschedulable {
			times--

			if err := r.CordonAsPerson(node, false); err != nil {
				r.T.Error(err)
			}
		}

		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Pods that two budgets cover are never evicted; with on_timeout = "delete" they
// are deleted in the end.
func TestDrain_OverlappingBudgetsEndInADeletionWhereAskedFor(t *testing.T) {
	t.Parallel()

	judging := []checker.Option{checker.DrainDelete(5 * time.Minute)}

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.AddPod("precious", "worker-1", &apiserver.Budget{MinAvailable: 0})
		r.AddBudget(apiserver.Budget{App: "precious", Name: "second"})

		request := to(toLifecycle)
		request.Policy.Drain.OnTimeout = cluster.DrainDelete
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
	})
}
