// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// once returns a map in which every node of a cluster is to be installed and rebooted once.
func once(controlPlanes, workers int) map[string]int {
	want := map[string]int{}
	for index := range controlPlanes {
		want[name("cp", index)] = 1
	}

	for index := range workers {
		want[name("worker", index)] = 1
	}

	return want
}

func TestAccFirstRoll(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 2, Talos: talosLegacy, Pods: 4})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	w.plan().mustSucceed(2).mustWarn("Rolling upgrade of 5 of 5 nodes")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(3, 2))
	w.plan().mustSucceed(0)

	before := len(s.changes())
	w.destroy().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(3, 2))
	s.onlyOursSince(before)
}

// TestAccManyNodes upgrades a larger cluster, whose nodes have many addresses.
func TestAccManyNodes(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 5, Workers: 5, Talos: talosModern, Pods: 10, ManyAddresses: true})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "v1.13.4"`)

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(5, 5))
	w.plan().mustSucceed(0)
}
