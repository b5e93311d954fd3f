// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"maps"
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

// both is a request for both halves, through as many release lines as it takes.
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

// TestSchedulerIsFollowedWhenTheAPIServerIsBack: below Talos 1.14 the scheduler takes
// the API server of its node along.
func TestSchedulerIsFollowedWhenTheAPIServerIsBack(t *testing.T) {
	for talos, starts := range map[string]int{"1.13.4": 2, "1.14.1": 1} {
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

func TestKubernetesMovesComponentByComponent(t *testing.T) {
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

func TestComponentsMoveInOrder(t *testing.T) {
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

func TestBothHalvesInOneRun(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{Talos: fromLegacy, Kubernetes: fromKubernetes}}

	inCluster(t, given, func(r *rig) {
		request := both("1.13.4", "1.36.1")
		r.Must(r.Worker("run-1"), request)
		r.At("1.13.4")
		r.atKubernetes("1.36.1", request)
	})
}

func TestKubernetesBeforeTalosWhereTheMatrixDemandsIt(t *testing.T) {
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

func TestOneKubeletSetBackIsTheOnlyOneThatIsMoved(t *testing.T) {
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

func TestRegistriesOfOthersSurvive(t *testing.T) {
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

func TestKubeletsMoveBesideEachOther(t *testing.T) {
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

func TestWithoutProxyAndWithoutManifests(t *testing.T) {
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

func TestManifestsFollowARollOfTalosAlone(t *testing.T) {
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
