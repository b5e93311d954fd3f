// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// TestAccDirectWithoutPermission: what may not be written is named, and stops
// nothing.
func TestAccDirectWithoutPermission(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	only := o.grant(func(role *rbacv1.Role) {
		// The object, and nothing else of the guide's rules.
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return !slices.Equal(rule.Resources, []string{"kubernetesclusters"})
		})
	})
	w.write(use(o.simulated)+manage(only), `talos_version = "1.13.4"`+o.publishTo())

	applied := w.apply().mustSucceed(0)
	applied.mustWarn("Secret")
	applied.mustWarn("talos_version")
	applied.mustWarn("status")
	applied.mustWarn("Events")

	o.wantUpgraded(talosTarget, once(1, 1))
	o.wantSecret(map[string]string{"talos_version": "v" + talosModern})
	o.wantAnnotations(map[string]string{"talos-status": "completed", "talos-current": talosTarget, keyHold: ""})
	o.wantHeld()
}

// TestAccDirectWithoutAnObject: there is nothing to publish to. A plan and an
// apply say what is missing, and the upgrade is made.
func TestAccDirectWithoutAnObject(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newUnhurried(t)

	for says, test := range map[string]struct{ provider, publish string }{
		"Cluster tenant-a/prod": {o.provider(), publishTo("example.com/v1", "Cluster", tenant, owned)},
		// Without a management cluster it is looked for in the upgraded one.
		"KubernetesCluster tenant-a/prod": {use(o.simulated), o.publishTo()},
	} {
		w.write(test.provider, `talos_version = "1.13.4"`+test.publish)
		w.plan().mustSucceed(2).mustWarn(says)
	}

	const missing = "KubernetesCluster tenant-a/nobody"

	w.write(o.provider(), `talos_version = "1.13.4"`+publishTo("", "KubernetesCluster", tenant, "nobody"))
	w.plan().mustSucceed(2).mustWarn(missing)

	applied := w.apply().mustSucceed(0)
	applied.mustWarn(missing)
	applied.mustNotWarn("Unable to write Kubernetes Events")
	o.wantUpgraded(talosTarget, once(1, 1))
	w.plan().mustSucceed(0)
}

// TestAccDirectAgainstAnotherWriter: an operator that respects no hold writes the
// same annotations at every pass. The upgrade is made, and who reads the warning
// knows which annotations not to trust.
func TestAccDirectAgainstAnotherWriter(t *testing.T) {
	full(t)

	// What stands is looked at every ten seconds, and those are not simulated.
	const slow = 24

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Speed: slow})
	o.keep(nil)
	stop := o.play(operator.Habits{Fights: true})

	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, slow))
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())

	applied := w.apply().mustSucceed(0)
	applied.mustWarn(keyPrefix + "talos-status")
	applied.mustWarn("Somebody else")
	stop()

	o.wantUpgraded(talosTarget, once(1, 1))
	o.wantAnnotations(map[string]string{"talos-current": talosTarget, keyHold: ""})

	// The first of ours answers none of theirs.
	if mine, theirs := len(o.written("talos-status", true)), len(o.written("talos-status", false)); mine > theirs+1 {
		t.Errorf("we wrote the status %d times, and the other one only %d times: that is a fight", mine, theirs)
	}
}

// TestAccDirectWhileTheManagementClusterIsAway: an upgrade does not wait for it. What
// it could not be told the next apply makes true.
func TestAccDirectWhileTheManagementClusterIsAway(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())

	o.duringApply(w, installed, func() { o.cutOff(true) }).mustSucceed(0).mustWarn("do-not-reconcile")
	o.cutOff(false)
	o.wantUpgraded(talosTarget, once(1, 1))

	if hold := o.annotation(keyHold); !strings.HasPrefix(hold, "talosupgrade-") {
		t.Errorf("the hold is %q", hold)
	}

	// Nothing is to be rolled any more, and the operator is still held.
	left := w.mustPlan("update")
	left.mustWarn(o.of.String() + " is still held by talosupgrade-")
	left.mustNotWarn("Rolling upgrade")
	w.apply().mustSucceed(0)
	o.wantAnnotations(map[string]string{"talos-current": talosTarget, "talos-status": "completed", keyHold: ""})
	o.wantSecret(map[string]string{"talos_version": "v" + talosTarget})
	o.times(once(1, 1))
	w.mustPlan()
}

// cutOff takes the management cluster away from everybody but the test, or gives
// it back.
func (o *operated) cutOff(down bool) {
	o.t.Helper()

	if err := o.ManagementDown(down); err != nil {
		o.t.Fatal(err)
	}
}

// duringApply does something once an event of an apply has happened, and returns
// what the apply came to.
func (o *operated) duringApply(w *workspace, match func(history.Event) bool, do func()) result {
	o.t.Helper()
	o.forget()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.t.Context()), runPatience)
	defer cancel()

	run := w.prepare(ctx, "apply", "-json", "-auto-approve", "-input=false")

	var output bytes.Buffer

	run.Stdout, run.Stderr = &output, &output

	if err := run.Start(); err != nil {
		o.t.Fatal(err)
	}

	ended := make(chan error, 1)

	go func() { ended <- run.Wait() }()

	o.await("the apply getting there", match)
	do()

	err := <-ended

	return w.read(output.Bytes(), err)
}
