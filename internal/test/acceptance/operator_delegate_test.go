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

// delegating has the operator upgrade the cluster.
const delegating = "\nmode = \"delegate\""

// startDelegated brings up a cluster that an operator upgrades. The verdict says
// whether we left that to it.
func startDelegated(t *testing.T, options sim.Options) *operated {
	t.Helper()

	o := startOperated(t, options)
	o.policy = append(o.policy, checker.Delegated())

	return o
}

// asked asserts what we asked for, but for repetitions; a removal is empty.
func (o *operated) asked(key string, want ...string) {
	o.t.Helper()

	if got := slices.Compact(o.written(key, true)); !slices.Equal(got, want) {
		o.t.Errorf("we wrote %s %q, want %q", key, got, want)
	}
}

// wantUpgradedTo asserts what every node runs, cordoned by nobody.
func (o *operated) wantUpgradedTo(talos, kubernetes string) {
	o.t.Helper()
	o.wantUpgraded(talos, nil)
	o.wantKubernetes(kubernetes)
}

// TestAccDelegateBothHalves has the operator of a KubernetesCluster upgrade Talos
// and then Kubernetes, one minor release after the other.
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

	// The other way to upgrade the same cluster is no upgrade.
	w.write(o.provider(), both(talosTarget, "1.36.1")+"\nallow_intermediate_versions = true"+o.publishTo())
	w.mustPlan("update").mustNotWarn("Rolling upgrade")
}

// TestAccDelegateToABadOperator goes through what operators get wrong, one after
// the other, in one cluster. What it was asked for is taken back every time.
func TestAccDelegateToABadOperator(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	w.write(o.provider(), "talos_version = \"1.13.4\"\nnode_timeout = \"15m\""+o.publishTo()+delegating)

	asked := 0

	for _, test := range []struct {
		title  string
		habits operator.Habits
		says   []string
	}{
		{"deaf", operator.Habits{Deaf: true}, []string{"did not react within 5m", "direct"}},
		{"lying", operator.Habits{Lies: true}, []string{"says that it is done", "cp-0, worker-0"}},
		{"stalling", operator.Habits{Stalls: true}, []string{"no progress within node_timeout (15m"}},
		{"failing for ever", operator.Habits{FailOn: "worker-0"}, []string{"says that it failed", "Talos upgrade failed", "worker-0"}},
		{"failing once and waiting", operator.Habits{FailOn: "cp-0", StaysFailed: true}, []string{"says that it failed", "cp-0"}},
	} {
		stop := o.play(test.habits)
		refused := w.apply().mustFail(append(test.says, o.of.String(), "terraform apply")...)

		stop()

		targets := o.written("talos-target", true)[asked:]
		asked += len(targets)

		// One that says that it is done has taken it away itself.
		if want := []string{talosTarget, ""}; !slices.Equal(targets, want) && !(test.habits.Lies && slices.Equal(targets, want[:1])) {
			t.Errorf("%s: we wrote the target %q", test.title, targets)
		}

		o.wantAnnotations(map[string]string{"talos-target": "", keyHold: ""})
		t.Logf("%s: %s", test.title, refused)

		// What a person does who has looked after it, all but the status: a next run
		// must not take that for an answer.
		o.annotate(map[string]string{"talos-status": "failed"})

		if err := o.objects.WriteSecret(t.Context(), tenant, keeping, map[string]string{"talos_version": "v" + talosModern}); err != nil {
			t.Fatal(err)
		}
	}

	// It says "completed" all the time, spells versions in its own way, and leaves
	// the target when it is done; and it is done.
	o.annotate(map[string]string{"talos-status": "completed", "talos-message": "Talos upgrade completed: now running v1.13.0", "failed-nodes": ""})
	o.play(operator.Habits{WithV: true, StaleCompleted: true, Forgetful: true})
	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, nil)
	o.wantAnnotations(map[string]string{"talos-target": "", "talos-current": "v" + talosTarget})
	w.mustPlan()
}

// TestAccDelegateIsRefused: what speaks against an upgrade is found before an
// operator is asked, and so is an operator that would not do anything.
func TestAccDelegateIsRefused(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)
	o.play(operator.Habits{})

	w := newUnhurried(t)
	wanted := "talos_version = \"1.13.4\"" + delegating

	for _, test := range []struct {
		publish string
		stands  map[string]string
		says    []string
	}{
		{publishTo("", "KubernetesCluster", tenant, "nobody"), nil, []string{"KubernetesCluster tenant-a/nobody", "publish_to"}},
		{o.publishTo(), map[string]string{keyHold: "per@example.com"}, []string{"per@example.com", "do-not-reconcile-"}},
	} {
		o.annotate(test.stands)
		w.write(o.provider(), wanted+test.publish)
		w.plan().mustSucceed(2).mustWarn(test.says[0])
		w.apply().mustFail(test.says...)

		for key := range test.stands {
			o.wantAnnotations(map[string]string{key: test.stands[key]})
			o.annotate(map[string]string{key: ""})
		}
	}

	if err := o.World.SetEtcdAlarm("cp-0", "NOSPACE"); err != nil {
		t.Fatal(err)
	}

	w.plan().mustSucceed(2).mustWarn("NOSPACE")
	w.apply().mustFail("etcd-alarms", "NOSPACE")

	if err := o.World.SetEtcdAlarm("cp-0", ""); err != nil {
		t.Fatal(err)
	}

	o.asked("talos-target")
	o.untouched("cp-0", "worker-0")

	// Nobody is asked for two things at a time.
	o.cutOff(true)
	w.plan().mustSucceed(2).mustWarn(o.of.String())
	w.apply().mustFail(o.of.String(), "management")
	o.cutOff(false)
	o.asked("talos-target")
}

// declarative makes the objects of an operator whose objects say what is to run.
func (o *operated) declarative() {
	o.t.Helper()

	of, err := operator.SeedDeclarative(o.t.Context(), o.objects, o.World, operator.Seed{Namespace: tenant, Name: owned})
	if err != nil {
		o.t.Fatal(err)
	}

	o.of = of
}

// playDeclarative has such an operator work, until stop is called or the test ends.
func (o *operated) playDeclarative(habits operator.Habits) (stop func()) {
	o.t.Helper()

	stop = operator.PlayDeclarative(o.t.Context(), o.players(habits))
	o.t.Cleanup(stop)

	return stop
}

// wantSpec asserts what the objects of the control plane, the workers and the
// machines say is to run.
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

// TestAccDelegateToDeclarativeObjects has the operator of a TalosControlPlane
// upgrade both halves; before that it does not react, and then it fails.
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
	// What an object says cannot be taken back without taking nodes back.
	o.wantSpec(talosTarget, kubernetes)
	o.untouched("cp-0", "worker-0")

	// It comes back when it is asked again.
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
