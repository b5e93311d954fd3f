// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// Versions that tests upgrade between, by the API the nodes take.
const (
	fromLifecycle = harness.FromLifecycle
	toLifecycle   = harness.ToLifecycle
	fromLegacy    = harness.FromLegacy
	toLegacy      = harness.ToLegacy
	kubernetes    = harness.Kubernetes
)

// The names under which the tests of this package know the harness.
type (
	setup  = harness.Setup
	worker = harness.Worker
	crash  = harness.Crash
	strike = harness.Strike
)

const (
	dieBefore = harness.DieBefore
	dieDuring = harness.DieDuring
	dieAfter  = harness.DieAfter
	loseReply = harness.LoseReply
)

// rig is a simulated cluster in a bubble, with a judge.
type rig struct{ *harness.Rig }

// inCluster runs a test in virtual time.
func inCluster(t *testing.T, given setup, test func(*rig)) {
	t.Helper()

	harness.Run(t, given, func(made *harness.Rig) { test(&rig{made}) })
}

func newRig(t testing.TB, given setup) *rig {
	t.Helper()

	return &rig{harness.New(t, given)}
}

// to is a request for a Talos version with the default policy.
func to(target string) engine.Request { return harness.To(target) }

// bare is a request that leaves the manifests alone, for tests that count calls
// or look at the first one.
func bare(request engine.Request) engine.Request { return harness.Bare(request) }

// stamps tells whether a run puts its name into the journal with the call: that is
// the second thing that it changes, after the lease.
func stamps(call ports.Call) bool { return call.Method == "WriteJournal" && call.Mutation == 2 }

// atWill is the number of a mutation that never comes by itself.
const atWill = -1

// newStrike makes a crash at the mutation of that number.
func newStrike(kind crash, mutation int, end context.CancelFunc) *strike {
	return harness.NewStrike(kind, mutationOf(mutation), end)
}

func mutationOf(number int) func(ports.Call) bool {
	return func(call ports.Call) bool { return call.Mutation == number }
}

// named is the node of that name as a double of the cluster lists it.
func named(ctx context.Context, name string, list func(context.Context) ([]cluster.KubeNode, error)) (cluster.KubeNode, error) {
	nodes, err := list(ctx)
	if err != nil {
		return cluster.KubeNode{}, err
	}

	at := slices.IndexFunc(nodes, func(node cluster.KubeNode) bool { return node.Name == name })
	if at < 0 {
		return cluster.KubeNode{}, cluster.ErrNotFound
	}

	return nodes[at], nil
}
