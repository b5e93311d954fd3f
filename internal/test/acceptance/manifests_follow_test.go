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

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy})
	// written tells whether an object was, by its resource and its name.
	written := func(object string) bool {
		return slices.ContainsFunc(s.history(), func(e history.Event) bool {
			return e.Kind == history.KindWrite && e.Detail["resource"]+"/"+e.Detail["name"] == object
		})
	}

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.plan().mustSucceed(2).mustWarn("The bootstrap manifests stay as they are, because kubernetes_version is unset")

	w.write(use(s), "talos_version = \"1.13.4\"\nkubernetes = { manifests = { sync = true, exclude = [{ kind = \"Deployment\", namespace = \"kube-system\", name = \"coredns\" }] } }")
	w.plan().mustSucceed(2).mustWarn("bootstrap manifests")
	w.apply().mustSucceed(0)

	for object, want := range map[string]bool{
		"configmaps/talos-bootstrap-manifests-inventory": true, "daemonsets/kube-proxy": true, "configmaps/coredns": true, "deployments/coredns": false,
	} {
		if written(object) != want {
			t.Errorf("%s was written: %t", object, !want)
		}
	}

	w.mustPlan()
}
