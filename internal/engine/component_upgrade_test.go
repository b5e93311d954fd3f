// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Versions of Kubernetes that tests upgrade between.
const (
	fromKubernetes = "1.34.2"
	toKubernetes   = "1.35.2"
)

// kube is a request for a Kubernetes version with the default policy.
func kube(target string) engine.Request {
	return engine.Request{Target: cluster.Target{Kubernetes: version.MustParse(target)}, Policy: cluster.DefaultPolicy()}
}

// both is a request for both halves, through as many minor versions as it takes.
func both(talos, kubernetes string) engine.Request {
	request := to(talos)
	request.Target.Kubernetes = version.MustParse(kubernetes)
	request.Policy.AllowIntermediate = true

	return request
}

// atKubernetes fails the test unless every component of every node runs the
// version, nothing was broken, nothing was left behind, and another upgrade
// changes nothing.
func (r *rig) atKubernetes(target string, request engine.Request) {
	r.T.Helper()
	r.Sound()
	r.Tidy()

	for _, node := range r.World().Nodes() {
		want := model.Components{Proxy: target, Kubelet: target}
		if node.Role == model.ControlPlane {
			want.APIServer, want.ControllerManager, want.Scheduler = target, target, target
		}

		if node.StaticPods[model.SchedulerName].Disabled {
			want.Scheduler = node.Components.Scheduler
		}

		if node.StaticPods[model.ControllerManagerName].Disabled {
			want.ControllerManager = node.Components.ControllerManager
		}

		if node.Components != want {
			r.T.Errorf("%s runs %+v, want %+v", node.Name, node.Components, want)
		}
	}

	if r.Journal().Manifests != nil {
		r.T.Errorf("the journal still says that manifests are due")
	}

	notes := r.Annotations()
	for key, value := range map[string]string{"kubernetes-status": "completed", "kubernetes-current": target} {
		if notes[key] != value {
			r.T.Errorf("annotation %s is %q, want %q", key, notes[key], value)
		}
	}

	again := r.Worker("run-again")
	r.Must(again, request)

	if _, mutating := again.Client.Calls(); mutating != 0 {
		r.T.Errorf("an upgrade of a cluster at its target made %d mutating calls", mutating)
	}

	if r.T.Failed() {
		r.T.Fatal(r.Judge.Text())
	}
}

// TestComponent_SchedulerIsFollowedWhenTheAPIServerIsBack: below Talos 1.14 the scheduler takes
// the API server of its node along. The kubelet does as well, whatever the Talos.
func TestComponent_SchedulerIsFollowedWhenTheAPIServerIsBack(t *testing.T) {
	t.Parallel()

	for talos, starts := range map[string]int{"1.13.4": 3, "1.14.1": 2} {
		t.Run(talos, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: talos, Kubernetes: fromKubernetes, Seed: 7}}, func(r *rig) {
				w := r.Worker("run-1")
				whole := func(before string) {
					for _, node := range r.World().Nodes() {
						if pod := node.StaticPods[model.APIServerName]; node.Role == model.ControlPlane && (!pod.Ready || pod.PodFilesVersion != pod.FilesVersion) {
							t.Errorf("%s: the API server of %s is not there, or about to be made anew: %+v", before, node.Name, pod)
						}
					}
				}

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Configure" && strings.HasPrefix(call.Node, "cp-") {
						whole("before " + call.Node + " is configured")
					}

					return next(ctx)
				})

				r.Must(w, kube(toKubernetes))
				whole("in the end")
				r.atKubernetes(toKubernetes, kube(toKubernetes))

				started := map[string]int{}

				for _, event := range r.Judge.Of(history.KindComponent) {
					if event.Detail["component"] == model.APIServerName && event.Detail["state"] == "starting" {
						started[event.Node]++
					}
				}

				if want := map[string]int{"cp-0": starts, "cp-1": starts, "cp-2": starts}; !maps.Equal(started, want) {
					t.Errorf("starts of API servers: %v, want %v", started, want)
				}
			})
		})
	}
}

// configured are the changes of machine configurations, as "component on node",
// in order.
func (r *rig) configured() []string {
	r.T.Helper()

	var changes []string

	for _, event := range r.Judge.Of(history.KindConfig) {
		if event.Detail["code"] == "OK" && event.Detail["changed"] != "" && event.Detail["by"] == "client" {
			changes = append(changes, event.Detail["changed"]+" on "+event.Node)
		}
	}

	return changes
}

func TestComponent_MovesOneAfterTheOther(t *testing.T) {
	t.Parallel()

	for _, given := range []setup{
		{Options: model.Options{Kubernetes: fromKubernetes}},
		{Options: model.Options{Kubernetes: fromKubernetes, Talos: fromLegacy}},
		{Options: model.Options{Kubernetes: fromKubernetes, Talos: "1.14.1"}},
		{Options: model.Options{Kubernetes: fromKubernetes, Talos: "1.14.1", Documents: true}},
		{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 1}},
		{Options: model.Options{Kubernetes: fromKubernetes, Unpinned: true, ControlPlanes: 3, Workers: 1}},
		{Options: model.Options{Kubernetes: fromKubernetes, DisabledComponents: []string{model.SchedulerName}}},
		{Options: model.Options{
			Kubernetes: fromKubernetes, Talos: "1.14.1", Documents: true, DisabledComponents: []string{model.SchedulerName, model.ControllerManagerName},
		}},
	} {
		t.Run(fmt.Sprintf("%+v", given.Options), func(t *testing.T) {
			t.Parallel()

			inCluster(t, given, func(r *rig) {
				r.Must(r.Worker("run-1"), kube(toKubernetes))
				r.atKubernetes(toKubernetes, kube(toKubernetes))

				for name, node := range r.Judge.Verdict().Nodes {
					if node.Reboots != 0 || node.Installs != 0 {
						t.Errorf("%s was installed %d times and rebooted %d times", name, node.Installs, node.Reboots)
					}
				}
			})
		})
	}
}

func TestComponent_MovesInOrder(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes}}, func(r *rig) {
		r.Must(r.Worker("run-1"), kube(toKubernetes))

		var want []string
		for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"} {
			for _, node := range []string{"cp-0", "cp-1", "cp-2"} {
				want = append(want, component+" on "+node)
			}
		}

		want = append(want, "kubelet on worker-0", "kubelet on worker-1")

		if got := r.configured(); !slices.Equal(got, want) {
			t.Errorf("configured\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestComponent_BothHalvesMoveInOneRun(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{Talos: fromLegacy, Kubernetes: fromKubernetes}}

	inCluster(t, given, func(r *rig) {
		request := both("1.13.4", "1.36.1")
		r.Must(r.Worker("run-1"), request)
		r.At("1.13.4")
		r.atKubernetes("1.36.1", request)
	})
}

func TestComponent_MovesBeforeTalosWhereTheMatrixDemandsIt(t *testing.T) {
	t.Parallel()

	// Talos 1.14 does not run Kubernetes 1.31 any more.
	given := setup{Options: model.Options{Talos: "1.13.4", Kubernetes: "1.31.4"}}

	inCluster(t, given, func(r *rig) {
		request := both("1.14.1", "1.32.1")
		r.Must(r.Worker("run-1"), request)
		r.At("1.14.1")
		r.atKubernetes("1.32.1", request)
	})
}

func TestComponent_OneKubeletSetBackIsTheOnlyOneThatIsMoved(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: toKubernetes}}, func(r *rig) {
		if err := r.World().SetImage("worker-1", model.KubeletName, "ghcr.io/siderolabs/kubelet:v"+fromKubernetes); err != nil {
			t.Fatal(err)
		}

		r.Until("set back", time.Minute, func() bool { return r.State("worker-1").Kubelet.Version == fromKubernetes })
		r.Must(r.Worker("run-1"), kube(toKubernetes))

		if got, want := r.configured(), []string{"kubelet on worker-1"}; !slices.Equal(got, want) {
			t.Errorf("configured %v, want %v", got, want)
		}

		r.atKubernetes(toKubernetes, kube(toKubernetes))
	})
}

func TestComponent_RegistriesOfOthersSurvive(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{Kubernetes: fromKubernetes, ConfiguredImages: map[string]string{
		model.KubeletName:   "mirror.example:5000/talos/kubelet:v" + fromKubernetes + "-slim",
		model.APIServerName: "mirror.example:5000/k8s/kube-apiserver:v" + fromKubernetes + "@sha256:" + strings.Repeat("ab", 32),
	}}}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Kubernetes.Images = map[cluster.Component]string{cluster.Scheduler: "other.example/kube-scheduler"}

		r.Must(r.Worker("run-1"), request)
		r.atKubernetes(toKubernetes, request)

		state := r.State("cp-0")
		for what, pair := range map[string][2]string{
			"kubelet":    {state.KubeletService.Image, "mirror.example:5000/talos/kubelet:v" + toKubernetes + "-slim"},
			"API server": {state.StaticPods[model.APIServerName].PodImage, "mirror.example:5000/k8s/kube-apiserver:v" + toKubernetes},
			"scheduler":  {state.StaticPods[model.SchedulerName].PodImage, "other.example/kube-scheduler:v" + toKubernetes},
		} {
			if pair[0] != pair[1] {
				t.Errorf("the %s runs from %s, want %s", what, pair[0], pair[1])
			}
		}
	})
}

func TestComponent_KubeletsMoveBesideEachOther(t *testing.T) {
	t.Parallel()

	given := setup{
		Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 6},
		Judging: []checker.Option{checker.MaxUnavailableKubelets(3)},
	}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Kubernetes.MaxUnavailableKubelets = share(t, "50%")
		r.Must(r.Worker("run-1"), request)
		r.atKubernetes(toKubernetes, request)

		if most := r.mostRestarting(); most < 2 || most > 3 {
			t.Errorf("up to %d kubelets restarted at a time, want 2 or 3", most)
		}
	})
}

func share(t *testing.T, text string) cluster.Share {
	t.Helper()

	parsed, err := cluster.ParseShare(text)
	if err != nil {
		t.Fatal(err)
	}

	return parsed
}

// mostRestarting is how many kubelets of workers were restarting at a time.
func (r *rig) mostRestarting() int {
	away, most := map[string]bool{}, 0

	for _, event := range r.Judge.Of(history.KindComponent) {
		if event.Detail["component"] == model.KubeletName && strings.HasPrefix(event.Node, "worker-") {
			away[event.Node] = event.Detail["state"] != "ready"
		}

		now := 0

		for _, is := range away {
			if is {
				now++
			}
		}

		most = max(most, now)
	}

	return most
}

func TestComponent_MovesWithoutProxyAndWithoutManifests(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{Kubernetes: fromKubernetes, ProxyDisabled: true}}

	inCluster(t, given, func(r *rig) {
		request := kube(toKubernetes)
		request.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}

		w := r.Worker("run-1")
		r.Must(w, request)
		r.Sound()

		if slices.ContainsFunc(r.configured(), func(change string) bool { return strings.HasPrefix(change, "kube-proxy") }) {
			t.Errorf("kube-proxy is disabled and was configured: %v", r.configured())
		}

		if err := w.Apply(context.Background(), request); err != nil {
			t.Error(err)
		}
	})
}

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

// TestComponent_KubeletsThatDoNotComeUpAreNotFollowedByOthers applies again and again, as
// pipelines do.
func TestComponent_KubeletsThatDoNotComeUpAreNotFollowedByOthers(t *testing.T) {
	t.Parallel()

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

func TestComponent_BrokenStaticPodIsNotFollowedByTheNext(t *testing.T) {
	t.Parallel()

	fault := model.Fault{Node: "cp-0", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: model.SchedulerName, Times: 1}

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 1, Workers: 1, Faults: []model.Fault{fault}}}, func(r *rig) {
		first := failure(t, r.Worker("run-1").Apply(context.Background(), kube(toKubernetes)), context.DeadlineExceeded, "cp-0")
		if !strings.Contains(first.State, "only control plane") {
			t.Errorf("the state is %q", first.State)
		}

		changed := len(r.configured())

		second := failure(t, r.Worker("run-2").Apply(context.Background(), kube(toKubernetes)), say.ErrGuard, "cp-0")
		if !strings.Contains(second.Error(), "kube-scheduler is not Ready") || len(r.configured()) != changed {
			t.Errorf("%v; configured %v", second, r.configured()[changed:])
		}
	})
}

// TestComponent_CrashingStaticPodSaysWhy: the container's last lines are in the message, with the command that shows
// more of them, and nobody waits longer than the ten minutes that the page says. After an upgrade of Talos, which has
// its own limit, the lines are there too.
func TestComponent_CrashingStaticPodSaysWhy(t *testing.T) {
	t.Parallel()

	for component, request := range map[string]engine.Request{
		model.SchedulerName: kube(toKubernetes), model.ControllerManagerName: kube(toKubernetes), model.APIServerName: to(toLifecycle),
	} {
		t.Run(component, func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, ControlPlanes: 3, Workers: 1}}, func(r *rig) {
				r.World().SetFaults([]model.Fault{{Node: "cp-1", Step: model.StepStaticPod, Effect: model.EffectCrashLoop, Component: component}})

				w := r.Worker("run-1")

				var configured time.Duration

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Configure" {
						configured = r.World().Now()
					}

					return next(ctx)
				})

				failed := failure(t, w.Apply(context.Background(), request), nil, "cp-1")

				for _, says := range []string{"The last lines of the log of " + component + " on cp-1:\n  ", `"command failed"`} {
					if !strings.Contains(failed.Error(), says) {
						t.Errorf("it does not say %q: %v", says, failed)
					}
				}

				if !request.Target.Talos.IsZero() {
					return
				}

				if !strings.Contains(failed.Remedy, fmt.Sprintf("logs -k kube-system/%[1]s-cp-1:%[1]s", component)) {
					t.Errorf("the remedy names no command: %s", failed.Remedy)
				}

				if took := r.World().Now() - configured; took < 9*time.Minute || took > 11*time.Minute {
					t.Errorf("it took %s from the last change on", took)
				}
			})
		})
	}
}

// runsTalos reports whether every machine runs that version of Talos.
func (r *rig) runsTalos(version string) bool {
	return !slices.ContainsFunc(r.World().Nodes(), func(node model.NodeState) bool { return node.Talos != version })
}

func TestComponent_ManyKubeletsDoNotStarveEachOther(t *testing.T) {
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

func TestComponent_NodesSettleAfterTheirKubelets(t *testing.T) {
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

func TestComponent_BusyNodeIsBlamedOnAnotherWriter(t *testing.T) {
	t.Parallel()

	busy := model.Fault{Node: "cp-0", Step: model.StepApply, Effect: model.EffectBusy}

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Faults: []model.Fault{busy}}}, func(r *rig) {
		failed := failure(t, r.Worker("run-1").Apply(context.Background(), kube(toKubernetes)), cluster.ErrBusy, "cp-0")
		if !strings.Contains(failed.Remedy, "Somebody else keeps applying") {
			t.Error(failed)
		}
	})
}

func TestComponent_RefusalStopsKubeletsThatHaveNotBegun(t *testing.T) {
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
			want:  cluster.ErrRefused, node: "cp-1", says: "The node did not accept its machine configuration",
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
			want:  say.ErrForeignWriter, node: "cp-0", says: "data.talosupgrade_current_versions",
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

func TestComponent_FaultsAreNamedAndSafe(t *testing.T) {
	t.Parallel()

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

func TestComponent_HeldWorkerThatIsDownIsLeftBehind(t *testing.T) {
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

// TestComponent_CrashAnywhereThenApplyAgainConverges strikes a run at
// every mutating call in every way, and applies once more.
func TestComponent_CrashAnywhereThenApplyAgainConverges(t *testing.T) {
	t.Parallel()

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

			lasts := func(method string) bool { return method == "Configure" || method == "Apply" }
			crashEach(t, methods, first, stride, lasts, func(kind crash, mutation int) {
				crashKubernetesOnce(t, given, kind, mutation)
			})

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

// TestComponent_NextKubeletWaitsForTheAPIServerOfTheLast: a kubelet of another minor version
// makes its static pods anew some time after it is Ready, and one of the same line keeps them.
func TestComponent_NextKubeletWaitsForTheAPIServerOfTheLast(t *testing.T) {
	t.Parallel()

	for target, remade := range map[string]bool{toKubernetes: true, "1.34.5": false} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Seed: 11}}, func(r *rig) {
				r.Must(r.Worker("run-1"), kube(target))
				r.atKubernetes(target, kube(target))
				r.checkKubeletsApart(remade)
			})
		})
	}
}

// TestComponent_KubeletOfAnEarlierRunIsWaitedFor: the run ends as soon as the first kubelet
// is Ready, and the next one begins at once.
func TestComponent_KubeletOfAnEarlierRunIsWaitedFor(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Seed: 12}}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, _ ports.Call, next func(context.Context) error) error {
			if first := r.State("cp-0").Kubelet; first.Version == toKubernetes && first.Ready {
				cancel()
			}

			return next(ctx)
		})

		if err := w.Apply(ctx, kube(toKubernetes)); err == nil {
			t.Fatal("the first run went on")
		}

		r.Must(r.Worker("run-2"), kube(toKubernetes))
		r.atKubernetes(toKubernetes, kube(toKubernetes))
		r.checkKubeletsApart(true)
	})
}

// checkKubeletsApart fails the test if the kubelet of a control plane was configured before
// the last one had made its API server anew or, where it keeps it, much later.
func (r *rig) checkKubeletsApart(remade bool) {
	r.T.Helper()

	var (
		last           string
		ready, serving float64 // when the last kubelet was, and its API server
	)

	for _, event := range r.Judge.Of(history.KindConfig, history.KindComponent) {
		name, state := event.Detail["component"], event.Detail["state"]

		switch {
		case event.Kind == history.KindConfig && event.Detail["changed"] == model.KubeletName && strings.HasPrefix(event.Node, "cp-"):
			if last != "" && remade && serving < ready {
				r.T.Errorf("%s had its kubelet configured at %.0f s, and the API server of %s has not restarted since %.0f s", event.Node, event.Sim, last, ready)
			}

			if last != "" && !remade && (serving > 0 || event.Sim-ready > 30) {
				r.T.Errorf("%s had its kubelet configured %.0f s after the one of %s was ready", event.Node, event.Sim-ready, last)
			}

			last, ready, serving = event.Node, event.Sim, 0
		case event.Kind == history.KindComponent && event.Node == last && name == model.KubeletName && state == "ready":
			ready = event.Sim
		case event.Kind == history.KindComponent && event.Node == last && name == model.APIServerName && state == "ready":
			serving = event.Sim
		}
	}

	if last != "cp-2" {
		r.T.Errorf("the last control plane to be configured was %q", last)
	}
}

func TestComponent_NothingOfAConfigurationChangesButImages(t *testing.T) {
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

// TestComponent_CancelAtAnyMomentLeavesNothingBehind cancels runs at random moments and
// applies again.
func TestComponent_CancelAtAnyMomentLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	moments := 30
	if testing.Short() || raceEnabled {
		moments = 5
	}

	for name, shape := range map[string][2]int{"three control planes": {3, 2}, "a single control plane": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			drawn := drawMoments(17, 19, moments, 9*time.Minute)

			beside(t, moments, func(number int) {
				moment := drawn[number].at
				given := setup{Options: model.Options{
					Kubernetes: fromKubernetes, ControlPlanes: shape[0], Workers: shape[1], Seed: drawn[number].seed,
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
					t.Errorf("cancelled after %s with seed %d", moment, given.Seed)
				}
			})
		})
	}
}

// TestComponent_NothingIsConfiguredUnderTheLeaseOfOthers takes the lease away in the
// middle of the turn of a component.
func TestComponent_NothingIsConfiguredUnderTheLeaseOfOthers(t *testing.T) {
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
		if !errors.Is(err, say.ErrLeaseLost) {
			t.Errorf("the run ended with %v", err)
		}

		if changed := r.configured(); len(changed) > taken {
			t.Errorf("configured %v under a lease of somebody else", changed[taken:])
		}
	})
}

// TestComponent_EachGuardIsNeeded takes each of them away in turn: the checker
// has to notice what comes of it.
func TestComponent_EachGuardIsNeeded(t *testing.T) {
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

func TestComponent_CanaryKubeletsGoFirst(t *testing.T) {
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

// TestComponent_NewerReleaseCuresABrokenOne chooses a newer patch because the first
// does not come up.
func TestComponent_NewerReleaseCuresABrokenOne(t *testing.T) {
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

// TestComponent_NothingFollowsTroubleOfEtcd: trouble of etcd that begins while a component waits for another control
// plane to come back is seen before anything is configured.
func TestComponent_NothingFollowsTroubleOfEtcd(t *testing.T) {
	t.Parallel()

	for effect, says := range map[model.Effect]string{
		model.EffectAlarmCorrupt: "CORRUPT",
		model.EffectNoLeader:     "follows no leader",
		model.EffectLearner:      "still a learner",
		model.EffectLagging:      "behind",
	} {
		t.Run(string(effect), func(t *testing.T) {
			t.Parallel()

			componentBesideTrouble(t, effect, says)
		})
	}
}

func componentBesideTrouble(t *testing.T, effect model.Effect, says string) {
	t.Helper()

	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Seed: 11}}, func(r *rig) {
		var once sync.Once

		w := r.Worker("run-1")
		begun := func(event cluster.Event) bool {
			return event.Kind == cluster.EventNodeStarted && event.Node == "cp-0" && event.Component == cluster.ControllerManager
		}

		w.Client.Intercept(func(ctx context.Context, _ ports.Call, next func(context.Context) error) error {
			err := next(ctx)

			// The plan has looked at etcd, and the next component has its turn.
			if slices.ContainsFunc(w.Events(), begun) {
				once.Do(func() {
					r.World().SetFaults([]model.Fault{
						{Node: "cp-2", Step: model.StepEtcd, Effect: effect},
					})

					if _, err := r.World().Reboot(context.Background(), "cp-1", model.RebootDefault); err != nil {
						t.Error(err)
					}
				})
			}

			return err
		})

		err := w.Apply(context.Background(), kube(toKubernetes))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the run ends with %v", err)
		}

		r.Sound()
	})
}
