// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"strings"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/operator"
)

// TestAccDirectKilled: after kill -9 the operator stays held, and the next apply has to take over and release it.
// Nothing else can finish what was begun.
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

	// An operator cannot finish an upgrade that we began.
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

// TestAccDelegateInterrupted: on a Ctrl-C the run has to withdraw what the operator was asked for, and to say what it
// may still do.
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
