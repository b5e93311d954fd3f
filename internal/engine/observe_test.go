// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestObserve_MachinesAreReachedByTheirInnerAddress: discovery and Kubernetes name one from
// outside first, under which nothing answers.
func TestObserve_MachinesAreReachedByTheirInnerAddress(t *testing.T) {
	t.Parallel()

	for _, planes := range []int{3, 1} {
		t.Run(fmt.Sprintf("%d control planes", planes), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: planes, Workers: 2, ManyAddresses: true}}, func(r *rig) {
				w := r.Worker("run-1")

				observed, err := w.Engine.Observe(context.Background())
				if err != nil {
					t.Fatal(err)
				}

				for _, node := range observed.Nodes {
					if want := r.State(node.Name).Address; node.Address != want || !node.Member || node.Machine == nil {
						t.Errorf("%s is looked for at %s, want %s: %v", node.Name, node.Address, want, node.Unreachable)
					}
				}

				// Without Kubernetes discovery alone says where they are.
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Nodes" {
						return cluster.ErrUnreachable
					}

					return next(ctx)
				})

				alone, err := w.Engine.Observe(context.Background())
				if err != nil {
					t.Fatal(err)
				}

				for _, node := range alone.Nodes {
					if want := r.State(node.Name).Address; node.Address != want || node.Machine == nil {
						t.Errorf("without Kubernetes %s is looked for at %s, want %s: %v", node.Name, node.Address, want, node.Unreachable)
					}
				}

				w.Client.Intercept(nil)
				r.Must(w, to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestObserve_NodeThatTheConfigurationNamesMayLeave: the run began with it there, and
// goes on without it.
func TestObserve_NodeThatTheConfigurationNamesMayLeave(t *testing.T) {
	t.Parallel()

	for name, policy := range map[string]cluster.Policy{
		"canary": {Canary: []string{"worker-0"}},
		"hold":   {Hold: map[string]bool{"worker-0": true}},
		"image":  {Images: map[string]string{"worker-0": "ghcr.io/siderolabs/installer"}},
		"retry":  {Retry: map[string]string{"worker-0": "0a1b2c3d-0000-0000-0000-000000000000"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 173}}, func(r *rig) {
				request := to(toLifecycle)
				request.Policy.Canary, request.Policy.Hold, request.Policy.Images, request.Policy.Retry = policy.Canary, policy.Hold, policy.Images, policy.Retry

				w := r.Worker("run-1")
				r.during(w, "Cordon", "worker-1", func() {
					if err := r.RemoveNode("worker-0"); err != nil {
						t.Error(err)
					}
				})

				r.Must(w, request)
				r.Sound()
				r.Tidy()

				for _, node := range []string{"worker-1", "worker-2", "cp-0", "cp-1", "cp-2"} {
					if state := r.State(node); state.Talos != toLifecycle || state.Unschedulable {
						t.Errorf("%s was not moved: %+v", node, state)
					}
				}

				warnings := w.Texts(cluster.EventWarning)
				if count := strings.Count(strings.Join(warnings, "\n"), "worker-0, which canary or node_overrides names, has left"); count != 1 {
					t.Errorf("it was said %d times that worker-0 has left: %v", count, warnings)
				}
			})
		})
	}
}

// TestObserve_RemovedWorkerInDiscoveryStopsNobody: discovery lists it for half an hour, in
// which it neither blocks a run nor uses up what may be unavailable.
func TestObserve_RemovedWorkerInDiscoveryStopsNobody(t *testing.T) {
	t.Parallel()

	both := to(toLifecycle)
	both.Target.Kubernetes = version.MustParse(toKubernetes)

	for name, request := range map[string]engine.Request{"Talos": to(toLifecycle), "with Kubernetes": both} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 29}}, func(r *rig) {
				if err := r.RemoveNode("worker-2"); err != nil {
					t.Fatal(err)
				}

				w := r.Worker("run-1")

				if seen := r.look(w, "worker-2"); !seen.Left() {
					t.Errorf("the worker that was removed is seen as %+v", seen)
				}

				r.Must(w, request)
				r.At(toLifecycle)
			})
		})
	}
}

// look is a node as a look at the whole cluster finds it.
func (r *rig) look(w *worker, name string) cluster.Node {
	r.T.Helper()

	observed, err := w.Engine.Observe(context.Background())
	if err != nil {
		r.T.Fatal(err)
	}

	node, found := observed.Node(name)
	if !found {
		r.T.Fatalf("%s is not seen at all", name)
	}

	return node
}

// TestObserve_WorkerThatMayComeBackIsNotGone: what looks like one that was
// removed is none where anything else speaks for it.
func TestObserve_WorkerThatMayComeBackIsNotGone(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		node    string
		journal map[string]cluster.Entry
		away    bool
		spare   bool
	}{
		"a control plane": {node: "cp-2"},
		"an open entry": {node: "worker-2", journal: map[string]cluster.Entry{
			"00000000-0000-0000-0000-000000000009": {Node: "worker-2", Phase: cluster.PhaseRebooting, Run: "run-0"},
		}},
		"an open entry under the name with its domain": {node: "worker-2", journal: map[string]cluster.Entry{
			"00000000-0000-0000-0000-000000000009": {Node: "worker-2.example.com", Phase: cluster.PhaseIntent, Run: "run-0"},
		}},
		"no answer of Kubernetes":     {node: "worker-2", away: true},
		"it answers, and has no Node": {node: "worker-2", spare: true},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 29}}, func(r *rig) {
				client := r.Client("run-1")
				seen := &twisted{Client: client}

				if given.spare {
					seen.nodes = func(nodes []cluster.KubeNode) []cluster.KubeNode { return without(nodes, given.node) }
				} else if err := r.RemoveNode(given.node); err != nil {
					t.Fatal(err)
				}

				if given.away {
					client.Intercept(withCalls(cluster.ErrUnreachable, "Nodes"))
				}

				if given.journal != nil {
					if _, err := client.WriteJournal(context.Background(), cluster.Journal{Entries: given.journal}); err != nil {
						t.Fatal(err)
					}
				}

				w := r.WorkerOver(client, seen, seen)
				if node := r.look(w, given.node); node.Gone {
					t.Errorf("%s counts as gone: %+v", given.node, node)
				}
			})
		})
	}
}

// TestObserve_WorkerThatVanishesInItsTurnIsNotGone: the run that has begun with it is told
// that it does not answer, and does not go on as if there were one worker less.
func TestObserve_WorkerThatVanishesInItsTurnIsNotGone(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 29}}, func(r *rig) {
		w := r.Worker("run-1")

		var during cluster.Node

		r.during(w, "Cordon", "worker-0", func() {
			if err := r.RemoveNode("worker-0"); err != nil {
				t.Error(err)
			}

			during = r.look(w, "worker-0")
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), nil, "worker-0")
		if !strings.Contains(failed.Error(), "does not answer") {
			t.Errorf("%v, want it to say that the node does not answer", failed)
		}

		if during.Gone {
			t.Errorf("in the middle of its turn it counts as gone: %+v", during)
		}

		r.Sound()

		if seen := r.look(r.Worker("run-2"), "worker-0"); !seen.Left() {
			t.Errorf("when the run is over it does not count as removed: %+v", seen)
		}

		r.Must(r.Worker("run-3"), to(toLifecycle))
		r.At(toLifecycle)

		time.Sleep(31 * time.Minute)

		observed, err := r.Worker("run-4").Engine.Observe(context.Background())
		if _, found := observed.Node("worker-0"); err != nil || found {
			t.Errorf("half an hour later it is still listed (%v)", err)
		}
	})
}

// TestObserve_ClusterOfWhichNothingIsKnownIsNotDone: discovery is off, and somebody has deleted
// every Node object. Nothing to do is not the same as all is done.
func TestObserve_ClusterOfWhichNothingIsKnownIsNotDone(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 1, Workers: 1, DiscoveryOff: true}}, func(r *rig) {
		for _, node := range []string{"cp-0", "worker-0"} {
			if err := r.DeleteNodeAsPerson(node); err != nil {
				t.Fatal(err)
			}
		}

		failed := failure(t, r.Worker("run-1").Apply(context.Background(), to(toLifecycle)), nil, "")
		if !strings.Contains(failed.Error(), "no control plane was found") {
			t.Errorf("%v", failed)
		}

		r.Sound()
	})
}

// besideOneThatIsOff upgrades everything but worker-1, which is held and off, and
// returns how long that took and how often worker-1 was asked.
func besideOneThatIsOff(t *testing.T, workers, together int, silent bool) (length time.Duration, asked int64) {
	t.Helper()

	given := setup{
		Options: model.Options{
			ControlPlanes: 3, Workers: workers, Seed: 3, Silent: silent,
			Faults: []model.Fault{{Node: "worker-1", Step: model.StepObserve, Effect: model.EffectUnreachable}},
		},
		Judging: []checker.Option{checker.Held("worker-1"), checker.MaxUnavailable(together)},
	}

	inCluster(t, given, func(r *rig) {
		request := to(toLifecycle)
		request.Policy.Hold = map[string]bool{"worker-1": true}
		share, err := cluster.ParseShare(strconv.Itoa(together))
		if err != nil {
			t.Fatal(err)
		}

		request.Policy.MaxUnavailable = share

		var count atomic.Int64

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Node == "worker-1" {
				count.Add(1)
			}

			return next(ctx)
		})

		begun := r.World().Now()

		if err := w.Apply(context.Background(), request); err != nil {
			t.Fatalf("silent %t: %v\n%s", silent, err, r.Judge.Text())
		}

		length, asked = r.World().Now()-begun, count.Load()

		r.Sound()

		for _, state := range r.World().Nodes() {
			if state.Name != "worker-1" && (state.Talos != toLifecycle || state.Installs != 1) {
				t.Errorf("%s runs %s after %d installs", state.Name, state.Talos, state.Installs)
			}
		}
	})

	return length, asked
}

// TestObserve_SilentMachineCostsEachLookOneTimeout: a machine that is off refuses nothing, and
// whoever asks it waits. All others are asked meanwhile, and nothing is asked for more
// often because of it.
func TestObserve_SilentMachineCostsEachLookOneTimeout(t *testing.T) {
	t.Parallel()

	const timeout = 10 * time.Second

	for name, test := range map[string]struct{ workers, together int }{
		"one by one":  {2, 1},
		"in parallel": {6, 3},
	} {
		t.Run(name, func(t *testing.T) {
			refusing, often := besideOneThatIsOff(t, test.workers, test.together, false)
			silent, asked := besideOneThatIsOff(t, test.workers, test.together, true)

			t.Logf("refusing: %s and %d questions, silent: %s and %d", refusing, often, silent, asked)

			if most := refusing + time.Duration(often)*timeout; silent <= refusing || silent > most || asked > often {
				t.Errorf("the upgrade took %s with %d questions to a machine that is silent, and %s with %d to one that refuses", silent, asked, refusing, often)
			}
		})
	}
}

// TestObserve_SilentMachineStopsTheRunInItsTime: one that does not come back uses up its own
// time, and not that of the run.
func TestObserve_SilentMachineStopsTheRunInItsTime(t *testing.T) {
	t.Parallel()

	const limit = 30 * time.Minute

	for _, node := range []string{"worker-0", "cp-0"} {
		t.Run(node, func(t *testing.T) {
			off := model.Fault{Node: node, Step: model.StepBoot, Effect: model.EffectNeverReturns}

			inCluster(t, setup{Options: model.Options{Silent: true, Faults: []model.Fault{off}}}, func(r *rig) {
				request := to(toLifecycle)
				request.Policy.NodeTimeout = limit

				begun := r.World().Now()
				failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), say.ErrNeverReturned, node)

				// Before a control plane the workers had their turns.
				if took := r.World().Now() - begun; took > limit+15*time.Minute {
					t.Errorf("it took %s", took)
				}

				if !strings.Contains(failed.Seen, node+" did not come back online") {
					t.Error(failed)
				}

				r.Sound()
				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

// TestObserve_SlowClusterIsStillObserved: a look is not cut off because it takes longer
// than a lease lasts, as it may where many nodes are away.
func TestObserve_SlowClusterIsStillObserved(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		client := r.Client("run-1")

		r.Must(r.WorkerOver(client, &slow{Client: client}, client), to(toLifecycle))
		r.At(toLifecycle)
		r.Sound()
	})
}
