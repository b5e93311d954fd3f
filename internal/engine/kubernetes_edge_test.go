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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// sick has the nodes of workers never become Ready with new kubelets.
type sick struct{ *ports.Client }

func (s sick) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return s.Nodes(ctx)
}

func (s sick) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, s.Nodes)
}

func (s sick) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := s.Client.Nodes(ctx)
	for i := range nodes {
		if !nodes[i].ControlPlane && nodes[i].Kubelet.Equal(version.MustParse(toKubernetes)) {
			nodes[i].Ready, nodes[i].ReadyReason = false, "KubeletNotReady"
		}
	}

	return nodes, err
}

// kubelets are the workers whose kubelets were replaced.
func (r *rig) kubelets() []string {
	return slices.DeleteFunc(r.configured(), func(change string) bool { return !strings.HasPrefix(change, "kubelet on worker-") })
}

// TestKubeletsThatDoNotComeUpAreNotFollowedByOthers applies again and again, as
// pipelines do.
func TestKubeletsThatDoNotComeUpAreNotFollowedByOthers(t *testing.T) {
	for name, given := range map[string]struct {
		canary []string
		share  string
		most   int
	}{
		"a canary": {[]string{"worker-3"}, "2", 1}, "one at a time": {nil, "1", 1}, "two at a time": {nil, "2", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			judging := []checker.Option{checker.MaxUnavailableKubelets(2), checker.Canary(given.canary...)}

			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 4}, Judging: judging}, func(r *rig) {
				request := kube(toKubernetes)
				request.Policy.Canary = given.canary
				request.Policy.Kubernetes.MaxUnavailableKubelets = share(t, given.share)

				for run := range 4 {
					client := r.Client(fmt.Sprintf("run-%d", run+1))
					if err := r.WorkerOver(client, client, sick{client}).Apply(context.Background(), request); err == nil {
						t.Errorf("run %d said that all is well", run+1)
					}
				}

				if got := r.kubelets(); len(got) != given.most {
					t.Errorf("kubelets were replaced on %v, want no more than %d", got, given.most)
				}
			})
		})
	}
}

func TestBrokenStaticPodIsNotFollowedByTheNextComponent(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "cp-0", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: model.SchedulerName, Times: 1}

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
		first := failure(t, r.Worker("run-1").Apply(context.Background(), kube(toKubernetes)), context.DeadlineExceeded, "cp-0")
		if !strings.Contains(first.State, "only control plane") {
			t.Errorf("the state is %q", first.State)
		}

		changed := len(r.configured())

		second := failure(t, r.Worker("run-2").Apply(context.Background(), kube(toKubernetes)), engine.ErrGuard, "cp-0")
		if !strings.Contains(second.Error(), "kube-scheduler is not Ready") || len(r.configured()) != changed {
			t.Errorf("%v; configured %v", second, r.configured()[changed:])
		}
	})
}

// TestSyncFollowsTheLastLegWhicheverThatIs has the last of several syncs refused
// once, which the next run must make up for.
func TestSyncFollowsTheLastLegWhicheverThatIs(t *testing.T) {
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

				_ = failure(t, r.WorkerOver(client, client, client).Apply(context.Background(), request), engine.ErrManifests, "")
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

// runsTalos tells whether every machine runs that version of Talos.
func (r *rig) runsTalos(version string) bool {
	return !slices.ContainsFunc(r.World().Nodes(), func(node model.NodeState) bool { return node.Talos != version })
}

func TestSyncThatDoesNotWaitIsDoneOnce(t *testing.T) {
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

func TestManyKubeletsDoNotStarveEachOther(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 30},
		Judging: []checker.Option{checker.MaxUnavailableKubelets(30)},
	}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Kubernetes.MaxUnavailableKubelets = share(t, "100%")
		r.Must(r.Worker("run-1"), request)
		r.atKubernetes(toKubernetes, request)

		if most := r.mostRestarting(); most < 20 {
			t.Errorf("no more than %d kubelets restarted at a time", most)
		}
	})
}

func TestDeniedManifestsRefuseTheRollBeforeItBegins(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Diff" || call.Method == "Apply" {
				return fmt.Errorf("%w: daemonsets.apps is forbidden", cluster.ErrDenied)
			}

			return next(ctx)
		})

		failed := failure(t, w.Apply(context.Background(), to(toLifecycle)), engine.ErrBlocked, "")
		if !strings.Contains(failed.Error(), "kubernetes.manifests.sync = false") {
			t.Error(failed)
		}

		if _, mutating := w.Client.Calls(); mutating != 0 {
			t.Errorf("the refused run made %d mutating calls", mutating)
		}

		r.Must(r.Worker("run-2"), bare(to(toLifecycle)))
	})
}

func TestNodesSettleAfterTheirKubelets(t *testing.T) {
	t.Parallel()

	const settle = 10 * time.Minute

	given := setup{
		Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 2}, Judging: []checker.Option{checker.Canary("worker-1")},
	}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Settle, request.Policy.Canary = settle, []string{"worker-1"}

		begun := time.Now()
		r.Must(r.Worker("run-1"), request)

		// The canary, the control plane and the other worker: nobody waits for the
		// last one.
		if took := time.Since(begun); took < 2*settle {
			t.Errorf("three kubelets took %s", took)
		}

		r.atKubernetes(toKubernetes, request)
	})
}

func TestNodeThatIsAlwaysBusySaysSo(t *testing.T) {
	t.Parallel()

	busy := model.Fault{Node: "cp-0", Step: model.StepApply, Effect: model.EffectBusy}

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Faults: []model.Fault{busy}}}, func(r *rig) {
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), kube(toKubernetes)), cluster.ErrBusy, "cp-0")
		if !strings.Contains(failed.Remedy, "Somebody else keeps applying") {
			t.Error(failed)
		}
	})
}

func TestRefusalStopsTheKubeletsThatHaveNotBegun(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{
			Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 10,
			Faults: []model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: model.EffectFail, Times: 1}},
		},
		Judging: []checker.Option{checker.MaxUnavailableKubelets(2)},
	}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Kubernetes.MaxUnavailableKubelets = share(t, "2")
		_ = failure(t, r.Worker("run-1").Apply(context.Background(), request), cluster.ErrRefused, "worker-0")

		if got := r.kubelets(); len(got) > 1 {
			t.Errorf("kubelets were replaced on %v beside the one that was refused", got)
		}
	})
}

// TestQuestionThatGotLostIsAskedAgain loses the answer to what a release removes.
func TestQuestionThatGotLostIsAskedAgain(t *testing.T) {
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
