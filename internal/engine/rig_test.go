// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
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

// stamps reports whether a run puts its name into the journal with the call: that is
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

// persistent is a request that tries again what has fallen back.
func (r *rig) persistent(target string) engine.Request {
	request := to(target)
	request.Policy.Retry = map[string]string{}

	for _, entry := range r.Journal().Entries {
		if entry.Phase == cluster.PhaseFallback {
			request.Policy.Retry[entry.Node] = entry.BootID
		}
	}

	return request
}

// whole is true if every machine answers and an API server serves.
func (r *rig) whole() bool {
	for _, state := range r.World().Nodes() {
		if !state.Reachable {
			return false
		}
	}

	return r.anyServer()
}

// mutationsOf are the methods of the mutating calls of an undisturbed upgrade.
func mutationsOf(t *testing.T, given setup, request engine.Request) []string {
	t.Helper()

	var (
		mu      sync.Mutex
		methods []string
	)

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Mutation > 0 {
				mu.Lock()
				methods = append(methods, call.Method)
				mu.Unlock()
			}

			return next(ctx)
		})
		r.Must(w, request)
	})

	return methods
}

// beside does something for each number below another one, as many at a time as there is
// room for, until the test fails.
func beside(t *testing.T, numbers int, do func(number int)) {
	t.Helper()
	harness.Beside(t, numbers, do)
}

// crashEach strikes runs of which the mutating calls are known in every way, at each call
// or at one of some; in its middle where it lasts.
func crashEach(t *testing.T, methods []string, first, stride int, lasts func(method string) bool, once func(kind crash, mutation int)) {
	t.Helper()

	var blows []func()

	for mutation := first; mutation <= len(methods); mutation += stride {
		for _, kind := range harness.Crashes() {
			if kind != dieDuring || lasts(methods[mutation-1]) {
				blows = append(blows, func() { once(kind, mutation) })
			}
		}
	}

	beside(t, len(blows), func(number int) { blows[number]() })
}

// lasts tells which calls take their time; in the middle of any other one there
// is nothing but before and after.
func lasts(method string) bool { return method == "Pull" || method == "Install" || method == "Upgrade" }

// crashOnce strikes one call and has the next run finish the work.
func crashOnce(t *testing.T, given setup, request engine.Request, kind crash, mutation int) {
	t.Helper()

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

		struck, wait, err := r.Crashing("run-1", request, kind, mutationOf(mutation))
		if kind != loseReply && struck != "" && !errors.Is(err, harness.ErrKilled) {
			t.Errorf("%s %s: the run ended with %v before it was killed", kind, struck, err)
		}

		if kind == loseReply && err != nil {
			t.Errorf("%s %s: the run did not get over it: %v\n%s", kind, struck, err, r.Judge.Text())
		}

		next := r.Worker("run-2")
		if err := next.Apply(context.Background(), request); err != nil {
			t.Errorf("%s %s: the next run failed: %v\n%s", kind, struck, err, r.Judge.Text())
		}

		wait()

		if t.Failed() {
			return
		}

		if violations := r.Judge.Verdict().Violations; len(violations) > 0 {
			t.Errorf("%s %s: %+v\n%s", kind, struck, violations, r.Judge.Text())

			return
		}

		// Even a run that died with nothing left to do but say so has its last
		// word said, and its lease given back.
		r.At(request.Target.Talos.String())
	})
}
