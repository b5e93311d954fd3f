// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccRolesOfAKubeconfig upgrades both halves and destroys with a kubeconfig whose user has the roles that the
// documentation of the provider lists, and nothing else.
func TestAccRolesOfAKubeconfig(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	k := newKubectl(t, s.Kubeconfig())
	k.says("kubectl create -f " + filepath.Join("..", "..", "..", "examples", "provider", "rbac.yaml"))

	config, err := clientcmd.LoadFromFile(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	for _, user := range config.AuthInfos {
		user.Impersonate = "terraform"
	}

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}

	if said, err := k.run("kubectl --kubeconfig '" + kubeconfig + "' get secrets --all-namespaces"); err == nil {
		t.Fatalf("the user may read Secrets: %s", said)
	}

	w := newWorkspace(t)
	w.write(use(s)+"\nkubeconfig_path = "+quote(kubeconfig), both(talosTarget, kubernetesTarget)+"\nkubernetes = { manifests = { sync = false } }")
	planned, applied := w.plan().mustSucceed(2), w.apply().mustSucceed(0)

	s.wantUpgraded(talosTarget, once(1, 2))
	s.nothingLeft()

	for _, node := range s.World.Nodes() {
		if node.Components.Kubelet != kubernetesTarget {
			t.Errorf("the kubelet of %s is %s, want %s", node.Name, node.Components.Kubelet, kubernetesTarget)
		}
	}

	if reasons(t, s.someone(), "default", "Node")["worker-0"]["NodeUpgraded"] == 0 {
		t.Error("no Event says that worker-0 was upgraded")
	}

	for _, said := range []string{planned.text(), applied.text(), w.plan().mustSucceed(0).text(), w.destroy().mustSucceed(0).text()} {
		if strings.Contains(said, "forbidden") {
			t.Errorf("something was not permitted:\n%s", said)
		}
	}

	if left := k.says("kubectl -n kube-system get leases,configmaps -o name"); strings.Contains(left, "talosupgrade") {
		t.Errorf("destroy has left:\n%s", left)
	}
}
