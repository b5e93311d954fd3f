// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// once wants every node of a cluster installed and rebooted once.
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

func TestAccTopologies(t *testing.T) {
	full(t)

	for title, test := range map[string]struct {
		controlPlanes, workers int
		from                   string
		addresses              bool
	}{
		"1+1 legacy":              {1, 1, talosLegacy, false},
		"1+1 with many addresses": {1, 1, talosModern, true},
		"1+0 legacy":              {1, 0, talosLegacy, false},
		"1+0 modern":              {1, 0, talosModern, false},
		"5+5 modern":              {5, 5, talosModern, false},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: test.controlPlanes, Workers: test.workers, Talos: test.from, Pods: 2 * test.workers, ManyAddresses: test.addresses})
			w := newWorkspace(t)
			w.write(use(s), `talos_version = "v1.13.4"`)

			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, once(test.controlPlanes, test.workers))
			w.plan().mustSucceed(0)
		})
	}
}
