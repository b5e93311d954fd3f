// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"strings"
	"testing"
)

// TestAccSeedBlocked is "Blocked Upgrades": both versions are wanted at once, and
// the Talos that runs does not support that Kubernetes.
func TestAccSeedBlocked(t *testing.T) {
	full(t)

	s, w, k := seedCluster(t, 1, 1)
	s.faults(`faults: [{node: worker-0, step: boot, effect: not-ready}]`)
	w.write(seedProvider(s), seedArguments(seedTalosAfter, seedKubernetesAfter))

	run := w.background("apply", "-json", "-auto-approve", "-input=false")

	k.becomes(seedKubernetesMessage, "Talos 1.11.6 does not support K8s 1.35.0. Upgrade Talos first.")
	k.becomes(seedPhase, "UpgradingTalos")
	k.wantsAnnotations(seedAnnotations, map[string]string{"kubernetes-status": "blocked", "kubernetes-available": ""})
	k.until(guideConditions, "what Kubernetes waits for", func(said string) bool {
		return strings.Contains(said, "KubernetesUpgrade=False Blocked: ")
	})

	s.faults("")
	run.wait().mustSucceed(0)
	k.wantsAnnotations(seedAnnotations, map[string]string{
		"talos-status": "completed", "talos-current": "1.12.0", "kubernetes-status": "completed", "kubernetes-current": "1.35.0",
	})
	k.wants(seedPhase, "Ready")
}

// TestAccSeedFailed is "Failed Upgrades", and the recovery from it.
func TestAccSeedFailed(t *testing.T) {
	full(t)

	s, w, k := seedCluster(t, 3, 0)
	s.faults(`faults: [{node: cp-1, step: boot, effect: never-returns}]`)
	w.write(seedProvider(s), strings.Replace(seedArguments(seedTalosAfter, ""), `"2h"`, `"12m"`, 1))
	w.apply().mustFail("cp-1", "did not come back")

	k.wantsAnnotations(seedAnnotations, map[string]string{
		"talos-status": "failed", "talos-message": "Talos upgrade failed: node cp-1 did not come back online", "talos-current": "1.11.6", "talos-progress": "1/3", "failed-nodes": "cp-1", "talos-target": "", "do-not-reconcile": "",
	})
	k.wants(seedPhase, "UpgradeFailed")

	if said := k.says(guideConditions); !strings.Contains(said, "TalosUpgrade=False Failed: ") {
		t.Errorf("%s\nprints %q", guideConditions, said)
	}

	s.faults("")
	s.settle()
	w.apply().mustSucceed(0)
	k.wantsAnnotations(seedAnnotations, map[string]string{
		"talos-status": "completed", "talos-current": "1.12.0", "talos-progress": "3/3", "failed-nodes": "",
	})
	k.wants(seedPhase, "Ready")
}
