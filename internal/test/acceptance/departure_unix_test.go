// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccMaintenanceMode: a worker, and then the only control plane, which is also the only endpoint, starts without
// its configuration. Both runs have to say so long before node_timeout.
func TestAccMaintenanceMode(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), "talos_version = \"1.13.4\"\nnode_timeout = \"6h\"")

	for _, node := range []string{"worker-0", "cp-0"} {
		s.faults(fmt.Sprintf(`faults: [{node: %s, step: boot, effect: maintenance}]`, node))
		w.apply().mustFail(node+" did not come back with its configuration", "in maintenance mode", "talosctl get disks --insecure", "Give it no configuration before you know why")
		s.faults(`faults: []`)
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded("1.13.4", map[string]int{"worker-0": 1, "cp-0": 1})
}

// TestAccDeletedOnItsWay: somebody deletes a node that does not come back, as autoscalers do. The run has to say so
// long before node_timeout, and to touch no other node.
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
