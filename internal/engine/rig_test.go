// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
)

// Versions that tests upgrade between, by the API the nodes take.
const (
	fromLifecycle = "1.13.2"
	toLifecycle   = "1.13.4"
	fromLegacy    = "1.12.6"
	toLegacy      = "1.13.4"
	kubernetes    = "1.34.2"
)

// judge keeps a history and has every event judged.
type judge struct {
	mu      sync.Mutex
	checker *checker.Checker
	world   *model.World
	events  []history.Event
}

// Record implements [history.Recorder].
func (j *judge) Record(node string, kind history.Kind, detail map[string]string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	event := history.Event{Seq: int64(len(j.events) + 1), Node: node, Kind: kind, Detail: detail}
	if j.world != nil {
		event.Sim = j.world.Now().Seconds()
	}

	j.events = append(j.events, event)
	j.checker.Add(event)
}

func (j *judge) verdict() checker.Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.checker.Verdict()
}

// of are the events of some kinds, in order.
func (j *judge) of(kinds ...history.Kind) []history.Event {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(j.events), func(e history.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

// text is the end of the history, for the message of a test that failed.
func (j *judge) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()

	const most = 150

	var lines []string

	for _, event := range j.events {
		if event.Kind == history.KindRead {
			continue
		}

		line := fmt.Sprintf("%9.3f %-9s %s", event.Sim, event.Node, event.Kind)
		for _, key := range slices.Sorted(maps.Keys(event.Detail)) {
			line += " " + key + "=" + event.Detail[key]
		}

		lines = append(lines, line)
	}

	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// rig is a simulated cluster in a bubble, with a judge.
type rig struct {
	*ports.Cluster

	t     testing.TB
	judge *judge
}

// setup says how a rig differs from three control planes and two workers on a
// version with the lifecycle API.
type setup struct {
	model.Options

	judging []checker.Option
}

func (s setup) withDefaults() setup {
	if s.ControlPlanes == 0 {
		s.ControlPlanes, s.Workers = 3, 2
	}

	if s.Talos == "" {
		s.Talos = fromLifecycle
	}

	if s.Kubernetes == "" {
		s.Kubernetes = kubernetes
	}

	return s
}

// leaseMost is how old a lease may be when something is done under it.
const leaseMost = 30 * time.Second

// newRig makes a cluster inside a bubble.
func newRig(t testing.TB, given setup) *rig {
	t.Helper()

	given = given.withDefaults()
	judging := append([]checker.Option{checker.LeaseDuration(leaseMost)}, given.judging...)
	made := &rig{t: t, judge: &judge{checker: checker.New(judging...)}}
	given.Recorder = made.judge

	simulated, err := ports.New(given.Options)
	if err != nil {
		t.Fatal(err)
	}

	made.Cluster = simulated
	made.judge.mu.Lock()
	made.judge.world = simulated.World()
	made.judge.mu.Unlock()

	return made
}

// inCluster runs a test in virtual time.
func inCluster(t *testing.T, given setup, test func(*rig)) {
	t.Helper()

	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, given)
		defer r.Stop()

		test(r)
	})
}

// sound fails the test when an invariant was broken.
func (r *rig) sound() {
	r.t.Helper()

	if violations := r.judge.verdict().Violations; len(violations) > 0 {
		r.t.Fatalf("violations: %+v\n%s", violations, r.judge.text())
	}
}

// allRun fails the test unless every node runs the target, uncordoned.
func (r *rig) allRun(target string) {
	r.t.Helper()

	nodes := r.judge.verdict().Nodes
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if node := nodes[name]; node.Talos != target || node.Cordoned {
			r.t.Errorf("%s: %+v, want Talos %s and no cordon", name, node, target)
		}
	}
}

// at fails the test unless every node runs the target, nothing was broken and
// nothing was left behind.
func (r *rig) at(target string) {
	r.t.Helper()
	r.sound()
	r.allRun(target)
	r.tidy()

	total := len(r.judge.verdict().Nodes)
	notes := r.Annotations()
	want := map[string]string{
		"talos-status": "completed", "talos-current": target, "talos-progress": fmt.Sprintf("%d/%d", total, total),
	}

	for key, value := range want {
		if notes[key] != value {
			r.t.Errorf("annotation %s is %q, want %q", key, notes[key], value)
		}
	}

	if r.t.Failed() {
		r.t.Fatal(r.judge.text())
	}
}

// tidy fails the test when a lease or an unfinished entry was left.
func (r *rig) tidy() {
	r.t.Helper()

	if holder := r.Lease().Holder; holder != "" {
		r.t.Errorf("the lease is still held by %s", holder)
	}

	if entries := r.Journal().Entries; len(entries) > 0 {
		r.t.Errorf("the journal still holds %+v", entries)
	}
}

// once fails the test unless every node was installed and rebooted once.
func (r *rig) once() {
	r.t.Helper()

	for name, node := range r.judge.verdict().Nodes {
		if node.Installs != 1 || node.Reboots != 1 {
			r.t.Errorf("%s: %d installs and %d reboots, want one of each\n%s", name, node.Installs, node.Reboots, r.judge.text())
		}
	}
}

// settled fails the test unless another upgrade changes nothing.
func (r *rig) settled(target string) {
	r.t.Helper()

	again := r.worker("run-again")
	r.must(again, to(target))

	if _, mutating := again.client.Calls(); mutating != 0 {
		r.t.Errorf("an upgrade of a cluster at its target made %d mutating calls", mutating)
	}
}

// node is the state of a machine.
func (r *rig) node(name string) model.NodeState {
	r.t.Helper()

	state, err := r.World().Node(name)
	if err != nil {
		r.t.Fatal(err)
	}

	return state
}

// until lets time pass until the condition holds.
func (r *rig) until(what string, limit time.Duration, holds func() bool) {
	r.t.Helper()

	for deadline := time.Now().Add(limit); !holds(); time.Sleep(197 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not %s within %s\n%s", what, limit, r.judge.text())
		}
	}
}
