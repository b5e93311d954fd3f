// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccManifestsFollowKubernetes: where kubernetes_version is unset nothing of
// Kubernetes is written, unless it is asked for.
func TestAccManifestsFollowKubernetes(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	synced := func() bool {
		return slices.ContainsFunc(s.history(), func(e history.Event) bool {
			return e.Kind == history.KindWrite && e.Detail["name"] == "talos-bootstrap-manifests-inventory"
		})
	}

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(2).mustWarn("The bootstrap manifests stay as they are, because kubernetes_version is unset")

	w.write(use(s), "talos_version = \"1.13.4\"\nkubernetes = { manifests = { sync = true } }")
	w.plan().mustSucceed(2).mustWarn("bootstrap manifests")
	w.apply().mustSucceed(0)

	if !synced() {
		t.Error("the manifests were asked for, and not synced")
	}

	w.mustPlan()
}
