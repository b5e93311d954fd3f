// SPDX-License-Identifier: MPL-2.0

package operator_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

func defaultWorld() model.Options {
	return model.Options{ControlPlanes: 3, Workers: 2, Talos: fromTalos, Kubernetes: fromKubernetes}
}

func named(kind, name string) cluster.Reference {
	return cluster.Reference{APIVersion: operator.DeclarativeAPIVersion, Kind: kind, Namespace: "tenant-a", Name: name}
}

// ask changes what an object says should run.
func (r *rig) ask(of cluster.Reference, spec map[string]any) {
	r.t.Helper()

	if _, err := r.PatchObject(r.t.Context(), of, "", map[string]any{"spec": spec}); err != nil {
		r.t.Fatal(err)
	}
}

// states returns the values that the state of an object took, in order.
func (r *rig) states(of cluster.Reference) []string {
	var values []string

	for _, event := range r.happened(history.KindStatus) {
		if event.Detail["object"] == of.Kind+"/"+of.Namespace+"/"+of.Name && event.Detail["field"] == "state" {
			values = append(values, event.Detail["value"])
		}
	}

	return values
}

func (r *rig) wantStates(of cluster.Reference, want ...string) {
	r.t.Helper()

	if got := r.states(of); !slices.Equal(got, want) {
		r.t.Errorf("the states of %s were %q, want %q", of, got, want)
	}
}

func (r *rig) observed(name string) string {
	return r.status(named(operator.MachineKind, name), "observedVersion")
}

func TestDeclarative_UpgradesBoth(t *testing.T) {
	besideDeclarative(t, func(r *rig) {
		defer r.play(operator.Habits{})()

		r.ask(r.of, map[string]any{"version": "v" + toTalos, "kubeVersion": "v" + toKubernetes})
		r.until("Kubernetes observed", long, func() bool { return r.status(r.of, "observedKubeVersion") == "v"+toKubernetes })

		r.wantTalos(toTalos)
		r.wantKubernetes(toKubernetes)
		r.wantStates(r.of, "Ready", "UpgradingKubernetes", "Ready")

		for _, name := range []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"} {
			r.wantStates(named(operator.MachineKind, name), "Ready", "Upgrading", "Ready")

			if observed := r.observed(name); observed != "v"+toTalos {
				t.Errorf("%s: observed %s", name, observed)
			}
		}

		if order := r.installed(); !slices.Equal(order, []string{"cp-0", "cp-1", "cp-2", "worker-0", "worker-1"}) {
			t.Errorf("installed in the order %v", order)
		}

		worker, err := r.Object(r.t.Context(), named(operator.WorkerKind, "prod-workers"))
		if err != nil {
			t.Fatal(err)
		}

		if spec, _ := worker["spec"].(map[string]any); spec["version"] != "v"+toTalos || spec["kubeVersion"] != "v"+toKubernetes {
			t.Errorf("the workers are to run %v", spec)
		}
	})
}

func TestDeclarative_Habits(t *testing.T) {
	for name, test := range map[string]struct {
		habits operator.Habits
		spec   map[string]any
		check  func(*rig)
	}{
		"starts over": {
			operator.Habits{FailOn: "cp-1", FailTimes: 2},
			map[string]any{"version": "v" + toTalos},
			func(r *rig) {
				r.until("observed", long, func() bool { return r.observed("worker-1") == "v"+toTalos })
				r.wantStates(named(operator.MachineKind, "cp-1"), "Ready", "Failed", "Upgrading", "Ready")
				r.wantTalos(toTalos)
			},
		},
		"stays failed": {
			operator.Habits{FailOn: "cp-1", StaysFailed: true},
			map[string]any{"version": "v" + toTalos},
			func(r *rig) {
				time.Sleep(long)
				r.wantStates(named(operator.MachineKind, "cp-1"), "Ready", "Failed")

				if observed := r.observed("cp-1"); observed != "v"+fromTalos {
					r.t.Errorf("observed %s", observed)
				}
			},
		},
		"fails at Kubernetes": {
			operator.Habits{FailOn: "worker-0", StaysFailed: true},
			map[string]any{"kubeVersion": "v" + toKubernetes},
			func(r *rig) {
				time.Sleep(long)
				r.wantStates(r.of, "Ready", "UpgradingKubernetes", "KubernetesUpgradeFailed")
			},
		},
		"two minors": {
			operator.Habits{StaysFailed: true},
			map[string]any{"kubeVersion": "v1.36.0"},
			func(r *rig) {
				time.Sleep(long)
				r.wantStates(r.of, "Ready", "KubernetesUpgradeFailed")
				r.wantKubernetes(fromKubernetes)
			},
		},
		"deaf": {
			operator.Habits{Deaf: true},
			map[string]any{"version": "v" + toTalos, "kubeVersion": "v" + toKubernetes},
			func(r *rig) {
				time.Sleep(long)
				r.wantTalos(fromTalos)
				r.wantStates(r.of, "Ready")
			},
		},
		"stalls": {
			operator.Habits{Stalls: true},
			map[string]any{"version": "v" + toTalos},
			func(r *rig) {
				time.Sleep(long)
				r.wantTalos(fromTalos)
				r.wantStates(named(operator.MachineKind, "cp-0"), "Ready", "Upgrading")
			},
		},
		"stalls at Kubernetes": {
			operator.Habits{Stalls: true},
			map[string]any{"kubeVersion": "v" + toKubernetes},
			func(r *rig) {
				time.Sleep(long)
				r.wantKubernetes(fromKubernetes)
				r.wantStates(r.of, "Ready", "UpgradingKubernetes")
			},
		},
		"lies": {
			operator.Habits{Lies: true},
			map[string]any{"version": "v" + toTalos, "kubeVersion": "v" + toKubernetes},
			func(r *rig) {
				r.until("observed", long, func() bool {
					return r.observed("worker-1") == "v"+toTalos && r.status(r.of, "observedKubeVersion") == "v"+toKubernetes
				})
				r.wantTalos(fromTalos)
				r.wantKubernetes(fromKubernetes)
			},
		},
		"shows no state": {
			operator.Habits{StaleCompleted: true},
			map[string]any{"version": "v" + toTalos, "kubeVersion": "v" + toKubernetes},
			func(r *rig) {
				r.until("observed", long, func() bool { return r.status(r.of, "observedKubeVersion") == "v"+toKubernetes })
				r.wantStates(r.of, "Ready")
				r.wantStates(named(operator.MachineKind, "cp-0"), "Ready")
				r.wantTalos(toTalos)
			},
		},
		"keeps the workers": {
			operator.Habits{KeepsWorkers: true},
			map[string]any{"version": "v" + toTalos},
			func(r *rig) {
				time.Sleep(long)

				if versions := r.versions(); !slices.Equal(versions, []string{toTalos, toTalos, toTalos, fromTalos, fromTalos}) {
					r.t.Errorf("the machines run %v", versions)
				}

				r.ask(named(operator.WorkerKind, "prod-workers"), map[string]any{"version": "v" + toTalos})
				r.until("observed", long, func() bool { return r.observed("worker-1") == "v"+toTalos })
				r.wantTalos(toTalos)
			},
		},
		"undoes": {
			operator.Habits{Undoes: true},
			map[string]any{},
			func(r *rig) {
				if err := r.cluster.World().UpgradeByHand("worker-0", "ghcr.io/siderolabs/installer:v"+toTalos); err != nil {
					r.t.Fatal(err)
				}

				time.Sleep(long)
				r.wantTalos(fromTalos)

				if nodes := r.installed(); !slices.Equal(nodes, []string{"worker-0", "worker-0"}) {
					r.t.Errorf("installed %v, want it taken there and back", nodes)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			besideDeclarative(t, func(r *rig) {
				defer r.play(test.habits)()

				r.ask(r.of, test.spec)
				test.check(r)
			})
		})
	}
}

// TestDeclarative_PlayersOutliveTheirAPI: a write that failed, or whose answer was lost, is repeated.
func TestDeclarative_PlayersOutliveTheirAPI(t *testing.T) {
	for name, lost := range map[string]bool{"refused": false, "lost reply": true} {
		t.Run(name, func(t *testing.T) {
			// Only the player makes requests under its name, one after the other.
			draw := rand.New(rand.NewPCG(1, 2))
			fail := func(_ context.Context, operation operator.Operation, next func() error) error {
				if operation.By != "other" || draw.IntN(4) != 0 {
					return next()
				}

				if lost {
					_ = next()
				}

				return cluster.ErrUnreachable
			}

			besideVitistack(t, func(r *rig) {
				r.annotate(map[string]string{"talos-target": toTalos, "kubernetes-target": toKubernetes})
				r.Inject(fail)

				defer r.play(operator.Habits{})()

				r.untilNote("kubernetes-current", toKubernetes)
				r.until("said", time.Minute, func() bool { return r.secret("upgrade_in_progress") == "false" && r.status(r.of, "phase") == "Ready" })
				r.wantTalos(toTalos)
				r.wantKubernetes(toKubernetes)
			})

			besideDeclarative(t, func(r *rig) {
				r.ask(r.of, map[string]any{"version": "v" + toTalos, "kubeVersion": "v" + toKubernetes})
				r.Inject(fail)

				defer r.play(operator.Habits{})()

				r.until("observed", long, func() bool { return r.status(r.of, "observedKubeVersion") == "v"+toKubernetes })
				r.wantTalos(toTalos)
				r.wantKubernetes(toKubernetes)
			})
		})
	}
}
