// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// nodeActions are the actions of a person on single nodes.
const nodeActions = `
action "talosupgrade_rollback" "worker_0" {
  config {
    node   = "worker-0"
    reason = "its storage is slow"
    drain  = { timeout = "10m" }
  }
}

action "talosupgrade_rollback" "worker_9" {
  config {
    node = "worker-9"
  }
}

action "talosupgrade_retry_node" "worker_0" {
  config {
    node = "worker-0"
  }
}
`

// TestAccANodeIsSentBackByHand: a person rolls back one node of an upgraded cluster. The plan has to say who did it
// and why, and no apply may touch the node until a retry is allowed, after which it has to be upgraded as before.
func TestAccANodeIsSentBackByHand(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	w := withActions(t)
	config := "provider \"talosupgrade\" {\n" + use(s) + "\n}\n\nresource \"talosupgrade_cluster\" \"this\" {\n  talos_version = \"1.13.4\"\n}\n" + nodeActions
	w.raw(config)

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))

	w.invoke("rollback.worker_9").mustFail("Unable to roll back node worker-9", `No node of this cluster is called`, "worker-0", "Nothing was touched.")

	w.invoke("rollback.worker_0").mustSay(
		"Rolling back node worker-0 to Talos "+talosModern, "(its storage is slow)", "Node worker-0 runs Talos "+talosModern+", as before its upgrade to "+talosTarget)
	s.wantRunning(talosModern, "worker-0")
	s.wantRunning(talosTarget, "worker-1", "cp-0")
	s.wantCordoned()
	s.times(map[string]int{"worker-0": 1})

	if phases := s.phases("worker-0"); !slices.Equal(phases[len(phases)-2:], []string{"rolling-back", "rolled-back"}) {
		t.Errorf("the journal went through %v", phases)
	}

	if states := s.published("talos-status"); !slices.Equal(states, []string{"in-progress", "completed", "rolling-back", "idle"}) {
		t.Errorf("talos-status went through %v", states)
	}

	// A repetition has nothing to do: a second rollback would start the new system.
	w.invoke("rollback.worker_0").mustSay("Node worker-0 runs Talos " + talosModern)
	s.wantRunning(talosModern, "worker-0")

	w.plan().mustSucceed(2).mustWarn("was rolled back to Talos " + talosModern)
	w.apply().mustFail("worker-0", "was rolled back to Talos "+talosModern, "talosupgrade_rollback", "its storage is slow", "talosupgrade_retry_node")
	s.wantRunning(talosModern, "worker-0")
	s.times(map[string]int{"worker-0": 1})

	w.invoke("retry_node.worker_0").mustSay("on node worker-0 again")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.times(map[string]int{"worker-0": 2})
	s.nothingLeft()
	w.mustPlan()
}
