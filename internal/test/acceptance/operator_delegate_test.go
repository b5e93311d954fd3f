// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// delegating makes the operator upgrade the cluster.
const delegating = "\nmode = \"delegate\""

// startDelegated starts a cluster that an operator upgrades. The verdict checks that we leave that to the operator.
func startDelegated(t *testing.T, options sim.Options) *operated {
	t.Helper()

	o := startOperated(t, options)
	o.policy = append(o.policy, checker.Delegated())

	return o
}

// asked fails the test unless we wrote these values, without repetitions; an empty one is a removal.
func (o *operated) asked(key string, want ...string) {
	o.t.Helper()

	if got := slices.Compact(o.written(key, true)); !slices.Equal(got, want) {
		o.t.Errorf("we wrote %s %q, want %q", key, got, want)
	}
}

// wantUpgradedTo fails the test unless every node runs the versions and is not cordoned.
func (o *operated) wantUpgradedTo(talos, kubernetes string) {
	o.t.Helper()
	o.wantUpgraded(talos, nil)
	o.wantKubernetes(kubernetes)
}

// TestAccDelegateBothHalves makes the operator of a KubernetesCluster upgrade Talos and then Kubernetes, one minor
// release after the other.
func TestAccDelegateBothHalves(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosLegacy, Pods: 1})
	o.keep(nil)
	o.play(operator.Habits{})

	w := newUnhurried(t)
	w.write(o.provider(), both(talosTarget, "1.36.1")+"\nallow_intermediate_versions = true"+o.publishTo()+delegating)
	w.plan().mustSucceed(2).mustWarn(o.of.String())
	o.unchanged()

	w.apply().mustSucceed(0)
	o.wantUpgradedTo(talosTarget, "1.36.1")
	o.wantDone(talosTarget, "1.36.1", nil)
	o.asked("talos-target", talosTarget)

	if asked := o.written("kubernetes-target", true); len(asked) != 2 || !strings.HasPrefix(asked[0], "1.35.") || asked[1] != "1.36.1" {
		t.Errorf("Kubernetes was asked for in %q", asked)
	}

	for _, key := range []string{"talos-status", "talos-current", "kubernetes-message", keyHold, "talosupgrade-last-update"} {
		if values := o.written(key, true); len(values) > 0 {
			t.Errorf("we wrote %s, which is the operator's: %v", key, values)
		}
	}

	w.mustPlan()

	changed := len(o.changes())
	w.apply().mustSucceed(0)

	if later := o.changes()[changed:]; len(later) > 0 {
		t.Errorf("an apply without anything to do changed %v", later)
	}

	// A change of the mode alone is not an upgrade.
	w.write(o.provider(), both(talosTarget, "1.36.1")+"\nallow_intermediate_versions = true"+o.publishTo())
	w.mustPlan("update").mustNotWarn("Rolling upgrade")
}

// TestAccDelegateToABadOperator has an operator that fails, and then one that succeeds in its own way. What we asked
// the first one for has to be withdrawn.
func TestAccDelegateToABadOperator(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	w.write(o.provider(), "talos_version = \"1.13.4\"\nnode_timeout = \"15m\""+o.publishTo()+delegating)

	stop := o.play(operator.Habits{FailOn: "worker-0"})
	w.apply().mustFail("says that it failed", "Talos upgrade failed", "worker-0", o.of.String(), "terraform apply")
	stop()
	o.asked("talos-target", talosTarget, "")
	o.wantAnnotations(map[string]string{"talos-target": "", keyHold: ""})

	// It always says "completed", spells versions in its own way, and keeps the target once it is done; but it does
	// upgrade.
	o.annotate(map[string]string{"talos-status": "completed", "talos-message": "Talos upgrade completed: now running v1.13.0", "failed-nodes": ""})
	o.play(operator.Habits{WithV: true, StaleCompleted: true, Forgetful: true})
	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, nil)
	o.wantAnnotations(map[string]string{"talos-target": "", "talos-current": "v" + talosTarget})
	w.mustPlan()
}

// TestAccDelegateIsRefused: what prevents an upgrade has to be found before an operator is asked, and so has an
// operator that would do nothing.
func TestAccDelegateIsRefused(t *testing.T) {
	full(t)

	const person = "per@example.com"

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(map[string]string{keyHold: person})
	o.play(operator.Habits{})

	w := newUnhurried(t)
	w.write(o.provider(), `talos_version = "1.13.4"`+delegating+o.publishTo())
	w.plan().mustSucceed(2).mustWarn(person)
	w.apply().mustFail(person, "do-not-reconcile-")
	o.wantAnnotations(map[string]string{keyHold: person})
	o.annotate(map[string]string{keyHold: ""})

	if err := o.World.SetEtcdAlarm("cp-0", "NOSPACE"); err != nil {
		t.Fatal(err)
	}

	w.plan().mustSucceed(2).mustWarn("NOSPACE")
	w.apply().mustFail("etcd-alarms", "NOSPACE")
	o.asked("talos-target")
	o.untouched("cp-0", "worker-0")
}

// declarative creates the objects of an operator whose objects have the versions to run in their spec.
func (o *operated) declarative() {
	o.t.Helper()

	of, err := operator.SeedDeclarative(o.t.Context(), o.objects, o.World, operator.Seed{Namespace: tenant, Name: owned})
	if err != nil {
		o.t.Fatal(err)
	}

	o.of = of
}

// playDeclarative runs such an operator until stop is called or the test ends.
func (o *operated) playDeclarative(habits operator.Habits) (stop func()) {
	o.t.Helper()

	stop = operator.PlayDeclarative(o.t.Context(), o.players(habits))
	o.t.Cleanup(stop)

	return stop
}

// wantSpec fails the test unless the objects of the control plane, the workers and the machines have these versions
// in their spec.
func (o *operated) wantSpec(talos, kubernetes string) {
	o.t.Helper()

	for _, kind := range []string{operator.ControlPlaneKind, operator.WorkerKind, operator.MachineKind} {
		listed, err := o.objects.List(o.t.Context(), operator.DeclarativeAPIVersion, kind, tenant)
		if err != nil || len(listed) == 0 {
			o.t.Fatalf("%d objects of kind %s: %v", len(listed), kind, err)
		}

		for _, object := range listed {
			name := fmt.Sprint(kind, " ", at(object, "metadata", "name"))
			if got := at(object, "spec", "version"); got != "v"+talos {
				o.t.Errorf("%s wants Talos %v, not v%s", name, got, talos)
			}

			if got := at(object, "spec", "kubeVersion"); kind != operator.MachineKind && got != "v"+kubernetes {
				o.t.Errorf("%s wants Kubernetes %v, not v%s", name, got, kubernetes)
			}
		}
	}
}

// TestAccDelegateToDeclarativeObjects makes the operator of a TalosControlPlane upgrade both halves. Before that it
// does not react, and then it fails.
func TestAccDelegateToDeclarativeObjects(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.declarative()

	w := newUnhurried(t)
	w.write(o.provider(), both(talosTarget, kubernetesTarget)+o.publishTo()+delegating)
	o.wantSpec(talosModern, kubernetes)

	stop := o.playDeclarative(operator.Habits{Deaf: true})
	w.apply().mustFail("did not react", o.of.String(), "cannot be taken back")
	stop()
	// A spec cannot be changed back without downgrading nodes.
	o.wantSpec(talosTarget, kubernetes)
	o.untouched("cp-0", "worker-0")

	// The operator starts once it is asked again.
	failed := o.duringApply(w, func(e history.Event) bool {
		return e.Kind == history.KindLease && e.Detail["action"] == "acquire"
	}, func() {
		stop = o.playDeclarative(operator.Habits{FailOn: "worker-0", KeepsWorkers: true})
	})
	failed.mustFail("worker-0", o.of.String())
	stop()

	o.playDeclarative(operator.Habits{})
	w.apply().mustSucceed(0)
	o.wantUpgradedTo(talosTarget, kubernetesTarget)
	o.wantSpec(talosTarget, kubernetesTarget)
	w.mustPlan()
}
