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

// TestAccDirectWithoutPermission: what may not be written has to be reported, and must not stop the upgrade.
func TestAccDirectWithoutPermission(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	only := o.grant(func(role *rbacv1.Role) {
		// Only the rule for the object, without the guide's other rules.
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

// TestAccDirectWithoutAnObject: the object to publish to is missing. A plan and an apply have to say so, and the
// apply has to upgrade the cluster.
func TestAccDirectWithoutAnObject(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newUnhurried(t)

	for says, test := range map[string]struct{ provider, publish string }{
		"Cluster tenant-a/prod": {o.provider(), publishTo("example.com/v1", "Cluster", tenant, owned)},
		// Without a management cluster it is searched in the upgraded one.
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

// TestAccDirectAgainstAnotherWriter: an operator that does not respect the hold writes the same annotations again and
// again. The apply has to upgrade the cluster, and to warn which annotations not to trust.
func TestAccDirectAgainstAnotherWriter(t *testing.T) {
	full(t)

	// The annotations are read every ten seconds of real time.
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

	// Our first write does not answer one of theirs.
	if mine, theirs := len(o.written("talos-status", true)), len(o.written("talos-status", false)); mine > theirs+1 {
		t.Errorf("we wrote the status %d times, and the other one only %d times: that is a fight", mine, theirs)
	}
}

// TestAccDirectWhileTheManagementClusterIsAway: an upgrade does not wait for the management cluster. The next apply
// has to write what could not be written.
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

	// No node has to be upgraded any more, and the operator is still held.
	left := w.mustPlan("update")
	left.mustWarn(o.of.String() + " is still held by talosupgrade-")
	left.mustNotWarn("Rolling upgrade")
	w.apply().mustSucceed(0)
	o.wantAnnotations(map[string]string{"talos-current": talosTarget, "talos-status": "completed", keyHold: ""})
	o.wantSecret(map[string]string{"talos_version": "v" + talosTarget})
	o.times(once(1, 1))
	w.mustPlan()
}

// cutOff makes the management cluster unreachable for everybody except the test, or reachable again.
func (o *operated) cutOff(down bool) {
	o.t.Helper()

	if err := o.ManagementDown(down); err != nil {
		o.t.Fatal(err)
	}
}

// duringApply calls do once an event of an apply matches, and returns the result of the apply.
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
