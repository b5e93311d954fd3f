// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func componentPod(t *testing.T, c *ports.Client, node string, component cluster.Component) (cluster.ComponentPod, bool) {
	t.Helper()

	pods, err := c.ComponentPods(context.Background())
	if err != nil {
		t.Fatal(err)
	}

	for _, pod := range pods {
		if pod.Node == node && pod.Component == component {
			return pod, true
		}
	}

	return cluster.ComponentPod{}, false
}

func TestStaticPodFollowsItsConfiguration(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		before, found := componentPod(t, c, "cp-0", cluster.APIServer)
		if !found || !before.Ready || before.ConfigVersion == "" {
			t.Fatalf("at rest: %+v", before)
		}

		if err := c.Configure(ctx, firstAt, from(cluster.APIServer, serverTo)); err != nil {
			t.Fatal(err)
		}

		var away bool

		for range 150 {
			pod, found := componentPod(t, c, "cp-0", cluster.APIServer)
			away = away || !found || !pod.Ready

			time.Sleep(811 * time.Millisecond)
		}

		status, err := c.Component(ctx, firstAt, cluster.APIServer)
		if err != nil {
			t.Fatal(err)
		}

		after, _ := componentPod(t, c, "cp-0", cluster.APIServer)
		if !away || !after.Ready || after.Image != serverTo || after.ConfigVersion != status.ConfigVersion ||
			after.ConfigVersion == before.ConfigVersion {
			t.Errorf("got %+v (away %t) for %+v, want a ready pod of the new configuration", after, away, status)
		}

		if other, _ := componentPod(t, c, "cp-1", cluster.APIServer); strings.Contains(other.Image, wanted) || !other.Ready {
			t.Errorf("cp-1: %+v", other)
		}
	})
}

func TestStaticPodSaysWhyItDoesNotRun(t *testing.T) {
	absent := []model.Fault{{
		Node: "cp-0", Step: model.StepComponentPull, Effect: model.EffectNotFound, Component: model.SchedulerName,
	}}

	inCluster(t, on134(func(o *model.Options) { o.Faults = absent }), func(_ *ports.Cluster, c *ports.Client) {
		change := from(cluster.Scheduler, "registry.k8s.io/kube-scheduler:v"+wanted)
		if err := c.Configure(context.Background(), firstAt, change); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * time.Minute)

		pod, _ := componentPod(t, c, "cp-0", cluster.Scheduler)
		if pod.Ready || !strings.HasPrefix(pod.Trouble, "ImagePullBackOff: ") {
			t.Errorf("got %+v, want one that cannot be pulled", pod)
		}
	})
}

func TestPodsOfASilentNodeCountAsReadyUntilKubernetesNotices(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		if err := c.Reboot(context.Background(), thirdAt, cluster.RebootDefault); err != nil {
			t.Fatal(err)
		}

		var early, late bool

		for range 200 {
			node := kubeNode(t, c, "cp-2")
			pod, found := componentPod(t, c, "cp-2", cluster.Scheduler)

			switch {
			case !found:
				t.Fatal("the pod of a node that is away is not listed")
			case node.Ready:
				early = early || pod.Ready
			case node.ReadyReason == "NodeStatusUnknown" && pod.Ready:
				late = true
			}

			time.Sleep(time.Second)
		}

		if !early || late {
			t.Errorf("ready while the node was: %t; ready while it was lost: %t", early, late)
		}

		if pod, _ := componentPod(t, c, "cp-2", cluster.Scheduler); !pod.Ready || pod.ConfigVersion != "1" {
			t.Errorf("after the boot: %+v", pod)
		}
	})
}

func TestDisabledProxyHasNoPods(t *testing.T) {
	inCluster(t, on134(func(o *model.Options) { o.ProxyDisabled = true }), func(_ *ports.Cluster, c *ports.Client) {
		if pod, found := componentPod(t, c, "worker-0", cluster.Proxy); found {
			t.Errorf("got %+v, want none", pod)
		}

		machine, err := c.Machine(context.Background(), firstAt, nil)
		if err != nil || !machine.Config.Disabled[cluster.Proxy] {
			t.Errorf("got %+v, %v, want a disabled kube-proxy", machine.Config, err)
		}
	})
}

func TestMachineTellsWhatItsConfigurationNames(t *testing.T) {
	mirror := map[string]string{"kubelet": "mirror.example:5000/talos/kubelet"}

	for name, given := range map[string]struct {
		options model.Options
		address string
		want    map[cluster.Component]string
	}{
		"pinned worker": {on134(), workerAt, map[cluster.Component]string{cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.34.1"}},
		"mirror": {
			on134(func(o *model.Options) { o.ComponentImages = mirror }), workerAt,
			map[cluster.Component]string{cluster.Kubelet: "mirror.example:5000/talos/kubelet:v1.34.1"},
		},
		"pinned control plane": {on134(), firstAt, map[cluster.Component]string{
			cluster.Kubelet:           "ghcr.io/siderolabs/kubelet:v1.34.1",
			cluster.APIServer:         "registry.k8s.io/kube-apiserver:v1.34.1",
			cluster.ControllerManager: "registry.k8s.io/kube-controller-manager:v1.34.1",
			cluster.Scheduler:         "registry.k8s.io/kube-scheduler:v1.34.1",
			cluster.Proxy:             "registry.k8s.io/kube-proxy:v1.34.1",
		}},
		"unpinned": {model.Options{Unpinned: true}, firstAt, map[cluster.Component]string{}},
		"documents": {on134(func(o *model.Options) { o.Talos, o.Documents = "1.14.1", true }), workerAt, map[cluster.Component]string{
			cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.34.1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, given.options, func(_ *ports.Cluster, c *ports.Client) {
				machine, err := c.Machine(context.Background(), given.address, nil)
				if err != nil {
					t.Fatal(err)
				}

				if machine.Config.InstallImage == "" || len(machine.Config.Images) != len(given.want) {
					t.Errorf("got %+v, want %v and an installer", machine.Config, given.want)
				}

				for component, image := range given.want {
					if got := machine.Config.Images[component]; got != image {
						t.Errorf("%s: got %q, want %q", component, got, image)
					}
				}
			})
		})
	}
}
