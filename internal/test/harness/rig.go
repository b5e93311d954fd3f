// SPDX-License-Identifier: MPL-2.0

// Package harness runs the engine against simulated clusters in virtual time and judges everything that happens.
// Tests of other packages share it; its own tests are in the packages below it.
package harness

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// Versions that tests upgrade between, by the API that the nodes have.
const (
	FromLifecycle = "1.13.2"
	ToLifecycle   = "1.13.4"
	FromLegacy    = "1.12.6"
	ToLegacy      = "1.13.4"
	Kubernetes    = "1.34.2"
)

// Rig is a simulated cluster in a bubble, with a judge.
type Rig struct {
	*ports.Cluster

	T     testing.TB
	Judge *Judge
}

// Setup is how a rig differs from three control planes and two workers on a version with the lifecycle API.
type Setup struct {
	model.Options

	Judging []checker.Option
}

func (s Setup) withDefaults() Setup {
	if s.ControlPlanes == 0 {
		s.ControlPlanes, s.Workers = 3, 2
	}

	if s.Talos == "" {
		s.Talos = FromLifecycle
	}

	if s.Kubernetes == "" {
		s.Kubernetes = Kubernetes
	}

	return s
}

// leaseMost is how old a lease may be if something is done under it.
const leaseMost = 30 * time.Second

// spendMemory makes the process spend memory to save time. What a bubble leaves is garbage, so it is collected
// rarely, and its allocations are not profiled unless the test asks for it. The memory that it returns is never
// written to, so the system never provides it; it only raises the heap size above which garbage is collected, however
// little is in use.
var spendMemory = sync.OnceValue(func() (unused []byte) {
	const seldom, least = 400, 128 << 20

	debug.SetGCPercent(seldom)

	if profile := flag.Lookup("test.memprofile"); profile == nil || profile.Value.String() == "" {
		runtime.MemProfileRate = 0
	}

	return make([]byte, least)
})

// New creates a cluster inside a bubble.
func New(t testing.TB, given Setup) *Rig {
	t.Helper()
	spendMemory()

	given = given.withDefaults()
	judging := append([]checker.Option{checker.LeaseDuration(leaseMost)}, given.Judging...)
	made := &Rig{T: t, Judge: &Judge{checker: checker.New(judging...)}}
	given.Recorder = made.Judge

	simulated, err := ports.New(given.Options)
	if err != nil {
		t.Fatal(err)
	}

	made.Cluster = simulated
	made.Judge.mu.Lock()
	made.Judge.world = simulated.World()
	made.Judge.mu.Unlock()

	return made
}

// Run runs a test in virtual time.
func Run(t *testing.T, given Setup, test func(*Rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := New(t, given)
		defer r.Stop()

		test(r)
	})
}

// Sound fails the test if an invariant was broken.
func (r *Rig) Sound() {
	r.T.Helper()

	if violations := r.Judge.Verdict().Violations; len(violations) > 0 {
		r.T.Fatalf("violations: %+v\n%s", violations, r.Judge.Text())
	}
}

// AllRun fails the test unless every node runs the target, uncordoned.
func (r *Rig) AllRun(target string) {
	r.T.Helper()

	nodes := r.Judge.Verdict().Nodes
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if node := nodes[name]; node.Talos != target || node.Cordoned {
			r.T.Errorf("%s: %+v, want Talos %s and no cordon", name, node, target)
		}
	}
}

// At fails the test unless every node runs the target, no invariant was broken, nothing was left behind and the
// annotations say so.
func (r *Rig) At(target string) {
	r.T.Helper()
	r.Sound()
	r.AllRun(target)
	r.Tidy()

	total := len(r.Judge.Verdict().Nodes)
	notes := r.Annotations()
	want := map[string]string{
		"talos-status": "completed", "talos-current": target, "talos-progress": fmt.Sprintf("%d/%d", total, total),
	}

	for key, value := range want {
		if notes[key] != value {
			r.T.Errorf("annotation %s is %q, want %q", key, notes[key], value)
		}
	}

	if r.T.Failed() {
		r.T.Fatal(r.Judge.Text())
	}
}

// Tidy fails the test if a lease or a journal entry was left behind.
func (r *Rig) Tidy() {
	r.T.Helper()

	if holder := r.Lease().Holder; holder != "" {
		r.T.Errorf("the lease is still held by %s", holder)
	}

	if entries := r.Journal().Entries; len(entries) > 0 {
		r.T.Errorf("the journal still holds %+v", entries)
	}
}

// Once fails the test unless every node was installed once and rebooted once.
func (r *Rig) Once() {
	r.T.Helper()

	for name, node := range r.Judge.Verdict().Nodes {
		if node.Installs != 1 || node.Reboots != 1 {
			r.T.Errorf("%s: %d installs and %d reboots, want one of each\n%s", name, node.Installs, node.Reboots, r.Judge.Text())
		}
	}
}

// Settled fails the test unless another upgrade changes nothing.
func (r *Rig) Settled(target string) {
	r.T.Helper()

	again := r.Worker("run-again")
	r.Must(again, To(target))

	if _, mutating := again.Client.Calls(); mutating != 0 {
		r.T.Errorf("an upgrade of a cluster at its target made %d mutating calls", mutating)
	}
}

// State returns the state of a machine.
func (r *Rig) State(name string) model.NodeState {
	r.T.Helper()

	state, err := r.World().Node(name)
	if err != nil {
		r.T.Fatal(err)
	}

	return state
}

// Until lets time pass until the condition holds.
func (r *Rig) Until(what string, limit time.Duration, holds func() bool) {
	r.T.Helper()

	for deadline := time.Now().Add(limit); !holds(); time.Sleep(197 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.T.Fatalf("not %s within %s\n%s", what, limit, r.Judge.Text())
		}
	}
}
