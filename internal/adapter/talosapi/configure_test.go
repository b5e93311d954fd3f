// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	oldKubelet   = "ghcr.io/siderolabs/kubelet:v1.34.2"
	newKubelet   = "ghcr.io/siderolabs/kubelet:v1.35.0"
	oldAPIServer = "registry.k8s.io/kube-apiserver:v1.34.2"
	newAPIServer = "registry.k8s.io/kube-apiserver:v1.35.0"

	applyCall = "/machine.MachineService/ApplyConfiguration"
)

func toNewKubelet() cluster.ImageChange {
	return cluster.ImageChange{Component: cluster.Kubelet, From: oldKubelet, To: newKubelet}
}

// config is the machine configuration in the model.
func (r *rig) config(node string) string {
	r.Helper()

	state, err := r.world.Node(node)
	if err != nil {
		r.Fatal(err)
	}

	return string(state.Config)
}

// applies fails the test unless the node was sent that many configurations.
func (r *rig) applies(node string, want int) {
	r.Helper()

	if got := r.log.calls(node)[applyCall]; got != want {
		r.Errorf("%s was sent %d configurations, want %d", node, got, want)
	}
}

func TestConfigureChangesOneImageAndNothingElse(t *testing.T) {
	for name, options := range map[string]model.Options{
		"before 1.13":         {Talos: "1.12.6", Kubernetes: "1.34.2"},
		"1.13":                {Talos: "1.13.4", Kubernetes: "1.34.2"},
		"1.14 with v1alpha1":  {Talos: "1.14.0", Kubernetes: "1.34.2"},
		"1.14 with documents": {Talos: "1.14.0", Kubernetes: "1.34.2", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options, func(r *rig) {
				c := r.client("")

				for node, change := range map[string]cluster.ImageChange{
					"worker-0": toNewKubelet(),
					"cp-0":     {Component: cluster.APIServer, From: oldAPIServer, To: newAPIServer},
				} {
					address := map[string]string{"worker-0": worker0, "cp-0": cp0}[node]
					before := r.config(node)

					for range 2 {
						if err := c.Configure(r.Context(), address, change); err != nil {
							r.Fatal(err)
						}
					}

					if got, want := r.config(node), strings.Replace(before, change.From, change.To, 1); got != want {
						r.Errorf("%s: the configuration became\n%s\nwant\n%s", node, got, want)
					}

					r.applies(node, 1)

					if got := r.machine(c, address).Config.Images[change.Component]; got != change.To {
						r.Errorf("%s: %s is read, want %s", node, got, change.To)
					}
				}
			})
		})
	}
}

func TestConfigurePinsAnImageThatWasUnset(t *testing.T) {
	for name, options := range map[string]model.Options{
		"v1alpha1":  {Talos: "1.13.4", Unpinned: true},
		"documents": {Talos: "1.14.0", Unpinned: true, Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options, func(r *rig) {
				c := r.client("")

				for _, component := range cluster.Components(cluster.ControlPlane) {
					status, err := c.Component(r.Context(), cp0, component)
					if component == cluster.Proxy {
						status, err = cluster.ComponentStatus{Image: "registry.k8s.io/kube-proxy:v1.36.0"}, nil
					}

					if err != nil {
						r.Fatal(err)
					}

					if err := c.Configure(r.Context(), cp0, cluster.ImageChange{Component: component, To: status.Image}); err != nil {
						r.Errorf("%s: %v\n%s", component, err, r.config("cp-0"))

						continue
					}

					if got := r.machine(c, cp0).Config.Images[component]; got != status.Image {
						r.Errorf("%s: %q is pinned, want %q", component, got, status.Image)
					}
				}
			})
		})
	}
}

func TestConfigureSendsNothingWhereItExpectedSomethingElse(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		err := c.Configure(r.Context(), worker0, cluster.ImageChange{Component: cluster.Kubelet, From: newKubelet, To: "x:v1.36.0"})
		if !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), oldKubelet) {
			r.Errorf("another image: %v, want a conflict that names %s", err, oldKubelet)
		}

		if err := r.client("-operator").Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, cluster.ErrDenied) {
			r.Errorf("an operator: %v, want it denied", err)
		}

		r.applies("worker-0", 0)
	})
}

// TestConfigureNoticesAnotherWriter: a node of an old version takes two
// configurations at a time, and what the first one changed is undone. A node
// takes between 0.5 and 0.9 seconds for one.
func TestConfigureNoticesAnotherWriter(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.12.6", Kubernetes: "1.34.2"}, func(r *rig) {
		written := make(chan error)

		go func() {
			written <- r.world.SetConfigByHand("worker-0", func(old string) (string, error) { return old + "# by hand\n", nil })
		}()

		between := time.NewTimer(450 * time.Millisecond)
		<-between.C

		err := r.client("").Configure(r.Context(), worker0, toNewKubelet())

		if failed := <-written; failed != nil {
			r.Fatal(failed)
		}

		if !errors.Is(err, cluster.ErrConflict) || !strings.Contains(err.Error(), "overwritten") {
			r.Errorf("%v, want a conflict that says what may be lost", err)
		}

		r.applies("worker-0", 1)
	})

	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: model.EffectOverwritten, Times: 1}})

		if err := r.client("").Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, cluster.ErrConflict) {
			r.Errorf("overwritten at once: %v, want a conflict", err)
		}
	})
}

func TestConfigureNamesWhyANodeDidNotTakeIt(t *testing.T) {
	for effect, want := range map[model.Effect]error{
		model.EffectFail: cluster.ErrRefused,
		model.EffectBusy: cluster.ErrBusy,
	} {
		inBubble(t, model.Options{Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
			c, before := r.client(""), r.config("worker-0")

			r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: effect, Times: 1}})

			if err := c.Configure(r.Context(), worker0, toNewKubelet()); !errors.Is(err, want) {
				r.Errorf("%s: %v, want %v", effect, err, want)
			}

			if after := r.config("worker-0"); after != before {
				r.Errorf("%s: the configuration changed:\n%s", effect, after)
			}

			if err := c.Configure(r.Context(), worker0, toNewKubelet()); err != nil {
				r.Errorf("%s: afterwards: %v", effect, err)
			}
		})
	}
}

func TestConfigureLeavesTheOutcomeOpenWhenTheReplyIsLost(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.13.4", Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepApply, Effect: model.EffectConnectionLost, Times: 1}})
		r.unknown("configure", c.Configure(r.Context(), worker0, toNewKubelet()))
		r.applies("worker-0", 1)

		if err := c.Configure(r.Context(), worker0, toNewKubelet()); err != nil {
			r.Errorf("afterwards: %v", err)
		}

		if !strings.Contains(r.config("worker-0"), newKubelet) {
			r.Error("the image was not changed in the end")
		}
	})
}
