// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/contract"
)

// The adapter fulfils the contract over a real kube-apiserver, by which the simulated ones are measured.
func TestContract_HoldsOverARealAPIServer(t *testing.T) {
	contract.Test(t, func(t *testing.T) contract.Fixture {
		t.Helper()

		return openFixture(t)
	})
}

// So does the protocol itself: these clauses are about the API server.
func TestContract_OfTheWireHoldsOverARealAPIServer(t *testing.T) {
	for _, clause := range contract.WireCases() {
		t.Run(clause.Name, func(t *testing.T) { clause.Run(t, openFixture(t)) })
	}
}

func openFixture(t *testing.T) contract.WireFixture {
	t.Helper()

	api, other := live(t)
	api.Identify(suite.World.ClusterID())

	live := &contract.Live{
		Adapter: api, Other: other, ID: suite.World.ClusterID(), Known: contract.FromModel(suite.World),
		Image: "example.org/c:1", Patience: 30 * time.Second,
	}

	return live.Open(t)
}
