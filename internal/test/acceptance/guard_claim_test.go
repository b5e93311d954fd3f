// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccTwoResourcesForOneCluster: one of them upgrades it, and the other one is
// refused, in whichever order Terraform takes them.
func TestAccTwoResourcesForOneCluster(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.raw("provider \"talosupgrade\" {\n" + use(s) + "\n}\n\n" +
		"resource \"talosupgrade_cluster\" \"one\" {\n talos_version = \"1.13.4\"\n}\n\n" +
		"resource \"talosupgrade_cluster\" \"other\" {\n talos_version = \"1.13.4\"\n}\n")

	w.apply().mustFail("another talosupgrade_cluster resource")
	s.wantUpgraded(talosTarget, once(1, 1))
}
