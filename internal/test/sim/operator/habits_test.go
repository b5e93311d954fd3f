// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// long is more than any upgrade takes.
const long = 2 * time.Hour

func TestHabits(t *testing.T) {
	asked := map[string]string{"talos-target": toTalos}

	for name, test := range map[string]struct {
		habits operator.Habits
		// stands is what the annotations are before.
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

				// As the document of the operator says.
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

// TestWithdrawn: a target that is taken away ends the upgrade after the machine
// that is on its way.
func TestWithdrawn(t *testing.T) {
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

// TestAnotherTarget: a target that changes in the middle is what counts.
func TestAnotherTarget(t *testing.T) {
	besideVitistack(t, func(r *rig) {
		defer r.play(operator.Habits{})()

		r.annotate(map[string]string{"talos-target": "1.13.3"})
		r.untilNote("talos-message", "Upgrading node worker-1 (2/5)")
		r.annotate(map[string]string{"talos-target": toTalos})
		r.until("done", long, func() bool { return r.note("talos-current") == toTalos })
		r.wantTalos(toTalos)
	})
}

// TestUndoes: an operator whose Secret was not brought up to date takes machines
// back, once it is let go.
func TestUndoes(t *testing.T) {
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
