// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func set(names map[string]bool, name string, in bool) {
	if in {
		names[name] = true
	} else {
		delete(names, name)
	}
}

// TestAccParallelWorkers upgrades six workers, one of which is not ready from the start, with Pods on it
// whose deletion is never confirmed.
func TestAccParallelWorkers(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 6, Talos: talosModern, Pods: 6})
	s.policy = []checker.Option{checker.MaxUnavailable(3)}
	s.faults(`faults: [{node: worker-3, step: kubelet, effect: not-ready}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nmax_unavailable = \"50%\"")
	w.plan().mustSucceed(2).mustWarn("Up to 3 workers")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 6))

	// The checker counts the unavailable workers.
	turns, most := map[string]bool{}, 0

	for _, event := range s.history() {
		if event.Kind == history.KindCordon && event.Detail["by"] == "client" {
			set(turns, event.Node, event.Detail["unschedulable"] == "true")
			most = max(most, len(turns))
		}
	}

	if most < 2 {
		t.Errorf("at most %d worker was in its turn at a time, want turns that overlap", most)
	}

	w.plan().mustSucceed(0)
}

// TestAccPullsAhead wants one node at a time to pull beside the reboots of others. A single worker cannot get an
// image: those before it have to be upgraded, and it has to stay as it is.
func TestAccPullsAhead(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 6, Talos: talosModern, Pods: 6})
	s.policy = []checker.Option{checker.MaxUnavailable(2)}
	s.faults(`faults: [{node: worker-4, step: pull, effect: not-found, times: 0}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nmax_unavailable = 2\nparallel_pulls = 1")
	w.apply().mustFail("worker-4", "image")
	s.untouched("worker-4")

	var (
		cordoned bool
		behind   []string
	)

	for _, event := range s.history() {
		switch {
		case event.Kind == history.KindCordon:
			cordoned = true
		case event.Kind == history.KindPull && cordoned && strings.HasPrefix(event.Node, "worker-"):
			behind = append(behind, event.Node)
		}
	}

	if len(behind) == 0 {
		t.Error("every worker had pulled before the first one was cordoned")
	}

	s.faults("")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 6))
	w.plan().mustSucceed(0)
}

// TestAccSettle wants every node to stay healthy for a while before the next one is disturbed, even the node that
// becomes unready again.
func TestAccSettle(t *testing.T) {
	full(t)

	const settle = 120 // seconds

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	// It becomes ready, and within the settle time it is not ready for a while.
	s.faults(`faults: [{node: worker-0, step: boot, effect: flap, for: 1m}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nsettle = \"2m\"")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))

	var (
		moved, healthy = "", 0.0
		starts, flaps  int
	)

	for _, event := range s.history() {
		switch {
		case event.Kind == history.KindKubelet && event.Detail["ready"] == "true" && event.Node == moved:
			healthy = event.Sim
			flaps++
		case event.Kind == history.KindCordon && event.Detail["by"] == "client" && event.Detail["unschedulable"] == "true":
			if waited := event.Sim - healthy; moved != "" && waited < settle {
				t.Errorf("%s was cordoned %.0f s after %s had become ready, want %d s at least", event.Node, waited, moved, settle)
			}

			moved = event.Node
			starts++
		}
	}

	if starts != 3 || flaps < 3 {
		t.Errorf("%d nodes were cordoned, and nodes became ready %d times; want 3 nodes, one of which became ready twice", starts, flaps)
	}
}
