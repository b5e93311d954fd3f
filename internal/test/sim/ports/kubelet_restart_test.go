// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"context"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestConfigureDoesNothingTwice(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Minute)

		before, err := c.Component(ctx, workerAt, cluster.Kubelet)
		if err != nil || !before.Healthy || before.Image != kubeletTo {
			t.Fatalf("got %+v, %v, want a healthy kubelet from the new image", before, err)
		}

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Second)

		if after, err := c.Component(ctx, workerAt, cluster.Kubelet); err != nil || after != before {
			t.Errorf("got %+v, %v, want %+v", after, err, before)
		}
	})
}

// TestKubeletRegistersBeforeItsNodeIsReady: version and readiness are seen apart.
func TestKubeletRegistersBeforeItsNodeIsReady(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.PullComponent(ctx, workerAt, cluster.Kubelet, kubeletTo); err != nil {
			t.Fatal(err)
		}

		before, err := c.Component(ctx, workerAt, cluster.Kubelet)
		if err != nil || !before.Running || !before.Healthy || before.Since.IsZero() {
			t.Fatalf("at rest: %+v, %v", before, err)
		}

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		var away, unready bool

		for range 60 {
			status, err := c.Component(ctx, workerAt, cluster.Kubelet)
			if err != nil {
				t.Fatal(err)
			}

			away = away || !status.Running && status.Since.IsZero()

			switch node := kubeNode(t, c, "worker-0"); {
			case node.Ready && node.Kubelet.String() == wanted && !unready:
				t.Fatalf("the new kubelet is ready at once: %+v", node)
			case !node.Ready && (node.Kubelet.String() != wanted || node.ReadyReason != "KubeletNotReady"):
				t.Fatalf("a restart of seconds was noticed: %+v", node)
			case !node.Ready:
				unready = true
			}

			time.Sleep(311 * time.Millisecond)
		}

		after, err := c.Component(ctx, workerAt, cluster.Kubelet)
		if err != nil || !away || !after.Healthy || !after.Since.After(before.Since) {
			t.Errorf("got %+v, %v after being away (%t), want a new and healthy service", after, err, away)
		}

		if node := kubeNode(t, c, "worker-0"); node.Kubelet.String() != wanted || !node.Ready {
			t.Errorf("the node reports kubelet %s, ready %t", node.Kubelet, node.Ready)
		}
	})
}

func TestNewKubeletMayStayNotReady(t *testing.T) {
	faults := func(o *model.Options) {
		o.Faults = []model.Fault{{Node: "worker-0", Step: model.StepKubeletRestart, Effect: model.EffectNotReady, Times: 1}}
	}

	inCluster(t, on134(faults), func(s *ports.Cluster, c *ports.Client) {
		ctx := context.Background()

		if err := c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		if status, err := c.Component(ctx, workerAt, cluster.Kubelet); err != nil || !status.Healthy {
			t.Errorf("the kubelet: %+v, %v, want it healthy", status, err)
		}

		if node := kubeNode(t, c, "worker-0"); node.Ready || node.ReadyReason != "KubeletNotReady" || node.Kubelet.String() != wanted {
			t.Errorf("the node: %+v, want it not ready with the new kubelet", node)
		}

		s.World().SetFaults(nil)

		if node := kubeNode(t, c, "worker-0"); !node.Ready {
			t.Errorf("the node once the script is replaced: %+v", node)
		}
	})
}

func TestConfigureUndoesNothingThatWaitsOrIsTried(t *testing.T) {
	for mode, want := range map[model.ApplyMode][]error{
		model.ApplyNoReboot: nil,
		model.ApplyStaged:   {cluster.ErrConflict},
		model.ApplyTry:      {cluster.ErrConflict},
	} {
		t.Run(string(mode), func(t *testing.T) {
			inCluster(t, on134(), func(s *ports.Cluster, c *ports.Client) {
				ctx := context.Background()

				if _, err := s.World().ApplyConfig(ctx, workerAt, []byte(config(t, s, "worker-0")+"# by hand\n"), mode, false); err != nil {
					t.Fatal(err)
				}

				means(t, c.Configure(ctx, workerAt, from(cluster.Kubelet, kubeletTo)), want...)
			})
		})
	}
}

func TestDisabledComponentsRunNowhere(t *testing.T) {
	for name, documents := range map[string]bool{"v1alpha1": false, "documents": true} {
		t.Run(name, func(t *testing.T) {
			off := func(o *model.Options) {
				o.DisabledComponents = []string{model.SchedulerName}
				if o.Documents = documents; documents {
					o.Talos = "1.14.1"
				}
			}

			inCluster(t, on134(off), func(_ *ports.Cluster, c *ports.Client) {
				ctx := context.Background()

				_, err := c.Component(ctx, firstAt, cluster.Scheduler)
				means(t, err, cluster.ErrNotFound)

				machine, err := c.Machine(ctx, firstAt, nil)
				if err != nil || !machine.Config.Disabled[cluster.Scheduler] || len(machine.Config.Disabled) != 1 || machine.Config.Images[cluster.Scheduler] == "" {
					t.Errorf("got %+v, %v, want the scheduler disabled with its image", machine.Config, err)
				}

				pods, err := c.ComponentPods(ctx)
				if err != nil {
					t.Fatal(err)
				}

				for _, pod := range pods {
					if pod.Component == cluster.Scheduler {
						t.Errorf("there is a pod of it: %+v", pod)
					}
				}
			})
		})
	}
}

func TestComponentIsWhatTheMachineKnowsOfIt(t *testing.T) {
	for name, given := range map[string]struct {
		address   string
		component cluster.Component
		disabled  bool
		image     string
		want      []error
	}{
		"a static pod":                 {firstAt, cluster.Scheduler, false, "registry.k8s.io/kube-scheduler:v" + runs, nil},
		"a static pod on a worker":     {workerAt, cluster.APIServer, false, "", []error{cluster.ErrNotFound}},
		"kube-proxy that is rendered":  {firstAt, cluster.Proxy, false, "registry.k8s.io/kube-proxy:v" + runs, nil},
		"kube-proxy that is disabled":  {firstAt, cluster.Proxy, true, "", []error{cluster.ErrNotFound}},
		"kube-proxy on a worker":       {workerAt, cluster.Proxy, false, "", []error{cluster.ErrNotFound}},
		"what is no part of a machine": {firstAt, cluster.Manifests, false, "", []error{cluster.ErrRefused}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, on134(func(o *model.Options) { o.ProxyDisabled = given.disabled }), func(_ *ports.Cluster, c *ports.Client) {
				status, err := c.Component(context.Background(), given.address, given.component)
				means(t, err, given.want...)

				if status.Image != given.image || len(given.want) == 0 && err != nil {
					t.Errorf("got %+v, %v, want %s", status, err, given.image)
				}
			})
		})
	}
}

func TestComponentImageThatDoesNotExistIsNotPulled(t *testing.T) {
	inCluster(t, on134(), func(_ *ports.Cluster, c *ports.Client) {
		means(t, c.PullComponent(context.Background(), firstAt, cluster.APIServer, "registry.k8s.io/kube-apiserver:v1.99.0"), cluster.ErrNotFound)
	})
}
