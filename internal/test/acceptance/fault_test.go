// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"regexp"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
)

// Of a cluster with one control plane and two workers worker-0 goes first and
// worker-1, where the faults are, second.
const faulty = "worker-1"

// undrained leaves it to the drain itself to find out what keeps pods from being
// evicted.
const undrained = "\npreflight = { skip = [\"drain\"] }"

// failingFault is a fault that stops an apply, and the next one, without it,
// finishes the job.
type failingFault struct {
	from   string
	script string
	// extra are more arguments of the resource.
	extra string
	says  []string
	// before tells that nothing was touched when the apply stopped.
	before bool
	// installs is how often worker-1 was installed in the end, -1 where a
	// second attempt is due.
	installs int
}

// failingFaults are one of each kind. All of them at every step, on either API, are swept
// in virtual time; what is seen here is the command line, the process and the wire.
func failingFaults() map[string]failingFault {
	const short = "\nnode_timeout = \"12m\""

	return map[string]failingFault{
		"image does not exist": {
			talosModern, `faults: [{node: worker-1, step: pull, effect: not-found, times: 0}]`, "",
			[]string{"worker-1", "ghcr.io/siderolabs/installer:v1.13.4"},
			true, 1,
		},
		"installer fails, modern": {
			talosModern, `faults: [{node: worker-1, step: install, effect: fail, times: 0}]`, short,
			[]string{"worker-1", "install"},
			false, -1,
		},
		"installer fails, legacy": {
			talosLegacy, `faults: [{node: worker-1, step: install, effect: fail, times: 0}]`, short,
			[]string{"worker-1", "the installer exited"},
			false, -1,
		},
		"node never returns, modern": {
			talosModern, `faults: [{node: worker-1, step: boot, effect: never-returns}]`, short,
			[]string{"worker-1", "did not come back"},
			false, 1,
		},
		"budget blocks the drain, modern": {
			talosModern, `faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`, undrained,
			[]string{"worker-1", "PodDisruptionBudget"},
			false, 1,
		},
	}
}

func TestAccFaultThatStops(t *testing.T) {
	full(t)

	for title, fault := range failingFaults() {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: fault.from, Pods: 2})
			s.faults(fault.script)

			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`+fault.extra)

			w.apply().mustFail(append(fault.says, "nothing is tainted")...)

			finished := map[string]int{"worker-0": 1}
			if fault.before {
				s.untouched("cp-0", "worker-0", "worker-1")
			} else {
				s.untouched("cp-0")
				s.times(finished)
			}

			if w.attributes() != nil {
				t.Error("a failed create stored something")
			}

			s.faults("")
			s.settle()
			w.apply().mustSucceed(0)

			want := map[string]int{"cp-0": 1, "worker-0": 1}
			if fault.installs >= 0 {
				want[faulty] = fault.installs
			}

			s.wantUpgraded(talosTarget, want)
			w.plan().mustSucceed(0)
		})
	}
}

// retrying are the arguments that do what the error about a fallback says.
func retrying(t *testing.T, refused diagnostic) string {
	t.Helper()

	match := regexp.MustCompile(`retry_boot_id = "([^"]+)"`).FindStringSubmatch(refused.Detail)
	if match == nil {
		t.Fatalf("no boot ID in %s", refused)
	}

	return "talos_version = \"1.13.4\"\nnode_overrides = { \"worker-1\" = { retry_boot_id = \"" + match[1] + "\" } }\n"
}

// TestAccFaultInUpdate is about what an update that stops leaves in state.
func TestAccFaultInUpdate(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	w := newWorkspace(t)

	w.write(use(s), `talos_version = "1.13.0"`)
	w.apply().mustSucceed(0)

	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)
	w.write(use(s), `talos_version = "1.13.4"`+undrained)
	w.apply().mustFail(faulty, "PodDisruptionBudget")

	state := w.attributes()
	if state["talos_version"] != "1.13.0" {
		t.Errorf("talos_version in state is %v: the next plan would not see what is to do", state["talos_version"])
	}

	if got := at(state, "nodes", "worker-0", "talos_version"); got != talosTarget {
		t.Errorf("worker-0 in state runs %v", got)
	}

	if got := at(state, "status", "phase"); got != "UpgradeFailed" {
		t.Errorf("the phase in state is %v", got)
	}

	w.plan().mustSucceed(2)

	s.faults("")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))

	if got := at(w.attributes(), "status", "phase"); got != "Ready" {
		t.Errorf("the phase in state is %v", got)
	}
}

// at walks into nested objects; nil when there is nothing.
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

// TestAccDrainDeletesWhenTold is the way out of a budget that never gives.
func TestAccDrainDeletesWhenTold(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	// Half of the drain's time: on a scaled clock each request takes seconds,
	// and the history has the end of the first eviction, not its beginning.
	s.policy = []checker.Option{checker.DrainDelete(time.Minute)}
	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\ndrain = { timeout = \"2m\", on_timeout = \"delete\" }")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
}

// TestAccFaultThatHeals has one fault of each kind, as failingFaults.
func TestAccFaultThatHeals(t *testing.T) {
	full(t)

	for title, fault := range map[string]struct{ from, script string }{
		"apid away after the boot":           {talosLegacy, `{node: worker-1, step: boot, effect: unreachable, for: 3m}`},
		"connection lost during the install": {talosModern, `{node: worker-1, step: install, effect: connection-lost-early}`},
		"connection lost after the reboot":   {talosModern, `{node: worker-1, step: reboot, effect: connection-lost}`},
		"connection lost after legacy, cp":   {talosLegacy, `{node: cp-0, step: legacy-upgrade, effect: connection-lost}`},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: fault.from, Pods: 2})
			s.faults("faults: [" + fault.script + "]")

			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`)

			// Stopping with a clear error is fine, losing track is not.
			if run := w.apply(); run.exit != 0 {
				run.mustFail(`worker-1`)
				w.apply().mustSucceed(0)
			}

			s.wantUpgraded(talosTarget, once(1, 2))
			w.plan().mustSucceed(0)
		})
	}
}

func TestAccFallback(t *testing.T) {
	full(t)

	for title, from := range map[string]string{"modern": talosModern, "legacy": talosLegacy} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: from, Pods: 2})
			s.faults(`faults: [{node: worker-1, step: boot, effect: fallback}]`)

			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`)

			w.apply().mustFail(faulty, from)
			s.times(map[string]int{"worker-0": 1})
			s.faults("")

			// The same image is not tried again by itself.
			w.plan().mustSucceed(2).mustWarn("node_overrides")

			refused := w.apply().mustFail(faulty, "node_overrides")

			w.write(use(s), "talos_version = \"1.13.4\"\nnode_overrides = { \"worker-1\" = { retry_boot_id = \"another-boot-id\" } }")
			w.apply().mustFail("node_overrides")

			w.write(use(s), retrying(t, refused))
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, map[string]int{"cp-0": 1, "worker-0": 1})

			w.write(use(s), `talos_version = "1.13.4"`)
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, map[string]int{"cp-0": 1, "worker-0": 1})
		})
	}
}
