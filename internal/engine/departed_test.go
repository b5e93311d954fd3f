// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// TestNodeThatTheConfigurationNamesMayLeave: the run began with it there, and
// goes on without it.
func TestNodeThatTheConfigurationNamesMayLeave(t *testing.T) {
	for name, policy := range map[string]cluster.Policy{
		"canary": {Canary: []string{"worker-0"}},
		"hold":   {Hold: map[string]bool{"worker-0": true}},
		"image":  {Images: map[string]string{"worker-0": "ghcr.io/siderolabs/installer"}},
		"retry":  {Retry: map[string]string{"worker-0": "0a1b2c3d-0000-0000-0000-000000000000"}},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 173}}, func(r *rig) {
				request := to(toLifecycle)
				request.Policy.Canary, request.Policy.Hold, request.Policy.Images, request.Policy.Retry = policy.Canary, policy.Hold, policy.Images, policy.Retry

				w := r.Worker("run-1")
				r.during(w, "Cordon", "worker-1", func() {
					if err := r.RemoveNode("worker-0"); err != nil {
						t.Error(err)
					}
				})

				r.Must(w, request)
				r.Sound()
				r.Tidy()

				for _, node := range []string{"worker-1", "worker-2", "cp-0", "cp-1", "cp-2"} {
					if state := r.State(node); state.Talos != toLifecycle || state.Unschedulable {
						t.Errorf("%s was not moved: %+v", node, state)
					}
				}

				warnings := w.Texts(cluster.EventWarning)
				if count := strings.Count(strings.Join(warnings, "\n"), "worker-0, which canary or node_overrides names, has left"); count != 1 {
					t.Errorf("it was said %d times that worker-0 has left: %v", count, warnings)
				}
			})
		})
	}
}
