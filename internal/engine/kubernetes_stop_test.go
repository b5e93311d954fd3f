// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestCancelAtAnyMomentOfTheKubernetesHalf cancels runs at random moments and
// applies again.
func TestCancelAtAnyMomentOfTheKubernetesHalf(t *testing.T) {
	moments := 30
	if testing.Short() || raceEnabled {
		moments = 5
	}

	for name, shape := range map[string][2]int{"three control planes": {3, 2}, "a single control plane": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			random := rand.New(rand.NewPCG(17, 19)) //nolint:gosec // moments, not secrets

			for range moments {
				moment := time.Duration(random.Int64N(int64(9 * time.Minute)))
				given := setup{Options: model.Options{
					Kubernetes: fromKubernetes, ControlPlanes: shape[0], Workers: shape[1], Seed: random.Uint64(),
				}}

				inCluster(t, given, func(r *rig) {
					ctx, cancel := context.WithTimeout(context.Background(), moment)
					defer cancel()

					first := r.Worker("run-1")
					_, err := first.Upgrade(ctx, kube(toKubernetes))

					if took := r.World().Now() - moment; err != nil && took > cancelMost {
						t.Errorf("it took %s to return after the cancel", took)
					}

					if r.anyServer() {
						r.leftClean()
					}

					first.Notes.Finish()
					r.Must(r.Worker("run-2"), kube(toKubernetes))
					r.atKubernetes(toKubernetes, kube(toKubernetes))
				})

				if t.Failed() {
					t.Fatalf("cancelled after %s with seed %d", moment, given.Seed)
				}
			}
		})
	}
}

// TestNothingIsConfiguredUnderTheLeaseOfSomebodyElse takes the lease away in the
// middle of the turn of a component.
func TestNothingIsConfiguredUnderTheLeaseOfSomebodyElse(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		w := r.Worker("run-1")
		taken := 0

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)

			if call.Method == "Configure" && call.Node == "cp-1" && taken == 0 {
				taken = len(r.configured())

				if err := r.HoldLease("intruder"); err != nil {
					t.Error(err)
				}
			}

			return err
		})

		err := w.Apply(context.Background(), kube(toKubernetes))
		if !errors.Is(err, engine.ErrLeaseLost) {
			t.Errorf("the run ended with %v", err)
		}

		if changed := r.configured(); len(changed) > taken {
			t.Errorf("configured %v under a lease of somebody else", changed[taken:])
		}
	})
}

// TestGuardsOfComponentsAreNeeded takes each of them away in turn: the checker
// has to notice what comes of it.
func TestGuardsOfComponentsAreNeeded(t *testing.T) {
	t.Parallel()

	// The API server of cp-0 goes away again once it has been replaced.
	away := model.Fault{Node: "cp-0", Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 1, For: 4 * time.Minute}
	given := setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 5, Seed: 31, Faults: []model.Fault{away}}}

	inCluster(t, given, func(r *rig) {
		blind := r.Worker("run-1")
		blind.DropGuard(cluster.CheckControlPlane)
		blind.DropGuard("control-planes")

		// The planner looks at them too, before each step.
		careless := kube(toKubernetes)
		careless.Policy.SkipChecks = map[string]bool{cluster.CheckControlPlane: true}
		_ = blind.Apply(context.Background(), careless)

		broken := r.Judge.Verdict().Violations
		if !slices.ContainsFunc(broken, func(v checker.Violation) bool { return v.Invariant == checker.S1 }) {
			t.Errorf("without its guards the engine broke %+v, want S1", broken)
		}
	})

	inCluster(t, given, func(r *rig) {
		r.Must(r.Worker("run-1"), kube(toKubernetes))
		r.atKubernetes(toKubernetes, kube(toKubernetes))
	})
}

func TestCanaryKubeletsGoFirst(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 3},
		Judging: []checker.Option{checker.Canary("worker-2"), checker.MaxUnavailableKubelets(3)},
	}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Canary = []string{"worker-2"}
		request.Policy.Kubernetes.MaxUnavailableKubelets = share(t, "100%")
		r.Must(r.Worker("run-1"), request)
		r.atKubernetes(toKubernetes, request)

		kubelets := slices.DeleteFunc(r.configured(), func(change string) bool { return !strings.HasPrefix(change, model.KubeletName) })
		if len(kubelets) == 0 || kubelets[0] != "kubelet on worker-2" {
			t.Errorf("kubelets were replaced in the order %v, want the canary first", kubelets)
		}
	})
}

// TestRolloutThatDoesNotEndStopsTheRun keeps the pods of kube-proxy on a worker
// from being replaced.
func TestRolloutThatDoesNotEndStopsTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		w := r.Worker("run-1")
		stuck := true

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Apply" && stuck {
				stuck = false

				// A node goes away right then.
				r.World().SetFaults([]model.Fault{{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns}})

				if _, err := r.World().Reboot(ctx, "worker-1", model.RebootDefault); err != nil {
					t.Error(err)
				}
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), kube(toKubernetes)), engine.ErrManifests, "")
		for _, want := range []string{"5m0s", "worker-1", "kubernetes.manifests.timeout"} {
			if !strings.Contains(failed.Error(), want) {
				t.Errorf("the failure does not speak of %q: %v", want, failed)
			}
		}

		if r.Journal().Manifests == nil {
			t.Error("the journal does not remember that manifests are due")
		}

		r.World().SetFaults(nil)
		r.Until("back", 10*time.Minute, func() bool { return r.State("worker-1").Kubelet.Ready })

		before := len(r.Judge.Of(history.KindConfig))
		r.Must(r.Worker("run-2"), kube(toKubernetes))
		r.atKubernetes(toKubernetes, kube(toKubernetes))

		if after := len(r.Judge.Of(history.KindConfig)); after != before {
			t.Error("the next run configured machines again")
		}
	})
}
