// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccNodesStayWhileNothingListsThem wants the nodes to stay in the state while discovery is disabled and the API
// server does not answer.
func TestAccNodesStayWhileNothingListsThem(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: "1.13.4", DiscoveryOff: true})
	w := newWorkspace(t)

	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0)

	kubeconfig, err := os.ReadFile(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	away := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(away, regexp.MustCompile(`server: .*`).ReplaceAll(kubeconfig, []byte("server: https://127.0.0.1:1")), 0o600); err != nil {
		t.Fatal(err)
	}

	w.write(use(s)+"\nkubeconfig_path = "+quote(away), `talos_version = "1.13.4"`)

	planned := w.plan()
	planned.mustSucceed(2)
	planned.mustWarn("discovery lists none and the Kubernetes API did not answer")

	w.run("refresh", "-json", "-input=false").mustSucceed(0)

	if nodes, _ := w.attributes()["nodes"].(map[string]any); len(nodes) != 2 {
		t.Errorf("after a refresh the state knows %v, want both nodes", nodes)
	}
}
