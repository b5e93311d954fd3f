// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// switched returns a gate that people open and close.
func switched(timeout string) string {
	return "\ngates = [{\n api_version = \"v1\"\n kind = \"ConfigMap\"\n namespace = \"default\"\n name = \"upgrades\"\n" +
		" expr = \"object.data.allowed == 'yes'\"\n timeout = " + quote(timeout) + "\n}]"
}

// onlyLocked fails the test unless the lease was taken and, apart from that, only the progress was published.
func (s *simulated) onlyLocked() {
	s.t.Helper()

	locked := false

	for _, event := range s.changes() {
		switch {
		case event.Kind == history.KindLease:
			locked = true
		// The holder of the lease records that in the journal.
		case event.Kind == history.KindJournal && (event.Detail["key"] == "format" || event.Detail["key"] == "holder"):
		case event.Kind == history.KindAnnotation, event.Kind == history.KindWrite && event.Detail["name"] == "talosupgrade":
		case event.Kind == history.KindWrite && event.Detail["resource"] == "events":
		default:
			s.t.Errorf("changed while the gate did not hold: %s %s %v", event.Kind, event.Node, event.Detail)
		}
	}

	if !locked {
		s.t.Error("the lease was not taken: nothing was waited for")
	}
}

func TestAccGateThatDoesNotHoldStopsTheRun(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.allow("no")

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+switched("30s"))
	w.plan().mustSucceed(2).mustWarn("gates[0]")
	w.apply().mustFail("gates[0]", "default/upgrades", "object.data.allowed == 'yes'")
	s.untouched("cp-0", "worker-0")

	if cordons := s.cordons(); cordons != 0 {
		t.Errorf("%d nodes were cordoned", cordons)
	}

	answer := w.ask(s, `talos_version = "1.13.4"`+switched("30s"))
	answer.want("gates", "failed", "error", "", "gates[0]", "default/upgrades")

	// If the cluster does not serve a kind, waiting does not help.
	missing := "talos_version = \"1.13.4\"\ngates = [{ preset = \"longhorn\" }]"
	answer = w.ask(s, missing)
	answer.want("gates", "unknown", "error", "", "gates[0]", "longhorn.io/v1beta2")
	w.write(use(s), missing)
	w.apply().mustFail("gates[0]", "longhorn.io/v1beta2")

	w.write(use(s), `talos_version = "1.13.4"`+switched("30s")+"\npreflight = { skip = [\"gates\"] }")
	w.plan().mustSucceed(2).mustWarn("check gates, skipped")

	s.allow("yes")
	w.write(use(s), `talos_version = "1.13.4"`+switched("30s"))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}
