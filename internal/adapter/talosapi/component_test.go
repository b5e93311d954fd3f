// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func (r *rig) component(c *talosapi.Client, address string, component cluster.Component) cluster.ComponentStatus {
	r.Helper()

	status, err := c.Component(r.Context(), address, component)
	if err != nil {
		r.Fatal(err)
	}

	return status
}

func TestComponent_StaticPodTellsItsImageAndConfigVersion(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		for component, image := range map[cluster.Component]string{
			cluster.APIServer:         oldAPIServer,
			cluster.ControllerManager: "registry.k8s.io/kube-controller-manager:v1.34.2",
			cluster.Scheduler:         "registry.k8s.io/kube-scheduler:v1.34.2",
		} {
			if got := r.component(c, cp0, component); got.Image != image || got.ConfigVersion == "" || got.Running {
				r.Errorf("%s: %+v, want image %s and a version", component, got, image)
			}

			if _, err := c.Component(r.Context(), worker0, component); !errors.Is(err, cluster.ErrNotFound) {
				r.Errorf("%s on a worker: %v, want it not found", component, err)
			}
		}

		before := r.component(c, cp0, cluster.APIServer)
		change := cluster.ImageChange{Component: cluster.APIServer, From: oldAPIServer, To: newAPIServer}

		if err := c.Configure(r.Context(), cp0, change); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "reconfigured", func(state model.NodeState) bool { return state.StaticPods[model.APIServerName].Image == newAPIServer })

		if after := r.component(c, cp0, cluster.APIServer); after.Image != newAPIServer || after.ConfigVersion == before.ConfigVersion {
			r.Errorf("afterwards: %+v, want image %s and another version than %s", after, newAPIServer, before.ConfigVersion)
		}

		if _, err := c.Component(r.Context(), cp0, cluster.Manifests); !errors.Is(err, cluster.ErrRefused) {
			r.Errorf("manifests: %v, want it refused", err)
		}
	})
}

// TestComponent_StaticPodIsOfTheVersionItShows: from Talos 1.14 on, what the machine
// configuration says of a component and what its pod is made from are two
// resources, with versions of their own.
func TestComponent_StaticPodIsOfTheVersionItShows(t *testing.T) {
	for name, options := range map[string]model.Options{
		"1.12": {Talos: "1.12.6"}, "1.13": {Talos: "1.13.4"}, "1.14": {Talos: "1.14.0"},
		"1.14 with documents": {Talos: "1.14.0", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			options.Kubernetes = "1.34.2"

			inBubble(t, options, func(r *rig) {
				c := r.client("")
				check := func(component cluster.Component) {
					r.Helper()

					state, err := r.world.Node("cp-0")
					if err != nil {
						r.Fatal(err)
					}

					pod := state.StaticPods[string(component)]
					if got, want := r.component(c, cp0, component).ConfigVersion, strconv.Itoa(pod.PodConfigVersion); got != want {
						r.Errorf("%s is of version %s, want %s, which its pod shows", component, got, want)
					}
				}

				check(cluster.APIServer)
				check(cluster.ControllerManager)

				for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
					image := "registry.k8s.io/" + string(component) + ":v1.3"
					change := cluster.ImageChange{Component: component, From: image + "4.2", To: image + "5.0"}

					if err := c.Configure(r.Context(), cp0, change); err != nil {
						r.Fatal(err)
					}

					r.until("cp-0", "running "+change.To, func(state model.NodeState) bool {
						pod := state.StaticPods[string(component)]

						return pod.PodImage == change.To && pod.Ready
					})
					check(component)
				}
			})
		})
	}
}

func TestComponent_DisabledIsNoComponentOfItsNode(t *testing.T) {
	for name, options := range map[string]model.Options{
		"1.13":                {Talos: "1.13.4"},
		"1.14":                {Talos: "1.14.0"},
		"1.14 with documents": {Talos: "1.14.0", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			options.Kubernetes = "1.34.2"
			options.DisabledComponents = []string{model.SchedulerName, model.ControllerManagerName}

			inBubble(t, options, func(r *rig) {
				c := r.client("")
				r.component(c, cp0, cluster.APIServer)

				for _, component := range []cluster.Component{cluster.Scheduler, cluster.ControllerManager} {
					if status, err := c.Component(r.Context(), cp0, component); !errors.Is(err, cluster.ErrNotFound) {
						r.Errorf("%s: %+v, %v, want it not found", component, status, err)
					}

					if config := r.machine(c, cp0).Config; !config.Disabled[component] || config.Images[component] == "" {
						r.Errorf("%s: %+v, want it disabled with its image", component, config)
					}
				}
			})
		})
	}
}

// TestComponent_ControlPlaneTellsWhatItRendersForTheProxy is about the only component that no machine runs itself.
func TestComponent_ControlPlaneTellsWhatItRendersForTheProxy(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		before, after := "registry.k8s.io/kube-proxy:v1.34.2", "mirror.example:5000/kube-proxy:v1.35.0"

		if status := r.component(c, cp0, cluster.Proxy); status.Image != before {
			r.Errorf("it renders %+v, want image %s", status, before)
		}

		// Other installations may bring a kube-proxy of their own, under other IDs.
		if lists := r.log.calls("cp-0")["/cosi.resource.State/List"]; lists != 0 {
			r.Errorf("%d lists, want only what Talos renders for kube-proxy to be read", lists)
		}

		if err := c.Configure(r.Context(), cp0, cluster.ImageChange{Component: cluster.Proxy, From: before, To: after}); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "rendered", func(state model.NodeState) bool { return state.ProxyImage == after })

		if status := r.component(c, cp0, cluster.Proxy); status.Image != after {
			r.Errorf("it renders %+v, want image %s", status, after)
		}
	})

	inBubble(t, model.Options{Kubernetes: "1.34.2", ProxyDisabled: true}, func(r *rig) {
		if status, err := r.client("").Component(r.Context(), cp0, cluster.Proxy); !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("without kube-proxy: %+v, %v, want it not found", status, err)
		}
	})
}

func TestComponent_KubeletTellsWhenItWasRestarted(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		before := r.component(c, worker0, cluster.Kubelet)
		if before.Image != oldKubelet || !before.Running || !before.Healthy || before.Since.IsZero() || before.ConfigVersion != "" {
			r.Fatalf("before: %+v", before)
		}

		began := time.Now()

		if err := c.Configure(r.Context(), worker0, toNewKubelet()); err != nil {
			r.Fatal(err)
		}

		r.until("worker-0", "without a kubelet", func(state model.NodeState) bool { return state.KubeletService.Since.IsZero() })

		if during := r.component(c, worker0, cluster.Kubelet); during.Image != newKubelet || during.Running || during.Healthy || !during.Since.IsZero() {
			r.Errorf("while it restarts: %+v, want nothing but the image", during)
		}

		r.until("worker-0", "with a kubelet", func(state model.NodeState) bool { return state.KubeletService.Healthy })

		if after := r.component(c, worker0, cluster.Kubelet); !after.Running || !after.Healthy || after.Since.Before(began) {
			r.Errorf("afterwards: %+v, want it to run since after %s", after, began)
		}
	})
}

func TestComponent_OfAnUnreachableNodeIsAnError(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		if err := c.Reboot(r.Context(), worker0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("worker-0", "down", isDown)

		if _, err := c.Component(r.Context(), worker0, cluster.Kubelet); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("component: %v, want it unreachable", err)
		}

		if err := c.Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("configure: %v, want it only unreachable", err)
		}

		if err := c.PullComponent(r.Context(), worker0, cluster.Kubelet, newKubelet); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("pull: %v, want it unreachable", err)
		}
	})
}

func TestComponent_ImagesGoWhereTheirContainersRun(t *testing.T) {
	for talos, call := range map[string]string{
		"1.12.6": "/machine.MachineService/ImagePull", "1.13.4": "/machine.ImageService/Pull", "1.14.0": "/machine.ImageService/Pull",
	} {
		t.Run(talos, func(t *testing.T) {
			inBubble(t, model.Options{Talos: talos, Kubernetes: "1.34.2"}, func(r *rig) {
				c := r.client("-operator")

				for component, image := range map[cluster.Component]string{
					cluster.Kubelet: newKubelet, cluster.APIServer: newAPIServer, cluster.Proxy: "registry.k8s.io/kube-proxy:v1.35.0",
				} {
					if err := c.PullComponent(r.Context(), cp0, component, image); err != nil {
						r.Fatal(err)
					}

					state, err := r.world.Node("cp-0")
					if err != nil {
						r.Fatal(err)
					}

					into := model.NamespaceCRI
					if component == cluster.Kubelet {
						into = model.NamespaceSystem
					}

					for namespace, images := range state.PulledComponents {
						if slices.Contains(images, image) != (namespace == into) {
							r.Errorf("%s holds %q, want %s in %s only", namespace, images, image, into)
						}
					}
				}

				if got := r.log.calls("cp-0")[call]; got != 3 {
					r.Errorf("%d calls of %s, want 3: %v", got, call, r.log.calls("cp-0"))
				}

				if err := c.PullComponent(r.Context(), cp0, cluster.Kubelet, "ghcr.io/siderolabs/kubelet:v1.99.0"); !errors.Is(err, cluster.ErrNotFound) {
					r.Errorf("a missing image: %v, want it not found", err)
				}
			})
		})
	}
}
