// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

func TestVitistackUpgradesTalos(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		options := r.options(operator.Habits{})
		options.Newest = operator.Versions{Talos: toTalos, Kubernetes: "1.37.0"}

		defer operator.PlayVitistack(r.t.Context(), options)()

		r.untilNote("talos-status", "idle")
		r.want(map[string]string{
			"talos-current": fromTalos, "kubernetes-current": fromKubernetes, "kubernetes-status": "idle",
			"talos-available": toTalos, "talos-message": "Upgrade available: 1.13.2 → 1.13.4",
			// Talos 1.13 does not run it.
			"kubernetes-available": "",
		})

		r.annotate(map[string]string{"talos-target": "v" + toTalos})
		r.until("at work", time.Minute, func() bool { return r.secret("upgrade_in_progress") == "true" })

		if got := r.secret("upgrade_type") + " " + r.secret("upgrade_target"); got != "talos "+toTalos {
			t.Errorf("the Secret says %q", got)
		}

		r.untilNote("talos-progress", "2/5")

		if phase := r.status(r.of, "phase"); phase != "UpgradingTalos" {
			t.Errorf("the phase is %s", phase)
		}

		r.untilNote("talos-status", "completed")
		r.want(map[string]string{
			"talos-current": toTalos, "talos-target": "", "talos-available": "", "talos-progress": "", "failed-nodes": "",
			"talos-message": "Talos upgrade completed: now running 1.13.4", "kubernetes-status": "idle",
		})
		r.wantTalos(toTalos)
		r.wantCondition("TalosUpgrade", "False Completed Talos upgrade completed: now running 1.13.4")
		r.wantCondition("Valid", "True Valid the specification is valid")

		if phase := r.status(r.of, "phase"); phase != "Ready" {
			t.Errorf("the phase is %s", phase)
		}

		if order := r.installed(); !slices.Equal(order, []string{"worker-0", "worker-1", "cp-0", "cp-1", "cp-2"}) {
			t.Errorf("installed in the order %v", order)
		}

		wantWritten := []string{
			"Upgrade available: 1.13.2 → 1.13.4", "Starting Talos upgrade: 1.13.2 → 1.13.4",
			"Upgrading node worker-0 (1/5)", "Upgrading node worker-1 (2/5)", "Upgrading node cp-0 (3/5)",
			"Upgrading node cp-1 (4/5)", "Upgrading node cp-2 (5/5)", "Talos upgrade completed: now running 1.13.4",
		}
		if written := r.written("talos-message"); !slices.Equal(written, wantWritten) {
			t.Errorf("the messages were %q", written)
		}

		for key, want := range map[string]string{"talos_version": toTalos, "upgrade_in_progress": "false", "upgrade_type": "", "upgrade_target": ""} {
			if got := r.secret(key); got != want {
				t.Errorf("%s in the Secret is %q, want %q", key, got, want)
			}
		}

		// What is done stays done.
		time.Sleep(time.Hour)

		if installs := len(r.installed()); installs != 5 {
			t.Errorf("%d installations after all", installs)
		}
	})
}

func TestVitistackUpgradesKubernetesAfterTalos(t *testing.T) {
	options := model.Options{ControlPlanes: 3, Workers: 2, Talos: "1.12.6", Kubernetes: "1.35.2"}

	beside(t, options, operator.SeedVitistack, operator.Seed{ClusterID: "c-1", Prefix: "talos-", WithV: true}, func(r *rig) {
		r.annotate(map[string]string{"kubernetes-target": "1.36.1"})

		defer r.play(operator.Habits{WithV: true})()

		r.untilNote("kubernetes-status", "blocked")
		r.want(map[string]string{"kubernetes-message": "Talos v1.12.6 does not support K8s v1.36.1. Upgrade Talos first.", "talos-current": "v1.12.6"})

		r.annotate(map[string]string{"talos-target": "1.13.4"})
		r.untilNote("kubernetes-message", "Waiting for Talos upgrade to complete")
		r.wantCondition("KubernetesUpgrade", "False Blocked Waiting for Talos upgrade to complete")
		r.untilNote("talos-status", "completed")
		r.untilNote("kubernetes-status", "in-progress")

		if phase := r.status(r.of, "phase"); phase != "UpgradingKubernetes" {
			t.Errorf("the phase is %s", phase)
		}

		r.untilNote("kubernetes-status", "completed")
		r.want(map[string]string{
			"kubernetes-current": "v1.36.1", "kubernetes-target": "", "kubernetes-progress": "",
			"kubernetes-message": "Kubernetes upgrade completed: now running v1.36.1",
		})
		r.wantTalos("1.13.4")
		r.wantKubernetes("1.36.1")
		r.wantCondition("KubernetesUpgrade", "False Completed Kubernetes upgrade completed: now running v1.36.1")

		if got := r.secret("talos_version") + " " + r.secret("kubernetes_version"); got != "v1.13.4 v1.36.1" {
			t.Errorf("the Secret says %s", got)
		}

		if written := r.written("kubernetes-status"); !slices.Equal(written, []string{"blocked", "in-progress", "completed"}) {
			t.Errorf("the status was %q", written)
		}
	})
}

// TestVitistackRefuses: what it cannot do it says, touching nothing.
func TestVitistackRefuses(t *testing.T) {
	for name, test := range map[string]struct{ key, target, message string }{
		"two minors":      {"kubernetes", "1.36.0", "Kubernetes upgrade failed: can only upgrade one minor version at a time"},
		"older":           {"talos", "1.13.1", "Talos upgrade failed: target version 1.13.1 is not newer than the current version 1.13.2"},
		"older, too":      {"kubernetes", "1.34.1", "Kubernetes upgrade failed: target version 1.34.1 is not newer than the current version 1.34.2"},
		"no version":      {"talos", "latest", `Talos upgrade failed: invalid target version "latest"`},
		"no such version": {"talos", "1.99.0", `Talos upgrade failed: node worker-0: failed to resolve image "factory.talos.dev/metal-installer/` + model.EmptySchematic + `:v1.99.0": not found`},
	} {
		t.Run(name, func(t *testing.T) {
			besideVitistack(t, func(r *rig) {
				defer r.play(operator.Habits{})()

				r.annotate(map[string]string{test.key + "-target": test.target})
				r.untilNote(test.key+"-status", "failed")
				r.want(map[string]string{test.key + "-message": test.message, test.key + "-target": test.target})

				if phase := r.status(r.of, "phase"); phase != "UpgradeFailed" {
					t.Errorf("the phase is %s", phase)
				}

				time.Sleep(time.Hour)

				r.wantTalos(fromTalos)
				r.wantKubernetes(fromKubernetes)
			})
		})
	}
}

// TestVitistackIsHeld: whoever holds it is left alone, in the middle of an upgrade
// too.
func TestVitistackIsHeld(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		r.annotate(map[string]string{hold: "anything"})

		defer r.play(operator.Habits{})()

		r.annotate(map[string]string{"talos-target": toTalos})
		time.Sleep(time.Hour)
		r.want(map[string]string{"talos-status": "", "talos-current": ""})

		r.annotate(map[string]string{hold: ""})
		r.untilNote("talos-message", "Upgrading node worker-1 (2/5)")
		r.annotate(map[string]string{hold: "talosupgrade-1", "talos-message": "ours"})
		time.Sleep(time.Hour)
		r.want(map[string]string{"talos-message": "ours", "talos-status": "in-progress"})

		if nodes := r.installed(); !slices.Equal(nodes, []string{"worker-0", "worker-1"}) {
			t.Errorf("installed while it was held: %v", nodes)
		}

		r.annotate(map[string]string{hold: ""})
		r.untilNote("talos-status", "completed")
		r.wantTalos(toTalos)
	})
}

// TestVitistackSurvivesItsEnd: another one goes on where the first was.
func TestVitistackSurvivesItsEnd(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		stop := r.play(operator.Habits{})

		r.annotate(map[string]string{"talos-target": toTalos})
		r.untilNote("talos-message", "Upgrading node cp-1 (4/5)")
		r.until("on its way", time.Minute, func() bool {
			state, err := r.cluster.World().Node("cp-1")

			return err == nil && state.Stage != model.StageRunning
		})
		stop()

		defer r.play(operator.Habits{})()

		r.untilNote("talos-status", "completed")
		r.wantTalos(toTalos)

		if nodes := r.installed(); len(nodes) != 5 {
			t.Errorf("installed %v", nodes)
		}
	})
}

// TestVitistackSaysWhatBecameOfANode: faults of a machine are found.
func TestVitistackSaysWhatBecameOfANode(t *testing.T) {
	for name, test := range map[string]struct {
		fault   model.Fault
		message string
	}{
		"falls back": {
			model.Fault{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectFallback},
			"Talos upgrade failed: node worker-1 runs 1.13.2 after the upgrade to 1.13.4",
		},
		"does not come back": {
			model.Fault{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectNeverReturns},
			"Talos upgrade failed: node worker-1 did not come back online",
		},
	} {
		t.Run(name, func(t *testing.T) {
			besideVitistack(t, func(r *rig) {
				r.cluster.World().SetFaults([]model.Fault{test.fault})

				defer r.play(operator.Habits{StaysFailed: true})()

				r.annotate(map[string]string{"talos-target": toTalos})
				r.untilNote("talos-status", "failed")
				r.want(map[string]string{"talos-message": test.message, "failed-nodes": "worker-1", "talos-target": toTalos})
				r.wantCondition("TalosUpgrade", "False Failed "+test.message)
			})
		})
	}
}
