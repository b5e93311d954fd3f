// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// aWhile is a number of renewals of the lease within which a run that does not wait would have pulled its images and
// cordoned a node.
const aWhile = 12

// renewals waits for so many renewals of the lease.
func (s *simulated) renewals(count int) {
	s.t.Helper()

	for range count {
		s.await("a renewal of the lease", func(e history.Event) bool {
			return e.Kind == history.KindLease && e.Detail["action"] == "renew"
		})
	}
}

// TestAccGateIsWaitedForBeforeTheRoll opens a gate while a run waits for it.
func TestAccGateIsWaitedForBeforeTheRoll(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.allow("no")

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+switched("3h"))
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.renewals(aWhile)
	s.onlyLocked()

	s.allow("yes")
	run.wait().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}
