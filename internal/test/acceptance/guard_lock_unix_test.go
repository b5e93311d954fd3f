// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccLockOfAKilledRunIsTakenOver: two processes upgrade the same cluster. The second one has to say which run
// holds the lock, and once that is killed, to take over, say so and finish.
func TestAccLockOfAKilledRunIsTakenOver(t *testing.T) {
	fullOverReal(t)

	// A lease lasts 30 seconds. Both processes have to be scheduled often enough to see that it is alive, so the
	// clock is slow.
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
