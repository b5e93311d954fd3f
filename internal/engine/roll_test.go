// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestRollReachesTheTarget(t *testing.T) {
	topologies := []struct{ controlPlanes, workers int }{{3, 2}, {1, 1}, {1, 0}, {5, 5}, {3, 0}}
	hops := []struct{ from, to string }{
		{"1.13.2", "1.13.4"}, {"1.13.4", "1.14.1"}, {"1.12.6", "1.13.4"}, {"1.11.5", "1.12.6"},
	}

	for _, topology := range topologies {
		for seed, hop := range hops {
			name := fmt.Sprintf("%d+%d from %s to %s", topology.controlPlanes, topology.workers, hop.from, hop.to)
			t.Run(name, func(t *testing.T) {
				given := setup{Options: model.Options{
					ControlPlanes: topology.controlPlanes, Workers: topology.workers, Talos: hop.from, Seed: uint64(seed + 1),
				}}

				inCluster(t, given, func(r *rig) {
					r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})
					r.Must(r.Worker("run-1"), to(hop.to))
					r.At(hop.to)
					r.Once()
					r.Settled(hop.to)
				})
			})
		}
	}
}
