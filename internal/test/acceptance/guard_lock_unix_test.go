// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccLockOfAKilledRunIsTakenOver: two processes want the same cluster. The
// second one says who has it; when the first is killed, it takes over and
// finishes, and says so.
func TestAccLockOfAKilledRunIsTakenOver(t *testing.T) {
	fullOverReal(t)

	// A lease lives for 30 seconds. Both sides must get the processor often
	// enough to see that it is alive, so this one runs slowly.
	const slow = 20

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Speed: slow})
	pace := fmt.Sprintf("%s=%d", serveVariable, slow)
	first, second := newWorkspace(t, pace), newWorkspace(t, pace)
	first.write(use(s), `talos_version = "1.13.4"`)
	second.write(use(s), `talos_version = "1.13.4"`)

	s.forget()

	run := first.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the cordon", cordoned)

	second.apply().mustFail("kube-system/talosupgrade", "terraform resource talosupgrade_cluster")

	newWorkspace(t, pace).ask(s, `talos_version = "1.13.4"`).want("lock", "failed", "error", "", "terraform resource talosupgrade_cluster", "lease")

	run.kill()

	applied := second.apply().mustSucceed(0)
	applied.mustWarn("Taking over the lease of")
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 2))
}
