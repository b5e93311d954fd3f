// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// talosBehind is two minor versions behind the target.
const talosBehind = "1.11.5"

// between returns the version through which an upgrade from talosBehind to the target leads.
func between(t *testing.T) string {
	t.Helper()

	newest, known := compat.BuiltIn().Newest(version.Talos, version.Minor{Major: 1, Minor: 12})
	if !known {
		t.Fatal("no release of Talos 1.12 is known")
	}

	return newest.String()
}

// each returns a map in which every node of a cluster is to be installed and rebooted that many times.
func each(times, controlPlanes, workers int) map[string]int {
	want := once(controlPlanes, workers)
	for node := range want {
		want[node] = times
	}

	return want
}

func TestAccTwoMinorsBehind(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosBehind})
	w := newWorkspace(t)

	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustFail(talosBehind, between(t), talosTarget, "allow_intermediate_versions").mustPoint(t, `talos_version = "1.13.4"`)
	w.apply().mustFail("allow_intermediate_versions")
	s.unchanged()

	w.write(use(s), "talos_version = \"1.13.4\"\nallow_intermediate_versions = true")

	planned := w.plan().mustSucceed(2)
	planned.mustWarn("Rolling upgrade of 2 of 2 nodes in 2 hops")
	planned.mustWarn("Hop 1 of 2: Talos " + talosBehind)
	planned.mustWarn("Hop 2 of 2: Talos " + between(t))
	s.unchanged()

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, each(2, 1, 1))
	w.plan().mustSucceed(0)
}

// TestAccIntermediateVersions upgrades through versions that the user chooses, with both upgrade APIs, and with nodes
// that start at different versions.
func TestAccIntermediateVersions(t *testing.T) {
	full(t)

	const through = "1.12.6"

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosBehind})
	ahead := s.join(through)
	arrived := s.join(talosTarget)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nallow_intermediate_versions = true\nintermediate_versions = [\"v"+through+"\"]\ncanary = [\"worker-0\"]")
	s.policy = []checker.Option{checker.Canary("worker-0")}

	w.plan().mustSucceed(2).mustWarn("Hop 1 of 2: Talos " + talosBehind)
	w.apply().mustSucceed(0)

	want := each(2, 1, 1)
	want[ahead] = 1
	s.wantUpgraded(talosTarget, want)
	s.untouched(arrived)

	for _, event := range s.installs() {
		if talos := event.Detail["talos"]; talos != through && talos != talosTarget {
			t.Errorf("%s was brought to Talos %s, which is not on the way", event.Node, talos)
		}
	}

	w.plan().mustSucceed(0)
}

func TestAccCanaryGoesFirst(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 3, Talos: talosModern})
	s.policy = []checker.Option{checker.Canary("worker-2"), checker.MaxUnavailable(3)}

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\norder = \"control-planes-first\"\nmax_unavailable = \"100%\"\ncanary = [\"worker-2\"]")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 3))

	if first := s.installs()[0].Node; first != "worker-2" {
		t.Errorf("the first node to be installed was %s, want the canary worker-2", first)
	}
}

// TestAccDeadWorkerKeepsItsPlace wants a dead worker to count as unavailable, even if it is held. The plan has to
// name the setting that lets the others be upgraded, before anything waits for it.
func TestAccDeadWorkerKeepsItsPlace(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 3, Talos: talosModern})
	s.policy = []checker.Option{checker.Held("worker-1"), checker.MaxUnavailable(2)}
	s.faults("faults:\n- {node: worker-1, step: kubelet, effect: not-ready, times: 0}\n- {node: worker-1, step: observe, effect: unreachable, times: 0}")

	const (
		held = "talos_version = \"1.13.4\"\nnode_overrides = { \"worker-1\" = { hold = true } }"
		line = `max_unavailable = "2"`
	)

	w := newWorkspace(t)
	w.write(use(s), held)
	w.plan().mustSucceed(2).mustWarn("set " + line)
	w.apply().mustFail("worker-1 (not ready)", "set "+line)
	s.untouched("cp-0", "worker-0", "worker-1", "worker-2")

	w.write(use(s), held+"\n"+line)
	w.apply().mustSucceed(0)
	s.untouched("worker-1")
	s.times(map[string]int{"cp-0": 1, "worker-0": 1, "worker-2": 1})
}

func TestAccHeldNodeIsLeftAlone(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	s.policy = []checker.Option{checker.Held("worker-1")}

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nnode_overrides = { \"worker-1\" = { hold = true } }")
	w.plan().mustSucceed(2).mustWarn("Rolling upgrade of 2 of 3 nodes, 1 held")
	w.apply().mustSucceed(0)

	judged := s.verdict().Nodes
	for node, want := range map[string]string{"cp-0": talosTarget, "worker-0": talosTarget, "worker-1": talosModern} {
		if got := judged[node]; got.Talos != want || got.Cordoned {
			t.Errorf("%s: %+v, want it uncordoned on Talos %s", node, got, want)
		}
	}

	s.untouched("worker-1")

	if phase := at(w.attributes(), "status", "phase"); phase != "Ready" {
		t.Errorf("the phase in state is %v", phase)
	}

	w.plan().mustSucceed(0)

	// Without the hold the plan shows what that means.
	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(2).mustWarn("Rolling upgrade of 1 of 3 nodes")
}
