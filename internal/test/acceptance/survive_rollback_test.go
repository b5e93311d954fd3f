// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"regexp"
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// rollingBack has the arguments of a resource that rolls back a node that does not become healthy in time.
const rollingBack = "talos_version = \"1.13.4\"\non_failure = \"rollback\"\nnode_timeout = \"12m\"\n"

// TestAccRollback rolls a node back to what it ran before, with another schematic, once: the run has to fail and say
// so, the next run must not retry the same image by itself, and a run that is allowed to has to.
func TestAccRollback(t *testing.T) {
	fullOverReal(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: boot, effect: not-ready}]`)

	w := newWorkspace(t)
	asked := rollingBack + "installer_image = \"factory.talos.dev/metal-installer/" + model.EmptySchematic + "\"\n"
	w.write(use(s), asked)
	w.apply().mustFail(faulty, "is not ready", "The last lines of the log of machined", "rolled back to Talos "+talosModern, "in service", "retry_boot_id = ")
	s.wantRunning(talosModern, faulty)
	s.wantRunning(talosTarget, "worker-0")
	s.wantCordoned()
	s.times(map[string]int{faulty: 1})

	if phases := s.phases(faulty); phases[len(phases)-1] != "rolled-back" || !slices.Contains(phases, "rolling-back") {
		t.Errorf("the journal went through %v", phases)
	}

	if states := s.published("talos-status"); !slices.Equal(states, []string{"in-progress", "rolling-back", "failed"}) {
		t.Errorf("talos-status went through %v", states)
	}

	if failed := s.published("failed-nodes"); len(failed) == 0 || failed[len(failed)-1] != faulty {
		t.Errorf("failed-nodes went through %v", failed)
	}

	// The fault has ended, but nobody has allowed a retry of the image.
	s.faults("")
	w.plan().mustSucceed(2).mustWarn("node_overrides")

	refused := w.apply().mustFail(faulty, "rolled back", "node_overrides")

	s.times(map[string]int{faulty: 1})

	w.write(use(s), asked+refused.told(t, faulty))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.times(map[string]int{faulty: 2})
	s.nothingLeft()
	w.mustPlan()
}

// told returns the argument that, as the error says, allows a retry of the image on a node.
func (d diagnostic) told(t *testing.T, node string) string {
	t.Helper()

	match := regexp.MustCompile(`node_overrides = \{ "` + node + `" = \{ retry_boot_id = "[^"]+" \} \}`).FindString(d.Detail)
	if match == "" {
		t.Fatalf("no way to try again in %s", d)
	}

	return match
}

// wantRunning fails the test unless the nodes run the version.
func (s *simulated) wantRunning(version string, nodes ...string) {
	s.t.Helper()

	judged := s.verdict()
	for _, name := range nodes {
		if got := judged.Nodes[name].Talos; got != version {
			s.t.Errorf("%s runs Talos %s, want %s", name, got, version)
		}
	}
}
