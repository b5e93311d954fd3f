// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccKilledInARollback: the next run has to find out that the rollback was requested, wait for it, and not
// request it twice, which would start the new system again.
func TestAccKilledInARollback(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	// A reboot alone does not heal it.
	s.faults(`faults: [{node: worker-1, step: boot, effect: not-ready, times: 0, talos: "1.13.4"}]`)

	w := newWorkspace(t)
	w.write(use(s), rollingBack)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the record of the rollback", func(e history.Event) bool {
		return e.Kind == history.KindJournal && e.Node == faulty && e.Detail["phase"] == "rolling-back"
	})
	s.await("the rollback", func(e history.Event) bool {
		return e.Kind == history.KindStage && e.Node == faulty && e.Detail["to"] == "rebooting"
	})
	run.kill()

	w.apply().mustFail(faulty, "rolled back to Talos "+talosModern, "retry_boot_id = ")
	s.wantRunning(talosModern, faulty)
	s.wantCordoned()
	s.times(map[string]int{"worker-0": 1, faulty: 1})

	s.faults("")

	refused := w.apply().mustFail(faulty, "rolled back", "node_overrides")

	w.write(use(s), rollingBack+refused.told(t, faulty))
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.nothingLeft()
	w.mustPlan()
}
