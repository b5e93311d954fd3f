// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccManifestsFollowKubernetes: if kubernetes_version is unset, no manifest of Kubernetes may be written, unless
// that is configured.
func TestAccManifestsFollowKubernetes(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy})
	// written reports whether an object was written, by its resource and its name.
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
