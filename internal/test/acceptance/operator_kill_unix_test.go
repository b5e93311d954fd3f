// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// TestAccDirectKilled: after kill -9 the operator stays held, and the next apply
// takes over and frees it. Nothing else than that can finish what was begun.
func TestAccDirectKilled(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	o.keep(nil)
	o.play(operator.Habits{Undoes: true})

	w := newUnhurried(t)
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())
	o.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	o.await("the install", installed)
	run.kill()

	left := o.annotation(keyHold)
	if !strings.HasPrefix(left, "talosupgrade-") {
		t.Errorf("the hold of the killed run is %q", left)
	}

	o.wantAnnotations(map[string]string{"talos-status": "in-progress", "talos-target": ""})

	// An operator cannot finish what is half done.
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo()+delegating)
	w.apply().mustFail("worker-0", `mode = "direct"`)
	o.wantAnnotations(map[string]string{keyHold: left, "talos-target": ""})

	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())
	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, nil)
	o.times(once(1, 2))
	o.wantHeld()
	o.wantIdleOperator()
	o.wantAnnotations(map[string]string{"talos-status": "completed", "talos-current": talosTarget, "talos-progress": "3/3"})
	o.wantSecret(map[string]string{"talos_version": "v" + talosTarget})
	o.nothingLeft()
	w.mustPlan()
}

// TestAccDirectKilledAtTheEnd: every node is done, and the run dies before it can
// free the operator. The next apply has nothing to roll and does that.
func TestAccDirectKilledAtTheEnd(t *testing.T) {
	full(t)

	o := startOperated(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	o.keep(nil)

	w := newUnhurried(t)
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())
	o.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	o.await("the uncordon", func(e history.Event) bool {
		return e.Kind == history.KindCordon && e.Node == "cp-0" && e.Detail["unschedulable"] == "false"
	})
	run.kill()

	w.apply().mustSucceed(0).mustNotWarn(o.of.String())
	o.wantUpgraded(talosTarget, once(1, 0))
	o.wantAnnotations(map[string]string{"talos-status": "completed", "talos-current": talosTarget, keyHold: ""})
	o.wantSecret(map[string]string{"talos_version": "v" + talosTarget})
	o.nothingLeft()
}

// TestAccDirectInterrupted: Ctrl-C frees the operator, which then finds what it
// remembers.
func TestAccDirectInterrupted(t *testing.T) {
	full(t)

	// A cancelled run has seconds to end the hold, and those are simulated.
	const slow = 15

	o := startOperated(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Speed: slow})
	o.keep(nil)
	o.play(operator.Habits{})

	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, slow))
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo())
	o.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	o.await("worker-1 being cordoned", func(e history.Event) bool {
		return e.Kind == history.KindCordon && e.Node == "worker-1" && e.Detail["unschedulable"] == "true"
	})
	run.signal(syscall.SIGINT)
	run.wait().interrupted().mustFail("worker-1", "cancelled")

	if !o.released() {
		t.Error("the lease was not given back")
	}

	o.wantAnnotations(map[string]string{keyHold: "", "talos-target": "", "talos-progress": "1/3", "talos-current": talosModern})
	o.wantHeld()

	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, once(1, 2))
	o.wantIdleOperator()
	o.wantAnnotations(map[string]string{keyHold: "", "talos-status": "completed"})
}

// TestAccDelegateKilled: the operator goes on without us, and the next apply
// follows it to the end.
func TestAccDelegateKilled(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 3, Workers: 1, Talos: talosModern})
	o.keep(nil)
	o.play(operator.Habits{})

	w := newUnhurried(t)
	w.write(o.provider(), both(talosTarget, kubernetesTarget)+o.publishTo()+delegating)
	o.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	o.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })
	run.kill()

	w.apply().mustSucceed(0)
	o.wantUpgradedTo(talosTarget, kubernetesTarget)
	o.wantDone(talosTarget, kubernetesTarget, nil)
	o.asked("talos-target", talosTarget)
	o.asked("kubernetes-target", kubernetesTarget)
	w.mustPlan()
}

// TestAccDelegateInterrupted: Ctrl-C takes back what the operator was asked for,
// and says what it may still do.
func TestAccDelegateInterrupted(t *testing.T) {
	full(t)

	o := startDelegated(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	o.keep(nil)
	o.play(operator.Habits{})

	w := newUnhurried(t)
	w.write(o.provider(), `talos_version = "1.13.4"`+o.publishTo()+delegating)
	o.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	o.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })
	run.signal(syscall.SIGINT)
	run.wait().interrupted().mustFail("cancelled", "taken back")
	o.asked("talos-target", talosTarget, "")

	if !o.released() {
		t.Error("the lease was not given back")
	}

	o.settle()
	w.apply().mustSucceed(0)
	o.wantUpgraded(talosTarget, nil)
	o.wantAnnotations(map[string]string{"talos-target": "", "talos-current": talosTarget})
}
