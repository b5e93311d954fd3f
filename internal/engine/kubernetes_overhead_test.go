// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestOverheadOfTheKubernetesHalfIsReported measures what the engine adds to the
// time that the nodes need themselves: the pulls, and then one after the other
// from the last look for an image to the component that serves.
func TestOverheadOfTheKubernetesHalfIsReported(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Kubernetes: fromKubernetes, Seed: 21}}, func(r *rig) {
		begun := time.Now()
		request := bare(kube(toKubernetes))
		r.Must(r.Worker("run-1"), request)

		took := time.Since(begun).Seconds()
		needed := r.componentPath()

		t.Logf("the run took %.1f s, the nodes needed %.1f s: %.2f %% on top", took, needed, 100*(took/needed-1))

		if took < needed {
			t.Errorf("the run took %.1f s, less than the %.1f s that the nodes need", took, needed)
		}
	})
}

// componentPath is the time, in seconds, that the nodes need for a run of the
// Kubernetes half, one component after the other.
func (r *rig) componentPath() float64 {
	var (
		// ended is when the component before had its turn.
		pulled, needed, ended float64

		configuring   bool
		looked, asked = map[string]float64{}, map[string]float64{}
	)

	for _, event := range r.Judge.Of(history.KindPull, history.KindConfig, history.KindComponent) {
		switch event.Kind {
		case history.KindPull:
			looked[event.Node] = event.Sim - lookupTime.Seconds()

			if !configuring {
				pulled = event.Sim
			}
		case history.KindConfig:
			// The pull right before it belongs to it.
			if !configuring {
				pulled = looked[event.Node]
			}

			configuring = true
			asked[event.Node] = max(looked[event.Node], ended)

			if event.Detail["changed"] == model.ProxyName {
				needed += event.Sim - asked[event.Node]
				ended = event.Sim
			}
		case history.KindComponent:
			if event.Detail["state"] == "ready" {
				// Two that restart together need the time once.
				needed += event.Sim - max(asked[event.Node], ended)
				ended = event.Sim
			}
		default:
		}
	}

	return pulled + needed
}
