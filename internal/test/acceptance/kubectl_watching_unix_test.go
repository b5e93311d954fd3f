// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// TestAccWatchingConfigMap follows the same protocol if no object is configured to publish to.
func TestAccWatchingConfigMap(t *testing.T) {
	fullOverReal(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	k := newKubectl(t, s.Kubeconfig())
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	// The watch may begin before the object exists.
	watch := k.follow(guideFollow)
	run := w.background("apply", "-json", "-auto-approve", "-input=false")

	watch.await("Upgrading node worker-0 (0/2)")
	k.wait(guideConfigMapWait).mustEnd("configmap/talosupgrade condition met\n")
	run.wait().mustSucceed(0)

	watch.await("Talos upgrade completed: now running " + talosTarget)
	watch.mustShow("Upgrading node worker-0 (0/2)", "Upgrading node cp-0 (1/2)", "Talos upgrade completed: now running "+talosTarget)
	k.wantsAnnotations(guideConfigMap, map[string]string{
		"talos-status": "completed", "talos-current": talosTarget, "talos-progress": "2/2", "talos-target": "",
	})
}

// TestAccWatchingPermissions publishes with only the permissions in the guide.
func TestAccWatchingPermissions(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern, Management: true, Speed: unhurried})
	k := newKubectl(t, s.ManagementKubeconfig())
	k.create(seedObject)

	rules, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "guides", "watching-an-upgrade", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	k.create(string(rules))
	k.says("kubectl create serviceaccount publisher")
	k.says("kubectl create rolebinding publisher --role=talosupgrade-publish --serviceaccount=default:publisher")

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	token := strings.TrimSpace(k.says("kubectl create token publisher"))
	k.says("cp \"$KUBECONFIG\" '" + kubeconfig + "'")
	k.says("kubectl config --kubeconfig '" + kubeconfig + "' set-credentials publisher --token=" + token)
	k.says("kubectl config --kubeconfig '" + kubeconfig + "' set-context --current --user=publisher")

	if said, err := k.run("kubectl --kubeconfig '" + kubeconfig + "' get secrets"); err == nil {
		t.Fatalf("the permissions are not what they should be: %s", said)
	}

	w := newUnhurried(t)
	w.write(use(s)+"\nmanagement = { kubeconfig_path = "+quote(kubeconfig)+" }", `talos_version = "1.13.4"`+seedPublish)
	w.apply().mustSucceed(0)

	k.wantsAnnotations(seedAnnotations, map[string]string{
		"talos-status": "completed", "talos-current": talosTarget, "talos-progress": "1/1", "do-not-reconcile": "",
	})
	k.wants(seedPhase, "Ready")
	k.wants(guideConditions, "TalosUpgrade=False Completed: Talos upgrade completed: now running "+talosTarget+"\n")

	if said := k.says(guideObjectEvents); !strings.Contains(said, "UpgradeCompleted") {
		t.Errorf("%s\nprints %s", guideObjectEvents, said)
	}
}
