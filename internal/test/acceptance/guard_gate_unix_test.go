// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccGateIsWaitedForBetweenNodes closes the gate while worker-0 is away, and
// opens it after a while.
func TestAccGateIsWaitedForBetweenNodes(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	s.allow("yes")

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+switched("3h"))
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")

	s.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })
	s.allow("no")
	s.await("worker-0 being uncordoned", func(e history.Event) bool {
		return e.Kind == history.KindCordon && e.Node == "worker-0" && e.Detail["unschedulable"] == "false"
	})

	// A few renewals of the lease later nothing else has been touched.
	for range 3 {
		s.await("a renewal of the lease", func(e history.Event) bool {
			return e.Kind == history.KindLease && e.Detail["action"] == "renew"
		})
	}

	s.untouched("cp-0", "worker-1")

	if cordons := s.cordons(); cordons != 1 {
		t.Errorf("%d nodes were cordoned before the gate held again, want one", cordons)
	}

	s.allow("yes")
	run.wait().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
}
