// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// componentFault is something that goes wrong in the Kubernetes half.
type componentFault struct {
	name  string
	fault model.Fault
	// want is the sentinel of the failure, nil where the run gets over it; node
	// is the one it is about, says what it must contain.
	want error
	node string
	says string
	// untouched: no machine configuration may have been changed.
	untouched bool
}

func componentFaults() []componentFault {
	apiServer, kubelet := model.APIServerName, model.KubeletName

	return []componentFault{
		{
			name:  "a static pod never becomes Ready",
			fault: model.Fault{Node: "cp-1", Step: model.StepStaticPod, Effect: model.EffectNeverReady, Component: apiServer, Times: 1},
			want:  context.DeadlineExceeded, node: "cp-1", says: "kube-apiserver",
		},
		{
			name:  "a static pod crashes again and again",
			fault: model.Fault{Node: "cp-2", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: model.SchedulerName, Times: 1},
			want:  context.DeadlineExceeded, node: "cp-2", says: "CrashLoopBackOff",
		},
		{
			name:  "a kubelet stays down",
			fault: model.Fault{Node: "worker-0", Step: model.StepKubeletRestart, Effect: model.EffectStaysDown, Times: 1},
			want:  context.DeadlineExceeded, node: "worker-0", says: "kubelet",
		},
		{
			name:  "a node is not ready with its new kubelet",
			fault: model.Fault{Node: "worker-0", Step: model.StepKubeletRestart, Effect: model.EffectNotReady, Times: 1},
			want:  context.DeadlineExceeded, node: "worker-0", says: "KubeletNotReady",
		},
		{
			name:  "an API server flaps",
			fault: model.Fault{Node: "cp-0", Step: model.StepAPIServer, Effect: model.EffectFlap, Times: 2, For: 45 * time.Second},
		},
		{
			name:  "a node refuses its configuration",
			fault: model.Fault{Node: "cp-1", Step: model.StepApply, Effect: model.EffectFail, Times: 1},
			want:  cluster.ErrRefused, node: "cp-1", says: "kube-apiserver",
		},
		{
			name:  "somebody else is applying a configuration",
			fault: model.Fault{Node: "cp-1", Step: model.StepApply, Effect: model.EffectBusy, Times: 2},
		},
		{
			name:  "the reply to an apply is lost",
			fault: model.Fault{Node: "worker-1", Step: model.StepApply, Effect: model.EffectConnectionLost, Times: 1},
		},
		{
			name:  "somebody else writes the old configuration back",
			fault: model.Fault{Node: "cp-0", Step: model.StepApply, Effect: model.EffectOverwritten, Times: 1},
			want:  engine.ErrForeignWriter, node: "cp-0", says: "data.talosupgrade_current_versions",
		},
		{
			name:  "an image does not exist",
			fault: model.Fault{Node: "worker-1", Step: model.StepComponentPull, Effect: model.EffectNotFound, Component: kubelet, Times: 1},
			want:  cluster.ErrNotFound, node: "worker-1", says: "ghcr.io/siderolabs/kubelet:v" + toKubernetes, untouched: true,
		},
		{
			name:  "a registry does not answer once",
			fault: model.Fault{Node: "cp-0", Step: model.StepComponentPull, Effect: model.EffectFail, Times: 1},
		},
		{
			name:  "a worker is down",
			fault: model.Fault{Node: "worker-1", Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1},
			want:  cluster.ErrUnreachable, node: "worker-1", says: "did not answer", untouched: true,
		},
	}
}

func TestFaultsOfComponentsAreNamedAndSafe(t *testing.T) {
	for _, given := range componentFaults() {
		t.Run(given.name, func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Seed: 21, Faults: []model.Fault{given.fault}}}, func(r *rig) {
				err := r.Worker("run-1").Apply(context.Background(), kube(toKubernetes))

				switch {
				case given.want == nil && err != nil:
					t.Fatalf("%v\n%s", err, r.Judge.Text())
				case given.want != nil:
					failed := failure(t, err, given.want, given.node)
					if !strings.Contains(failed.Error(), given.says) {
						t.Errorf("the failure does not speak of %q: %v", given.says, failed)
					}
				}

				r.Sound()

				if changed := r.configured(); given.untouched && len(changed) > 0 {
					t.Errorf("configured %v", changed)
				}

				// What broke is mended, and the next run brings it to an end.
				r.World().SetFaults(nil)
				r.Until("whole again", 10*time.Minute, r.whole)
				r.Must(r.Worker("run-2"), kube(toKubernetes))
				r.atKubernetes(toKubernetes, kube(toKubernetes))
			})
		})
	}
}

func TestRemovalsInUseStopARunBeforeItBegins(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		gone := version.MustParse(toKubernetes)
		r.SetRemovals([]cluster.Removal{
			{Kind: "flag", Name: "pod-infra-container-image", Address: r.State("worker-0").Address, Component: cluster.Kubelet, In: gone},
			{Kind: "API", Name: "widgets.v1beta1.example.io", Objects: 3, In: gone},
		})

		w := r.Worker("run-1")
		failed := failure(t, w.Apply(context.Background(), kube(toKubernetes)), engine.ErrBlocked, "worker-0")

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

func TestHeldWorkerThatIsDownIsLeftBehind(t *testing.T) {
	t.Parallel()

	faults := []model.Fault{{Node: "worker-1", Step: model.StepObserve, Effect: model.EffectUnreachable, Times: 1}}

	inCluster(t, setup{
		Options: model.Options{Kubernetes: fromKubernetes, Faults: faults}, Judging: []checker.Option{checker.Held("worker-1")},
	}, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Hold = map[string]bool{"worker-1": true}
		r.Must(r.Worker("run-1"), request)
		r.Sound()

		if slices.ContainsFunc(r.configured(), func(change string) bool { return strings.HasSuffix(change, "worker-1") }) {
			t.Errorf("the held node was configured: %v", r.configured())
		}

		if runs := r.State("worker-0").Kubelet.Version; runs != toKubernetes {
			t.Errorf("worker-0 runs %s", runs)
		}
	})
}

// TestCrashAnywhereInTheKubernetesHalfThenApplyAgainConverges strikes a run at
// every mutating call in every way, and applies once more.
func TestCrashAnywhereInTheKubernetesHalfThenApplyAgainConverges(t *testing.T) {
	for _, given := range []setup{
		{Options: model.Options{Kubernetes: fromKubernetes, Seed: 7}},
		{Options: model.Options{Kubernetes: fromKubernetes, Talos: "1.14.1", Documents: true, ControlPlanes: 1, Workers: 1, Seed: 8}},
	} {
		t.Run(fmt.Sprintf("Talos %s", given.Talos), func(t *testing.T) {
			t.Parallel()

			methods := mutationsOf(t, given, kube(toKubernetes))
			first, stride := 1, 1

			switch {
			case testing.Short() || raceEnabled:
				first, stride = 3, 11
			case given.ControlPlanes == 0:
				// Of many nodes one is like the other.
				stride = 3
			}

			for mutation := first; mutation <= len(methods) && !t.Failed(); mutation += stride {
				for _, kind := range harness.Crashes() {
					if kind == dieDuring && methods[mutation-1] != "Configure" && methods[mutation-1] != "Apply" {
						continue
					}

					crashKubernetesOnce(t, given, kind, mutation)
				}
			}

			t.Logf("%d mutating calls", len(methods))
		})
	}
}

func crashKubernetesOnce(t *testing.T, given setup, kind crash, mutation int) {
	t.Helper()

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)

		struck, wait, err := r.Crashing("run-1", request, kind, mutationOf(mutation))
		defer wait()

		if kind == loseReply && err != nil {
			t.Errorf("%s, %s: %v", struck, kind, err)
		}

		before := r.configured()

		r.Must(r.Worker("run-2"), request)
		r.atKubernetes(toKubernetes, request)

		// What had arrived is not touched again.
		counted := map[string]int{}
		for _, change := range r.configured() {
			counted[change]++
			if counted[change] > 1 {
				t.Errorf("%s, %s: %s was configured again; before the crash: %v", struck, kind, change, before)
			}
		}

		if t.Failed() {
			t.Logf("%s, %s (mutation %d)\n%s", struck, kind, mutation, r.Judge.Text())
		}
	})
}

func TestNothingOfAConfigurationChangesButImages(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		before := map[string]string{}
		for _, node := range r.World().Nodes() {
			before[node.Name] = string(node.Config)
		}

		r.Must(r.Worker("run-1"), kube(toKubernetes))

		for _, node := range r.World().Nodes() {
			if got, want := string(node.Config), strings.ReplaceAll(before[node.Name], ":v"+fromKubernetes, ":v"+toKubernetes); got != want {
				t.Errorf("the configuration of %s became\n%s\nwant\n%s", node.Name, got, want)
			}
		}

		for _, event := range r.Judge.Of(history.KindConfig) {
			if event.Detail["mode"] != string(model.ApplyNoReboot) {
				t.Errorf("applied with mode %s", event.Detail["mode"])
			}
		}
	})
}
