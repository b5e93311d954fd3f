// SPDX-License-Identifier: MPL-2.0

package ports_test

import (
	"testing"
	"testing/synctest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// For machines, the ports have to behave as the adapter does, which the end-to-end run checks against the same
// clauses.
func TestContract_OfTalosHoldsOverThePorts(t *testing.T) {
	for _, talos := range []string{"1.12.6", "1.13.2"} {
		for _, clause := range contract.TalosCases() {
			t.Run(talos+": "+clause.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					kept, err := ports.New(model.Options{ControlPlanes: 3, Workers: 2, Talos: talos, Kubernetes: "1.34.2", Seed: 1})
					if err != nil {
						t.Fatal(err)
					}
					defer kept.Stop()

					clause.Run(t, contractFixture{kept})
				})
			})
		}
	}
}

type contractFixture struct{ cluster *ports.Cluster }

func (f contractFixture) Talos() cluster.Talos         { return f.cluster.Client("run-1") }
func (f contractFixture) Machines() []contract.Machine { return contract.FromModel(f.cluster.World()) }
