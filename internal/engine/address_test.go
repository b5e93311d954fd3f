// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestMachinesAreReachedByTheirInnerAddress: discovery and Kubernetes name one from
// outside first, under which nothing answers.
func TestMachinesAreReachedByTheirInnerAddress(t *testing.T) {
	for _, planes := range []int{3, 1} {
		t.Run(fmt.Sprintf("%d control planes", planes), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: planes, Workers: 2, ManyAddresses: true}}, func(r *rig) {
				w := r.Worker("run-1")

				observed, err := w.Engine.Observe(context.Background())
				if err != nil {
					t.Fatal(err)
				}

				for _, node := range observed.Nodes {
					if want := r.State(node.Name).Address; node.Address != want || !node.Member || node.Machine == nil {
						t.Errorf("%s is looked for at %s, want %s: %v", node.Name, node.Address, want, node.Unreachable)
					}
				}

				// Without Kubernetes discovery alone says where they are.
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Nodes" {
						return cluster.ErrUnreachable
					}

					return next(ctx)
				})

				alone, err := w.Engine.Observe(context.Background())
				if err != nil {
					t.Fatal(err)
				}

				for _, node := range alone.Nodes {
					if want := r.State(node.Name).Address; node.Address != want || node.Machine == nil {
						t.Errorf("without Kubernetes %s is looked for at %s, want %s: %v", node.Name, node.Address, want, node.Unreachable)
					}
				}

				w.Client.Intercept(nil)
				r.Must(w, to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}
