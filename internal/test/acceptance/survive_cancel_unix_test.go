// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccCancelLeavesOnlyWhatHasToStay sends a Ctrl-C after an install: the run has to release the lock and record
// what it was doing, and to keep the cordon, because the node may start the new system with its next boot. The state
// keeps the old target, and the next apply has to go on.
func TestAccCancelLeavesOnlyWhatHasToStay(t *testing.T) {
	fullOverReal(t)

	// The provider has 15 seconds of its own clock to stop, in which it has to be scheduled.
	const (
		slow  = 20
		limit = 15 * time.Second
	)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 2, Speed: slow})
	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, slow))

	w.write(use(s), `talos_version = "1.13.0"`+guarded)
	w.apply().mustSucceed(0)

	w.write(use(s), `talos_version = "1.13.4"`+guarded)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the record of the install", turn(history.KindJournal, "phase", "installed"))
	// The fault keeps the run where it is until the command line has passed the Ctrl-C on, which takes longer than
	// the run needs to go on.
	s.faults("faults: [{node: cp-0, step: etcd, effect: silent}]")

	began := time.Now()

	run.signal(syscall.SIGINT)
	run.wait().interrupted().mustFail("worker-0", "stays cordoned", "cancelled", "Run terraform apply again")

	s.faults("")

	if took := time.Since(began); took > limit {
		t.Errorf("it took %s to stop", took)
	}

	if !s.released() {
		t.Error("the lease was not given back")
	}

	s.wantCordoned("worker-0")

	if phases := s.phases("worker-0"); len(phases) == 0 || phases[len(phases)-1] != "installed" {
		t.Errorf("the journal has worker-0 as %q, want it installed", phases)
	}

	if wanted := w.attributes()["talos_version"]; wanted != talosModern {
		t.Errorf("the state wants Talos %v", wanted)
	}

	w.mustPlan("update")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 1))
	s.nothingLeft()
	w.mustPlan()
}
