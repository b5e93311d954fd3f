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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestManifestThatNeverRendersDoesNotHoldUpTheRest has the control planes fail to
// download one of them for good.
func TestManifestThatNeverRendersDoesNotHoldUpTheRest(t *testing.T) {
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
				failed := failure(t, err, engine.ErrManifests, "")
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

// TestSyncThatDoesNotWaitIsDoneAfterEachLeg is about two syncs of one version of
// Kubernetes: one after it has moved, one after Talos has.
func TestSyncThatDoesNotWaitIsDoneAfterEachLeg(t *testing.T) {
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

func TestRolloutThatFlapsForEverEndsWithTheRun(t *testing.T) {
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

		_ = failure(t, w.Apply(context.Background(), request), engine.ErrManifests, "")

		if took := time.Since(begun); took > time.Hour+10*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestNewerReleaseCuresABrokenComponent chooses a newer patch because the first
// does not come up.
func TestNewerReleaseCuresABrokenComponent(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "cp-0", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: model.SchedulerName, Times: 1}

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
		_ = failure(t, r.Worker("run-1").Apply(context.Background(), kube("1.35.1")), context.DeadlineExceeded, "cp-0")

		w := r.Worker("run-2")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)
			if call.Method == "Configure" && strings.Contains(strings.Join(r.configured(), ","), "kube-controller-manager") {
				r.World().SetFaults(nil)
			}

			return err
		})
		r.Must(w, kube(toKubernetes))
		r.atKubernetes(toKubernetes, kube(toKubernetes))
	})
}
