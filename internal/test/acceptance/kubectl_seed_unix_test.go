// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// The versions in the document of the annotation protocol.
const (
	seedTalosBefore      = "1.11.6"
	seedTalosAfter       = "1.12.0"
	seedKubernetesBefore = "1.34.1"
	seedKubernetesAfter  = "1.35.0"
)

// seedObject is the object in that document.
const seedObject = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: my-cluster, namespace: default}
spec: {data: {clusterId: my-cluster}}
`

// seedPublish has the arguments that publish to it.
const seedPublish = "\npublish_to = { kind = \"KubernetesCluster\", namespace = \"default\", name = \"my-cluster\" }"

// seedCluster returns the cluster of that document with its object, a workspace for it, and a kubectl.
func seedCluster(t *testing.T) (*simulated, *workspace, *kubectl) {
	t.Helper()

	s := start(t, sim.Options{
		Speed:         unhurried,
		ControlPlanes: 3, Workers: 2, Talos: seedTalosBefore, Kubernetes: seedKubernetesBefore, CustomResources: true,
	})
	k := newKubectl(t, s.Kubeconfig())

	k.create(seedObject)

	return s, newUnhurried(t), k
}

// seedProvider returns the arguments of the provider, which knows only the releases in the document.
func seedProvider(s *simulated) string {
	return use(s) + `
release_source = {
  talos_versions      = ["` + seedTalosBefore + `", "` + seedTalosAfter + `"]
  kubernetes_versions = ["` + seedKubernetesBefore + `", "` + seedKubernetesAfter + `"]
}`
}

// seedArguments returns the arguments of the resource for the versions; empty for a half that is not managed.
func seedArguments(talos, kubernetes string) string {
	arguments := ""
	if talos != "" {
		arguments += "\ntalos_version = " + quote(talos)
	}

	if kubernetes != "" {
		arguments += "\nkubernetes_version = " + quote(kubernetes)
	}

	return arguments + seedPublish + "\nnode_timeout = \"2h\""
}

// create creates the objects of the manifest.
func (k *kubectl) create(manifest string) {
	k.t.Helper()

	path := filepath.Join(k.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		k.t.Fatal(err)
	}

	k.says("kubectl create -f " + path)
}

// annotations returns the annotations that the command prints, without the prefix of their keys. jq would only colour
// them, so it is left out.
func (k *kubectl) annotations(line string) map[string]string {
	k.t.Helper()

	return k.parse(k.says(strings.TrimSuffix(line, " | jq")))
}

func (k *kubectl) parse(said string) map[string]string {
	k.t.Helper()

	var all map[string]string
	if err := json.Unmarshal([]byte(said), &all); err != nil {
		k.t.Fatalf("%v in %q", err, said)
	}

	ours := map[string]string{}

	for key, value := range all {
		if short, is := strings.CutPrefix(key, "upgrade.vitistack.io/"); is {
			ours[short] = value
		}
	}

	return ours
}

// wantsAnnotations fails the test unless the command prints all of these annotations. One with an empty value has to
// be missing.
func (k *kubectl) wantsAnnotations(line string, want map[string]string) {
	k.t.Helper()

	found := k.annotations(line)
	for key, value := range want {
		if standing, stands := found[key]; standing != value || stands != (value != "") {
			k.t.Errorf("%s is %q, want %q; all: %v", key, standing, value, found)
		}
	}
}

// TestAccSeedCommands follows the document of the annotation protocol: it runs every reading command in it, while
// real applies do what its operator does there.
func TestAccSeedCommands(t *testing.T) {
	full(t)

	s, w, k := seedCluster(t)
	w.write(seedProvider(s), seedArguments(seedTalosBefore, ""))
	w.apply().mustSucceed(0)

	// "Step 1: Check Available Upgrades".
	k.wantsAnnotations(seedAnnotations, map[string]string{
		"talos-available": "1.12.0", "talos-current": "1.11.6", "talos-status": "idle", "talos-message": "Upgrade available: 1.11.6 → 1.12.0",
		"kubernetes-available": "", "kubernetes-current": "1.34.1", "kubernetes-status": "idle",
		"talos-target": "", "kubernetes-target": "", "do-not-reconcile": "",
	})

	versions := k.says(seedVersions)
	for _, text := range []string{"annotations:", "talos-current: 1.11.6", "kubernetes-current: 1.34.1"} {
		if !strings.Contains(versions, text) {
			t.Errorf("%s\nprints %q, want %q in it", seedVersions, versions, text)
		}
	}

	k.seedTalos(s, w)
	k.seedKubernetes(s, w)
}

// seedTalos follows the part about Talos. The third node is not ready while the test looks at it.
func (k *kubectl) seedTalos(s *simulated, w *workspace) {
	k.t.Helper()

	watch := k.follow(seedWatch)
	watch.await("Upgrade available: 1.11.6 → 1.12.0")

	s.faults(`faults: [{node: cp-0, step: boot, effect: not-ready}]`)
	w.write(seedProvider(s), seedArguments(seedTalosAfter, ""))

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	done := k.wait(seedTalosWait)

	// "Step 3: Monitor Progress".
	k.becomes(seedPhase, "UpgradingTalos")
	k.becomes(seedTalosProgress, "2/5")
	k.until(guideConditions, "the node that is being upgraded", func(said string) bool {
		return strings.Contains(said, "TalosUpgrade=True InProgress: Upgrading node cp-0 (2/5 nodes completed)\n")
	})
	k.wants(seedTalosStatus, "in-progress")
	k.beats()
	done.pending()

	s.faults("")
	run.wait().mustSucceed(0)
	done.mustEnd("kubernetescluster.vitistack.io/my-cluster condition met\n")

	// "Step 4: Verify Completion".
	k.wants(seedTalosCurrent, "1.12.0")
	k.wants(seedTalosStatus, "completed")
	k.wants(seedPhase, "Ready")
	watch.mustShow("Upgrade available: 1.11.6 → 1.12.0", "Upgrading node worker-0 (0/5)", "Upgrading node worker-1 (1/5)",
		"Upgrading node cp-0 (2/5)", "Upgrading node cp-2 (4/5)", "Talos upgrade completed: now running 1.12.0")
}

// seedKubernetes follows the part about Kubernetes, to the end of the document.
func (k *kubectl) seedKubernetes(s *simulated, w *workspace) {
	k.t.Helper()

	// "Step 1: Check Available Upgrades".
	k.wantsAnnotations(seedAnnotations, map[string]string{
		"kubernetes-available": "1.35.0", "kubernetes-current": "1.34.1", "kubernetes-status": "idle",
		"kubernetes-message": "Upgrade available: 1.34.1 → 1.35.0", "talos-available": "", "failed-nodes": "", "do-not-reconcile": "",
	})

	s.faults(`faults: [{node: worker-0, step: kubelet-restart, effect: not-ready}]`)
	w.write(seedProvider(s), seedArguments(seedTalosAfter, seedKubernetesAfter))

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	done := k.wait(seedKubernetesWait)

	// "Step 3: Monitor Progress".
	k.becomes(seedPhase, "UpgradingKubernetes")
	k.until(seedKubernetesMessage, "the kubelet that is being upgraded", func(said string) bool {
		return strings.HasPrefix(said, "Upgrading kubelet on worker-0")
	})
	done.pending()

	s.faults("")
	run.wait().mustSucceed(0)
	done.mustEnd("kubernetescluster.vitistack.io/my-cluster condition met\n")

	// "Step 4: Verify Completion", and the end of the whole workflow.
	k.wants(seedKubernetesCurrent, "1.35.0")
	k.wants(seedPhase, "Ready")
	k.wantsAnnotations(seedAnnotations, map[string]string{
		"talos-status": "completed", "talos-current": "1.12.0", "talos-available": "", "kubernetes-available": "",
		"kubernetes-status": "completed", "kubernetes-message": "Kubernetes upgrade completed: now running 1.35.0", "do-not-reconcile": "",
	})
	k.wants(guideConditions, "TalosUpgrade=False Completed: Talos upgrade completed: now running 1.12.0\n"+
		"KubernetesUpgrade=False Completed: Kubernetes upgrade completed: now running 1.35.0\n")

	for line, texts := range map[string][]string{
		guideObjectEvents: {"Upgrade started: Talos 1.11.6 → 1.12.0", "Upgrade completed: now running Talos 1.12.0", "UpgradeCompleted"},
		guideNodeEvents:   {"Upgrading the node to Talos 1.12.0", "Draining", "Uncordoning", "NodeUpgraded"},
	} {
		said := k.says(line)
		for _, text := range texts {
			if !strings.Contains(said, text) {
				k.t.Errorf("%s\ndoes not show %q", line, text)
			}
		}
	}
}

// beats fails the test unless the heartbeat of the run changes, in real time, within the time in the guide.
func (k *kubectl) beats() {
	k.t.Helper()

	before := k.says(guideHeartbeat)
	now := k.until(guideHeartbeat, "a later time", func(said string) bool { return said > before })

	beat, err := time.Parse(time.RFC3339, now)
	if err != nil || time.Since(beat) > time.Minute {
		k.t.Errorf("the heartbeat is %q (%v)", now, err)
	}
}
