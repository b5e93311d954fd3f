// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The versions between which most tests upgrade, before and after Talos changed its upgrade API.
const (
	talosLegacy = "1.12.6"
	talosModern = "1.13.0"
	talosTarget = "1.13.4"
	kubernetes  = "1.34.2"
)

// awaitPatience bounds the wait for an event of a simulation.
const awaitPatience = 2 * time.Minute

// simulated is a running simulated cluster.
type simulated struct {
	*sim.Simulator

	t      *testing.T
	events chan history.Event
	// policy has options of the checker that it cannot take from the history.
	policy []checker.Option
}

// start starts a cluster. When the test ends, the cluster is stopped and the test fails for every violated invariant.
func start(t *testing.T, options sim.Options) *simulated {
	t.Helper()

	options.Dir, options.Progress, options.InMemory = t.TempDir(), os.Stderr, !overReal(t, options)
	if options.Speed == 0 {
		options.Speed = speed
	}

	if options.Kubernetes == "" {
		options.Kubernetes = kubernetes
	}

	if options.Seed == 0 {
		options.Seed = 1
	}

	// The test's own context ends before the cleanup that stops the simulator.
	running, err := sim.Start(context.WithoutCancel(t.Context()), options)
	if err != nil {
		t.Fatal(err)
	}

	s := &simulated{Simulator: running, t: t, events: make(chan history.Event, 1<<16)}
	running.OnEvent(func(event history.Event) {
		select {
		case s.events <- event:
		default: // nobody listens, and a test that does reads along
		}
	})

	t.Cleanup(s.end)

	return s
}

func (s *simulated) end() {
	for _, violation := range s.verdict().Violations {
		s.t.Errorf("invariant %s violated on %q: %s", violation.Invariant, violation.Node, violation.What)
	}

	if s.t.Failed() {
		const most = 60

		told := slices.DeleteFunc(s.history(), history.Event.Idle)
		s.t.Logf("the end of the history:\n%s", history.Table(told[max(0, len(told)-most):]))
	}

	if err := s.Stop(); err != nil {
		s.t.Errorf("stopping the simulator: %v", err)
	}
}

// verdict judges the history with the policy of the test.
func (s *simulated) verdict() checker.Verdict {
	s.t.Helper()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), awaitPatience)
	defer cancel()

	judged, err := s.Verdict(ctx, s.policy...)
	if err != nil {
		s.t.Fatal(err)
	}

	return judged
}

// faults replaces the fault script.
func (s *simulated) faults(script string) {
	s.t.Helper()

	faults, err := model.LoadFaults([]byte(script))
	if err != nil {
		s.t.Fatal(err)
	}

	s.SetFaults(faults)
}

// forget drops the events so far, so that await only looks at later ones.
func (s *simulated) forget() {
	for {
		select {
		case <-s.events:
		default:
			return
		}
	}
}

// await waits for an event.
func (s *simulated) await(what string, match func(history.Event) bool) {
	s.t.Helper()

	timeout := time.After(awaitPatience)

	for {
		select {
		case event := <-s.events:
			if match(event) {
				return
			}
		case <-timeout:
			s.t.Fatalf("%s did not happen within %s", what, awaitPatience)
		}
	}
}

// wantUpgraded fails the test unless every node runs the version, is not cordoned, and each of the named ones was
// installed and rebooted the given number of times.
func (s *simulated) wantUpgraded(version string, installs map[string]int) {
	s.t.Helper()

	judged := s.verdict()
	for name, node := range judged.Nodes {
		if node.Talos != version {
			s.t.Errorf("%s runs Talos %s, want %s", name, node.Talos, version)
		}

		if node.Cordoned {
			s.t.Errorf("%s was left cordoned", name)
		}
	}

	for name, want := range installs {
		if got := judged.Nodes[name]; got.Installs != want || got.Reboots != want {
			s.t.Errorf("%s was installed %d times and rebooted %d times, want %d of each", name, got.Installs, got.Reboots, want)
		}
	}
}

// untouched fails the test if one of the nodes was installed or rebooted.
func (s *simulated) untouched(names ...string) {
	s.t.Helper()

	judged := s.verdict()
	for _, name := range names {
		if node := judged.Nodes[name]; node.Installs != 0 || node.Reboots != 0 {
			s.t.Errorf("%s was touched: %d installs, %d reboots", name, node.Installs, node.Reboots)
		}
	}
}

// awaitReady waits until the kubelet of the node reports that it is ready.
func (s *simulated) awaitReady(node string) {
	s.t.Helper()
	s.await(node+" becoming ready", func(event history.Event) bool {
		return event.Kind == history.KindKubelet && event.Node == node && event.Detail["ready"] == "true"
	})
}

// times fails the test unless the nodes were installed that often so far.
func (s *simulated) times(installs map[string]int) {
	s.t.Helper()

	judged := s.verdict()
	for name, want := range installs {
		if got := judged.Nodes[name].Installs; got != want {
			s.t.Errorf("%s was installed %d times, want %d", name, got, want)
		}
	}
}

// settle waits until every node is up and ready, some time after a fault has ended.
func (s *simulated) settle() {
	s.t.Helper()

	deadline := time.Now().Add(awaitPatience)
	poll := time.NewTicker(20 * time.Millisecond)

	defer poll.Stop()

	for range poll.C {
		waiting := ""

		for _, node := range s.World.Nodes() {
			if !node.Up || !node.Kubelet.Ready {
				waiting = node.Name
			}
		}

		if waiting == "" {
			return
		}

		if time.Now().After(deadline) {
			s.t.Fatalf("%s did not become ready within %s", waiting, awaitPatience)
		}
	}
}
