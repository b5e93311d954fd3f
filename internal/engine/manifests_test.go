// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestManifests_OneThatNeverRendersDoesNotHoldUpTheRest has the control planes fail to
// download one of them for good.
func TestManifests_OneThatNeverRendersDoesNotHoldUpTheRest(t *testing.T) {
	t.Parallel()

	for _, prune := range []bool{false, true} {
		inCluster(t, setup{}, func(r *rig) {
			client := r.Client("run-1")
			w := r.WorkerOver(client, client, client)
			w.Engine = engine.New(engine.Options{
				Talos: client, Kubernetes: client, Removals: client, Manifests: incomplete{client}, Workloads: client, Run: "run-1",
				Observers: []cluster.Observer{w, w.Notes},
			})

			request := to(toLifecycle)
			request.Policy.Kubernetes.Manifests.Prune = prune
			err := w.Apply(context.Background(), request)

			if prune {
				failed := failure(t, err, say.ErrManifests, "")
				if !strings.Contains(failed.Remedy, "prune = false") {
					t.Error(failed)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}

			r.At(toLifecycle)

			if warned := strings.Join(w.Texts(cluster.EventWarning), " "); !strings.Contains(warned, "storage") {
				t.Errorf("nobody was told of what is missing: %s", warned)
			}
		})
	}
}

// incomplete renders everything but one manifest.
type incomplete struct{ *ports.Client }

func (i incomplete) Apply(ctx context.Context, address string, options cluster.ManifestOptions) ([]cluster.ManifestChange, error) {
	if !options.Incomplete {
		return nil, fmt.Errorf("%w: not rendered yet: storage", cluster.ErrIncomplete)
	}

	return i.Client.Apply(ctx, address, options)
}

// TestManifests_SyncThatDoesNotWaitIsDoneAfterEachLeg is about two syncs of one version of
// Kubernetes: one after it has moved, one after Talos has.
func TestManifests_SyncThatDoesNotWaitIsDoneAfterEachLeg(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: "1.13.4", Kubernetes: "1.31.4"}}, func(r *rig) {
		request := both("1.14.1", "1.32.1")
		request.Policy.Kubernetes.Manifests.Timeout = 0
		r.Must(r.Worker("run-1"), request)
		r.Sound()
		r.Tidy()

		if r.Journal().Manifests != nil {
			t.Error("the journal still says that manifests are due")
		}

		pending, err := r.Client("reader").Diff(context.Background(), r.State("cp-0").Address, cluster.ManifestOptions{ServerSide: true})
		if err != nil || len(pending) > 0 {
			t.Errorf("after the roll manifests differ: %+v, %v", pending, err)
		}
	})
}

// flapping has pods that are never all ready, in ever new numbers.
type flapping struct {
	*ports.Client

	looks *atomic.Int32
}

func (f flapping) Unready(context.Context, string) ([]string, error) {
	return []string{fmt.Sprintf("DaemonSet/kube-system/flappy: look %d", f.looks.Add(1))}, nil
}

func TestManifests_RolloutThatFlapsForEverEndsWithTheRun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: toLifecycle, Kubernetes: fromKubernetes}}, func(r *rig) {
		client := r.Client("run-1")
		w := r.WorkerOver(client, client, client)
		w.Engine = engine.New(engine.Options{
			Talos: client, Kubernetes: client, Removals: client, Manifests: flapping{client, &atomic.Int32{}}, Workloads: client, Run: "run-1",
		})

		begun := time.Now()
		request := kube(toKubernetes)
		request.Deadline = time.Hour

		_ = failure(t, w.Apply(context.Background(), request), say.ErrManifests, "")

		if took := time.Since(begun); took > time.Hour+10*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestManifests_SyncForbiddenAtLastNamesTheRights: they may be taken away in the middle.
func TestManifests_SyncForbiddenAtLastNamesTheRights(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: toLifecycle, Kubernetes: fromKubernetes}}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(withCall("Apply", cluster.ErrDenied))

		_ = failure(t, w.Apply(context.Background(), kube(toKubernetes)), say.ErrManifests, "")
	})
}

// TestManifests_SyncFollowsTheLastLegWhicheverThatIs has the last of several syncs refused
// once, which the next run must make up for.
func TestManifests_SyncFollowsTheLastLegWhicheverThatIs(t *testing.T) {
	t.Parallel()

	for _, given := range []struct{ talos, kubernetes, toTalos, toKubernetes string }{
		{"1.13.4", "1.31.4", "1.14.1", "1.32.1"},
		{"1.12.6", "1.30.4", "1.14.1", "1.32.1"},
		{fromLegacy, fromKubernetes, "1.13.4", toKubernetes},
	} {
		t.Run(given.talos+" to "+given.toTalos, func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{Options: model.Options{Talos: given.talos, Kubernetes: given.kubernetes}}, func(r *rig) {
				request := both(given.toTalos, given.toKubernetes)
				client := r.Client("run-1")

				client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Apply" && r.runsTalos(given.toTalos) {
						return fmt.Errorf("%w: a field that may not change", cluster.ErrRefused)
					}

					return next(ctx)
				})

				_ = failure(t, r.WorkerOver(client, client, client).Apply(context.Background(), request), say.ErrManifests, "")
				r.Must(r.Worker("run-2"), request)
				r.At(given.toTalos)
				r.atKubernetes(given.toKubernetes, request)

				pending, err := r.Client("reader").Diff(context.Background(), r.State("cp-0").Address, cluster.ManifestOptions{ServerSide: true})
				if err != nil || len(pending) > 0 {
					t.Errorf("after the roll manifests differ: %+v, %v", pending, err)
				}
			})
		})
	}
}

func TestManifests_SyncThatDoesNotWaitIsDoneOnce(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 6}}, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Kubernetes.Manifests.Timeout = 0

		r.Must(r.Worker("run-1"), request)
		r.Sound()
		r.Until("rolled out", 5*time.Minute, func() bool { return r.State("worker-5").Components.Proxy == toKubernetes })
		r.Must(r.Worker("run-2"), request)
		r.Sound()
		r.Tidy()
	})
}

func TestManifests_DenialRefusesTheRollBeforeItBegins(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Diff" || call.Method == "Apply" {
				return fmt.Errorf("%w: daemonsets.apps is forbidden", cluster.ErrDenied)
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrBlocked, "")
		if !strings.Contains(failed.Error(), "kubernetes.manifests.sync = false") {
			t.Error(failed)
		}

		if _, mutating := w.Client.Calls(); mutating != 0 {
			t.Errorf("the refused run made %d mutating calls", mutating)
		}

		r.Must(r.Worker("run-2"), bare(to(toLifecycle)))
	})
}

// TestManifests_LostAnswerAboutRemovalsIsAskedForAgain loses the answer to what a release removes.
func TestManifests_LostAnswerAboutRemovalsIsAskedForAgain(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		w := r.Worker("run-1")

		var asked atomic.Int32

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Removals" && asked.Add(1) == 1 {
				return fmt.Errorf("%w: EOF", cluster.ErrUnreachable)
			}

			return next(ctx)
		})
		r.Must(w, kube(toKubernetes))
		r.atKubernetes(toKubernetes, kube(toKubernetes))
	})
}

func TestManifests_RemovalsInUseStopARunBeforeItBegins(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		gone := version.MustParse(toKubernetes)
		r.SetRemovals([]cluster.Removal{
			{Kind: "flag", Name: "pod-infra-container-image", Address: r.State("worker-0").Address, Component: cluster.Kubelet, In: gone},
			{Kind: "API", Name: "widgets.v1beta1.example.io", Objects: 3, In: gone},
		})

		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), kube(toKubernetes)), say.ErrBlocked, "worker-0")

		for _, want := range []string{"pod-infra-container-image", "3 objects of widgets.v1beta1.example.io", "worker-0"} {
			if !strings.Contains(failed.Error(), want) {
				t.Errorf("the failure does not speak of %q: %v", want, failed)
			}
		}

		if _, mutating := w.Client.Calls(); mutating != 0 {
			t.Errorf("the refused run made %d mutating calls", mutating)
		}
	})
}

// TestManifests_RolloutThatDoesNotEndStopsTheRun keeps the pods of kube-proxy on a worker
// from being replaced.
func TestManifests_RolloutThatDoesNotEndStopsTheRun(t *testing.T) {
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

		failed := failure(t, w.Apply(context.Background(), kube(toKubernetes)), say.ErrManifests, "")
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

func TestManifests_FollowARollOfTalosAlone(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Talos: fromLegacy}}, func(r *rig) {
		r.Must(r.Worker("run-1"), to(toLegacy))
		r.At(toLegacy)

		pending, err := r.Client("reader").Diff(context.Background(), r.State("cp-0").Address, cluster.ManifestOptions{ServerSide: true})
		if err != nil || len(pending) != 0 {
			t.Errorf("after the roll manifests differ: %+v, %v", pending, err)
		}
	})
}

// TestManifests_OldestNodeDecidesHowTheyAreApplied: as long as a node, even a held worker, runs Talos below 1.13,
// nothing is pruned.
func TestManifests_OldestNodeDecidesHowTheyAreApplied(t *testing.T) {
	t.Parallel()

	const old = "ConfigMap/kube-system/left-over"

	for name, held := range map[string]bool{"a held worker": true, "none": false} {
		inCluster(t, setup{Options: model.Options{Talos: fromLegacy}}, func(r *rig) {
			r.AddOldObject(old)

			request := to(toLegacy)
			request.Policy.Hold = map[string]bool{"worker-1": held}
			request.Policy.Kubernetes.Manifests.Prune = true

			r.Must(r.Worker("run-1"), request)

			if _, stays := r.Rendered()[old]; stays != held {
				t.Errorf("with %s below Talos 1.13, what Talos does not render any more is there: %t", name, stays)
			}
		})
	}
}

// TestManifests_ExcludedObjectsStayAsTheyAre: they are neither changed nor waited for.
func TestManifests_ExcludedObjectsStayAsTheyAre(t *testing.T) {
	t.Parallel()

	const coreDNS = "Deployment/kube-system/coredns"

	inCluster(t, setup{Options: model.Options{Talos: fromLegacy}}, func(r *rig) {
		w := r.Worker("run-1")
		waits := 0

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Unready" {
				waits++
			}

			return next(ctx)
		})

		request := to(toLegacy)
		request.Policy.Kubernetes.Manifests.Exclude = []cluster.ManifestObject{{Kind: "Deployment", Namespace: "kube-system", Name: "coredns"}}

		r.Must(w, request)
		r.At(toLegacy)

		if waits == 0 {
			t.Error("nobody waited for what was applied")
		}

		pending, err := r.Client("reader").Diff(context.Background(), r.State("cp-0").Address, cluster.ManifestOptions{ServerSide: true})
		if err != nil || len(pending) != 1 || pending[0].Object != coreDNS {
			t.Errorf("after the roll manifests differ: %+v, %v; want %s alone", pending, err, coreDNS)
		}
	})
}
