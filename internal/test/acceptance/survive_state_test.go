// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// startSmall is a cluster of one control plane and two workers.
func startSmall(t *testing.T, talos string) *simulated {
	t.Helper()

	return start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talos, Pods: 2})
}

// TestAccFailedCreateStoresNothing: a resource that its create stores and fails is
// tainted, and then the next apply wants to replace it, which prevent_destroy
// refuses.
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

	// It is one like any other now.
	if got := w.attributes()["talos_version"]; got != talosTarget {
		t.Errorf("talos_version in state is %v", got)
	}

	w.mustPlan()
}

// mustKeep asserts that the state holds the versions that were wanted before, and
// what is to be seen in the cluster. It is not tainted, as all that is looked at.
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

// TestAccFailedUpdateKeepsWhatWasWanted fails once in each half. The plan sees
// what is to do until it is done, and never wants to replace anything.
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

	// Nor does it take a refresh to see it.
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
