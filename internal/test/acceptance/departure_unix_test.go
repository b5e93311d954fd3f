// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccDeletedOnItsWay: somebody deletes a node that does not come back, as autoscalers do. The
// run says so long before node_timeout, and touches no other node.
func TestAccDeletedOnItsWay(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	s.faults(`faults: [{node: "*", step: boot, effect: never-returns, talos: 1.13.4, times: 0}]`)

	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nnode_timeout = \"6h\"")

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })

	if err := s.someone().CoreV1().Nodes().Delete(t.Context(), "worker-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	run.wait().mustFail("worker-0 was deleted from Kubernetes", "Nobody has seen whether its new system boots, so no other node is started.")
	s.untouched("cp-0", "worker-1")
	s.times(map[string]int{"worker-0": 1})
}
