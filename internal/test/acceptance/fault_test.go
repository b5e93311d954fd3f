// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

// faulty is the node with the faults. In a cluster with one control plane and two workers, worker-0 is upgraded first
// and worker-1 second.
const faulty = "worker-1"

// undrained skips the check, so that the drain itself finds out what keeps Pods from being evicted.
const undrained = "\npreflight = { skip = [\"drain\"] }"

// TestAccFaultThatStops makes the installer of a legacy call fail. All faults at every step, with either API, are
// swept in virtual time; this test adds the command line, the process and the wire.
func TestAccFaultThatStops(t *testing.T) {
	full(t)

	s := startSmall(t, talosLegacy)
	s.faults(`faults: [{node: worker-1, step: install, effect: fail, times: 0}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nnode_timeout = \"12m\"")
	w.apply().mustFail(faulty, "the installer exited")
	s.untouched("cp-0")
	s.times(map[string]int{"worker-0": 1})

	if w.attributes() != nil {
		t.Error("a failed create stored something")
	}

	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)
	// worker-1 needs a second install.
	s.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)
}

// at returns the value in nested objects; nil if there is none.
func at(value any, names ...string) any {
	for _, name := range names {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}

		value = object[name]
	}

	return value
}

// TestAccDrainDeletesWhenTold wants on_timeout = "delete" to get past a budget that never allows an eviction.
func TestAccDrainDeletesWhenTold(t *testing.T) {
	fullOverReal(t)

	s := startSmall(t, talosModern)
	// This is half of the drain's time: on a scaled clock each request takes seconds, and the history has the end of
	// the first eviction, not its start.
	s.policy = []checker.Option{checker.DrainDelete(time.Minute)}
	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\ndrain = { timeout = \"2m\", on_timeout = \"delete\" }")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
}

// TestAccFaultThatHeals cuts the connection over which an installer is followed.
func TestAccFaultThatHeals(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: install, effect: connection-lost-early}]`)

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	// The run may stop with a clear error, but it must not lose track.
	if run := w.apply(); run.exit != 0 {
		run.mustFail(faulty)
		w.apply().mustSucceed(0)
	}

	s.wantUpgraded(talosTarget, once(1, 2))
	w.plan().mustSucceed(0)
}

func TestAccFallback(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: boot, effect: fallback}]`)

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustFail(faulty, talosModern)
	s.times(map[string]int{"worker-0": 1})
	s.faults("")

	// The same image is not retried automatically.
	w.plan().mustSucceed(2).mustWarn("node_overrides")

	refused := w.apply().mustFail(faulty, "node_overrides")

	w.write(use(s), "talos_version = \"1.13.4\"\nnode_overrides = { \"worker-1\" = { retry_boot_id = \"another-boot-id\" } }")
	w.apply().mustFail("node_overrides")

	w.write(use(s), "talos_version = \"1.13.4\"\n"+refused.told(t, faulty))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}
