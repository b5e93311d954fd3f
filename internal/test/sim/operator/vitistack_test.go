// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

func TestVitistack_UpgradesTalos(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		options := r.options(operator.Habits{})
		options.Newest = operator.Versions{Talos: toTalos, Kubernetes: "1.37.0"}

		defer operator.PlayVitistack(r.t.Context(), options)()

		r.untilNote("talos-status", "idle")
		r.want(map[string]string{
			"talos-current": fromTalos, "kubernetes-current": fromKubernetes, "kubernetes-status": "idle",
			"talos-available": toTalos, "talos-message": "Upgrade available: 1.13.2 → 1.13.4",
			// Talos 1.13 does not support the newest one.
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

		// A completed upgrade is not repeated.
		time.Sleep(time.Hour)

		if installs := len(r.installed()); installs != 5 {
			t.Errorf("%d installations after all", installs)
		}
	})
}

func TestVitistack_UpgradesKubernetesAfterTalos(t *testing.T) {
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

// TestVitistack_RefusesTouchingNothing: it reports what it cannot do, and touches nothing.
func TestVitistack_RefusesTouchingNothing(t *testing.T) {
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

// TestVitistack_StopsWhileHeld: it does nothing while the object is held, in the middle of an upgrade too.
func TestVitistack_StopsWhileHeld(t *testing.T) {
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

// TestVitistack_SuccessorGoesOn: another one continues from where the first stopped.
func TestVitistack_SuccessorGoesOn(t *testing.T) {
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

// TestVitistack_SaysWhatBecameOfANode: it reports the faults of a machine.
func TestVitistack_SaysWhatBecameOfANode(t *testing.T) {
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

// long is more than any upgrade takes.
const long = 2 * time.Hour

func TestVitistack_Habits(t *testing.T) {
	asked := map[string]string{"talos-target": toTalos}

	for name, test := range map[string]struct {
		habits operator.Habits
		// stands are the annotations at the start.
		stands map[string]string
		check  func(*rig)
	}{
		"as it is, it starts over for as long as the target stands": {
			operator.Habits{FailOn: "cp-0"},
			nil,
			func(r *rig) {
				r.untilNote("talos-status", "failed")
				time.Sleep(5 * time.Minute)
				r.wantMany("talos-status", "failed", 20)
				r.want(map[string]string{"talos-target": toTalos})

				r.annotate(map[string]string{"talos-target": ""})
				time.Sleep(time.Minute)

				rounds := len(r.written("talos-status"))
				time.Sleep(time.Hour)

				if now := len(r.written("talos-status")); now != rounds {
					r.t.Errorf("it goes on without a target: %d changes after %d", now, rounds)
				}
			},
		},
		"fails twice": {
			operator.Habits{FailOn: "worker-1", FailTimes: 2},
			nil,
			func(r *rig) {
				r.untilNote("talos-status", "completed")
				r.wantMany("talos-status", "failed", 2)
				r.wantWritten("talos-status", "in-progress", "failed", "in-progress", "failed", "in-progress", "completed")
				r.wantWritten("failed-nodes", "worker-1", "-", "worker-1", "-")
				r.wantTalos(toTalos)
			},
		},
		"stays failed": {
			operator.Habits{FailOn: "worker-1", FailTimes: 1, StaysFailed: true},
			nil,
			func(r *rig) {
				r.untilNote("talos-status", "failed")
				time.Sleep(long)
				r.want(map[string]string{
					"talos-status": "failed", "talos-message": "Talos upgrade failed: node worker-1 did not come back online",
					"failed-nodes": "worker-1", "talos-progress": "1/5", "talos-target": toTalos,
				})

				// The documentation of the operator describes this.
				r.annotate(map[string]string{"talos-target": ""})
				time.Sleep(10 * time.Second)
				r.annotate(asked)
				r.untilNote("talos-status", "completed")
				r.want(map[string]string{"failed-nodes": ""})
				r.wantTalos(toTalos)
			},
		},
		"deaf": {
			operator.Habits{Deaf: true},
			nil,
			func(r *rig) {
				time.Sleep(long)
				r.want(map[string]string{"talos-status": "idle", "talos-target": toTalos})
				r.wantTalos(fromTalos)
			},
		},
		"stalls": {
			operator.Habits{Stalls: true},
			nil,
			func(r *rig) {
				time.Sleep(long)
				r.want(map[string]string{
					"talos-status": "in-progress", "talos-progress": "0/5", "talos-message": "Starting Talos upgrade: 1.13.2 → 1.13.4",
				})
				r.wantTalos(fromTalos)
			},
		},
		"lies": {
			operator.Habits{Lies: true},
			nil,
			func(r *rig) {
				r.untilNote("talos-status", "completed")
				r.want(map[string]string{"talos-current": toTalos, "talos-target": ""})
				r.wantWritten("talos-status", "completed")
				time.Sleep(long)
				r.wantTalos(fromTalos)
			},
		},
		"leaves an old completed": {
			operator.Habits{StaleCompleted: true},
			map[string]string{"talos-status": "completed", "talos-current": fromTalos},
			func(r *rig) {
				r.untilNote("talos-message", "Upgrading node cp-0 (3/5)")
				r.untilNote("talos-current", toTalos)
				r.wantWritten("talos-status", "completed")
				r.wantTalos(toTalos)
			},
		},
		"forgetful": {
			operator.Habits{Forgetful: true},
			nil,
			func(r *rig) {
				r.untilNote("talos-status", "completed")
				time.Sleep(long)
				r.want(map[string]string{"talos-target": toTalos, "talos-status": "completed", "talos-current": toTalos})
				r.wantWritten("talos-status", "in-progress", "completed")
			},
		},
		"with v": {
			operator.Habits{WithV: true},
			nil,
			func(r *rig) {
				r.untilNote("talos-status", "completed")
				r.want(map[string]string{
					"talos-current": "v" + toTalos, "kubernetes-current": "v" + fromKubernetes,
					"talos-message": "Talos upgrade completed: now running v1.13.4",
				})
				r.wantTalos(toTalos)
			},
		},
		"fights": {
			operator.Habits{Fights: true},
			map[string]string{hold: "talosupgrade-1"},
			func(r *rig) {
				r.untilNote("talos-status", "idle")
				r.annotate(map[string]string{"talos-status": "in-progress", "talos-message": "ours"})
				r.untilNote("talos-status", "idle")
				r.want(map[string]string{"talos-message": "Waiting for an upgrade to be requested", hold: "talosupgrade-1"})
				time.Sleep(long)
				r.wantTalos(fromTalos)
			},
		},
		"ignores the hold": {
			operator.Habits{IgnoresHold: true},
			map[string]string{hold: "talosupgrade-1"},
			func(r *rig) {
				r.untilNote("talos-status", "completed")
				r.wantTalos(toTalos)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stands := map[string]string{"talos-target": toTalos}
			for key, value := range test.stands {
				stands[key] = value
			}

			beside(t, defaultWorld(), operator.SeedVitistack, operator.Seed{ClusterID: "c-1", Prefix: "talos-", Annotations: stands}, func(r *rig) {
				defer r.play(test.habits)()

				test.check(r)
			})
		})
	}
}

// TestVitistack_WithdrawnTargetEndsAfterTheCurrentMachine: if the target is removed, the upgrade ends after the
// machine that is being upgraded.
func TestVitistack_WithdrawnTargetEndsAfterTheCurrentMachine(t *testing.T) {
	for name, test := range map[string]struct {
		habits operator.Habits
		want   map[string]string
	}{
		"ends":  {operator.Habits{}, map[string]string{"talos-status": "idle", "talos-message": "Talos upgrade cancelled"}},
		"stays": {operator.Habits{LeavesInProgress: true}, map[string]string{"talos-status": "in-progress"}},
	} {
		t.Run(name, func(t *testing.T) {
			besideVitistack(t, func(r *rig) {
				defer r.play(test.habits)()

				r.annotate(map[string]string{"talos-target": toTalos})
				r.untilNote("talos-message", "Upgrading node worker-1 (2/5)")
				r.annotate(map[string]string{"talos-target": ""})
				time.Sleep(long)
				r.want(test.want)

				if versions := r.versions(); !slices.Equal(versions, []string{fromTalos, fromTalos, fromTalos, toTalos, toTalos}) {
					t.Errorf("the machines run %v", versions)
				}
			})
		})
	}
}

// TestVitistack_TargetMayChangeInTheMiddle: if the target changes in the middle, the new one is used.
func TestVitistack_TargetMayChangeInTheMiddle(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		defer r.play(operator.Habits{})()

		r.annotate(map[string]string{"talos-target": "1.13.3"})
		r.untilNote("talos-message", "Upgrading node worker-1 (2/5)")
		r.annotate(map[string]string{"talos-target": toTalos})
		r.until("done", long, func() bool { return r.note("talos-current") == toTalos })
		r.wantTalos(toTalos)
	})
}

// TestVitistack_StaleSecretTakesMachinesBack: an operator whose Secret was not updated downgrades machines once it
// is not held any more.
func TestVitistack_StaleSecretTakesMachinesBack(t *testing.T) {
	for name, settled := range map[string]bool{"settled": true, "not settled": false} {
		t.Run(name, func(t *testing.T) {
			besideVitistack(t, func(r *rig) {
				r.annotate(map[string]string{hold: "talosupgrade-1"})

				defer r.play(operator.Habits{Undoes: true})()

				for _, state := range r.cluster.World().Nodes() {
					if err := r.cluster.World().UpgradeByHand(state.Name, "ghcr.io/siderolabs/installer:v"+toTalos); err != nil {
						t.Fatal(err)
					}
				}

				want := fromTalos

				if settled {
					want = toTalos

					if err := r.WriteSecret(r.t.Context(), "tenant-a", "talos-c-1", map[string]string{"talos_version": toTalos}); err != nil {
						t.Fatal(err)
					}
				}

				time.Sleep(time.Hour)
				r.wantTalos(toTalos)
				r.annotate(map[string]string{hold: ""})
				r.untilNote("talos-current", want)
				time.Sleep(long)
				r.wantTalos(want)
			})
		})
	}
}

// wantMany asserts that an annotation took a value at least that often.
func (r *rig) wantMany(key, value string, least int) {
	r.t.Helper()

	found := 0

	for _, written := range r.written(key) {
		if written == value {
			found++
		}
	}

	if found < least {
		r.t.Errorf("%s was %s %d times, want %d at least", key, value, found, least)
	}
}

// wantWritten asserts the values that an annotation took.
func (r *rig) wantWritten(key string, values ...string) {
	r.t.Helper()

	if written := r.written(key); !slices.Equal(written, values) {
		r.t.Errorf("%s was %q, want %q", key, written, values)
	}
}
