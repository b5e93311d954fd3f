// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestPull_OfComponents(t *testing.T) {
	const mirrored = "mirror.example:5000/k8s/server:v1.35.2"

	for name, test := range map[string]struct {
		image     string
		namespace model.ImageNamespace
		fault     model.Fault
		want      error
	}{
		"kubelet":                   {newKubelet, model.NamespaceSystem, model.Fault{}, nil},
		"static pod":                {newServer, model.NamespaceCRI, model.Fault{}, nil},
		"an image that nobody has":  {"registry.k8s.io/kube-apiserver:v1.99.0", model.NamespaceCRI, model.Fault{}, model.ErrImageNotFound},
		"no version":                {"registry.k8s.io/kube-apiserver:latest", model.NamespaceCRI, model.Fault{}, model.ErrImageNotFound},
		"another namespace":         {newServer, "k8s.io", model.Fault{}, model.ErrUnsupported},
		"fail":                      {newServer, model.NamespaceCRI, model.Fault{Step: model.StepComponentPull, Effect: model.EffectFail}, model.ErrPullFailed},
		"not found":                 {newServer, model.NamespaceCRI, model.Fault{Step: model.StepComponentPull, Effect: model.EffectNotFound}, model.ErrImageNotFound},
		"fail of another component": {newServer, model.NamespaceCRI, model.Fault{Step: model.StepComponentPull, Effect: model.EffectFail, Component: model.KubeletName}, nil},
		"fail of that component":    {newKubelet, model.NamespaceSystem, model.Fault{Step: model.StepComponentPull, Effect: model.EffectFail, Component: model.KubeletName}, model.ErrPullFailed},
		"fail, from a mirror":       {mirrored, model.NamespaceCRI, model.Fault{Step: model.StepComponentPull, Effect: model.EffectFail, Component: model.APIServerName}, model.ErrPullFailed},
		"a fault of installers":     {newServer, model.NamespaceCRI, model.Fault{Step: model.StepPull, Effect: model.EffectFail}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			options := model.Options{ControlPlanes: 1, Talos: "1.14.0", Kubernetes: "1.34.2"}
			if test.image == mirrored {
				options.ComponentImages = map[string]string{model.APIServerName: "mirror.example:5000/k8s/server"}
			}

			inWorld(t, options, func(r rig) {
				if test.fault.Step != "" {
					test.fault.Node, test.fault.Times = "cp-0", 1
					r.SetFaults([]model.Fault{test.fault})
				}

				var steps int

				began := time.Now()
				got, err := r.PullComponent(r.t.Context(), "cp-0", test.image, test.namespace, func(model.Progress) { steps++ })

				if !errors.Is(err, test.want) {
					r.t.Fatalf("got %v, want %v", err, test.want)
				}

				state := r.node("cp-0")
				if there := slices.Contains(state.PulledComponents[test.namespace], test.image); there != (test.want == nil) {
					r.t.Errorf("there: %t, %v", there, state.PulledComponents)
				}

				if test.want != nil {
					return
				}

				repository, _, _ := strings.Cut(test.image, ":v")
				if !strings.HasPrefix(got, repository+"@sha256:") || steps == 0 || time.Since(began) < 30*time.Second {
					r.t.Errorf("got %q with %d steps after %s", got, steps, time.Since(began))
				}

				began = time.Now()

				if _, err := r.PullComponent(r.t.Context(), "cp-0", test.image, test.namespace, nil); err != nil || time.Since(began) > 2*time.Second {
					r.t.Errorf("again: %v after %s", err, time.Since(began))
				}

				if events := r.log.of("cp-0", history.KindPull); len(events) != 2 || events[0].Detail["image"] != test.image || events[0].Detail["ok"] != "true" {
					r.t.Errorf("history: %v", events)
				}
			})
		})
	}
}

func TestPull_DigestIsKept(t *testing.T) {
	const pinned = newServer + "@sha256:" + schematic

	repository, _, _ := strings.Cut(newServer, ":v")

	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		if got, err := r.PullComponent(r.t.Context(), "cp-0", pinned, model.NamespaceCRI, nil); err != nil || got != repository+"@sha256:"+schematic {
			r.t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestPull_OfAComponentStalls(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepComponentPull, Effect: model.EffectStall, Times: 1}})

		ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
		defer cancel()

		if _, err := r.PullComponent(ctx, "cp-0", newServer, model.NamespaceCRI, nil); !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("got %v", err)
		}
	})
}

func TestPull_ImagesAreDroppedUnlessUsed(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Kubernetes: "1.34.2"}, func(r rig) {
		for _, image := range []string{newServer, newScheduler} {
			if _, err := r.PullComponent(r.t.Context(), "cp-0", image, model.NamespaceCRI, nil); err != nil {
				r.t.Fatal(err)
			}
		}

		r.mustApply("cp-0", "kube-scheduler:v1.34.2", "kube-scheduler:v1.35.2")
		r.pass(61 * time.Minute)

		want := []string{
			"registry.k8s.io/kube-apiserver:v1.34.2", "registry.k8s.io/kube-controller-manager:v1.34.2", newScheduler,
		}
		if got := r.node("cp-0").PulledComponents[model.NamespaceCRI]; !slices.Equal(got, want) {
			r.t.Errorf("got %v", got)
		}
	})
}
