// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// startSmall starts a cluster of one control plane and two workers.
func startSmall(t *testing.T, talos string) *simulated {
	t.Helper()

	return start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talos, Pods: 2})
}

// TestAccFailedCreateStoresNothing: a resource that is stored by a create that fails is tainted, and the next apply
// would replace it, which prevent_destroy refuses.
func TestAccFailedCreateStoresNothing(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+undrained+guarded)

	for range 2 {
		w.apply().mustFail(faulty, "PodDisruptionBudget")

		if stored := w.addresses(); len(stored) > 0 {
			t.Errorf("in state are %v", stored)
		}

		w.mustPlan("create")
	}

	s.times(map[string]int{"worker-0": 1, faulty: 0})

	s.faults("")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
	s.nothingLeft()

	// From now on it is a resource like any other.
	if got := w.attributes()["talos_version"]; got != talosTarget {
		t.Errorf("talos_version in state is %v", got)
	}

	w.mustPlan()
}

// TestAccReplacedResourceLeavesWhatTheNewOneWrote: the new one is created first, and the destroy of the old one must not
// take its objects away.
func TestAccReplacedResourceLeavesWhatTheNewOneWrote(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+undrained+"\nlifecycle {\n  create_before_destroy = true\n}")

	w.apply().mustSucceed(0)
	w.apply("-replace=" + w.addresses()[0]).mustSucceed(0)

	objects := s.someone().CoreV1().ConfigMaps(metav1.NamespaceSystem)

	for _, name := range []string{"talosupgrade", "talosupgrade-journal"} {
		if _, err := objects.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("after the replacement: %v", err)
		}
	}

	w.mustPlan()
}

// mustKeep fails the test unless the state has the target versions of before, and the observed versions of the
// cluster. Callers check that it is not tainted.
func (w *workspace) mustKeep(talos, kubernetes string, seen map[string]string) {
	w.t.Helper()

	state := w.attributes()
	if state["talos_version"] != talos || state["kubernetes_version"] != kubernetes {
		w.t.Errorf("the state wants Talos %v and Kubernetes %v, want %s and %s", state["talos_version"], state["kubernetes_version"], talos, kubernetes)
	}

	for node, runs := range seen {
		if got := at(state, "nodes", node, "talos_version"); got != runs {
			w.t.Errorf("%s in state runs Talos %v, want %s", node, got, runs)
		}
	}

	if got := at(state, "status", "phase"); got != "UpgradeFailed" {
		w.t.Errorf("the phase in state is %v", got)
	}
}

// TestAccFailedUpdateKeepsWhatWasWanted fails once in each half. The plan has to show what remains until it is done,
// and must never replace anything.
func TestAccFailedUpdateKeepsWhatWasWanted(t *testing.T) {
	full(t)

	s := startSmall(t, talosModern)
	w := newWorkspace(t)
	versions := func(talos, kubernetes string) string {
		return "talos_version = " + quote(talos) + "\nkubernetes_version = " + quote(kubernetes) + undrained + guarded
	}

	w.write(use(s), versions("v"+talosModern, kubernetes))
	w.apply().mustSucceed(0)

	s.faults(`faults: [{node: worker-1, step: drain, effect: blocked-by-budget}]`)
	w.write(use(s), versions(talosTarget, kubernetesTarget))
	w.apply().mustFail(faulty, "PodDisruptionBudget")
	w.mustKeep("v"+talosModern, kubernetes, map[string]string{"worker-0": talosTarget, faulty: talosModern, "cp-0": talosModern})
	w.mustPlan("update").mustWarn("Rolling upgrade")

	// It is seen without a refresh as well.
	w.run("apply", "-json", "-auto-approve", "-input=false", "-refresh=false").mustFail(faulty, "PodDisruptionBudget")
	w.mustKeep("v"+talosModern, kubernetes, map[string]string{"worker-0": talosTarget, faulty: talosModern, "cp-0": talosModern})

	s.faults(`faults: [{node: cp-0, step: apply, effect: fail}]`)
	w.apply().mustFail("kube-apiserver", "cp-0")

	all := map[string]string{"worker-0": talosTarget, faulty: talosTarget, "cp-0": talosTarget}

	s.wantUpgraded(talosTarget, once(1, 2))
	w.mustKeep("v"+talosModern, kubernetes, all)
	w.mustPlan("update")

	s.faults("")
	s.settle()

	if done := w.apply().mustSucceed(0).actions(); len(done) != 1 || done[0] != "update" {
		t.Errorf("the apply did %v", done)
	}

	s.wantUpgraded(talosTarget, once(1, 2))
	s.wantKubernetes(kubernetesTarget)
	s.nothingLeft()

	if got := at(w.attributes(), "status", "phase"); got != "Ready" {
		t.Errorf("the phase in state is %v", got)
	}

	w.mustPlan()
}
