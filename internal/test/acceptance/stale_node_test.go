// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccStaleNodeObjectIsToBeDeleted: a second Node object has the address of worker-0. It must not count as a node,
// the error must not suggest to wipe anything, and without it the apply has to succeed.
func TestAccStaleNodeObjectIsToBeDeleted(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	nodes := s.someone().CoreV1().Nodes()

	own, err := nodes.Get(t.Context(), "worker-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	const ghost = "another-0"

	stale, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ghost, Labels: own.Labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	stale.Status = own.Status
	stale.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()}}

	if _, err := nodes.UpdateStatus(t.Context(), stale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.write(use(s), "talos_version = "+quote(talosTarget))

	planned := w.plan().mustSucceed(2)
	planned.mustWarn("2 of 2 nodes")
	planned.mustWarn(ghost + ": the Node object is stale")

	refused := w.apply().mustFail(ghost, "registers as worker-0", "kubectl delete node "+ghost).String()
	if strings.Contains(refused, "wipe") || strings.Contains(refused, "reset") {
		t.Errorf("the error advises to wipe something:\n%s", refused)
	}

	s.untouched("cp-0", "worker-0")

	if err := nodes.Delete(t.Context(), ghost, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, map[string]int{"cp-0": 1, "worker-0": 1})
}
