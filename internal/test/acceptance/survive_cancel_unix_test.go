// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// interruption is a Ctrl-C at some moment of an apply.
type interruption struct {
	match func(history.Event) bool
	says  []string
	// cordoned are the nodes whose cordon stays: they may start the new system
	// with their next boot.
	cordoned []string
	// recorded is the phase in which the journal leaves worker-0.
	recorded string
	// hold is a fault that keeps the run where it is until the Ctrl-C has gone through
	// the command line, which takes it longer than the run needs to go on.
	hold string
}

func interruptions() map[string]interruption {
	at := func(kind history.Kind, key, value string) func(history.Event) bool {
		return func(e history.Event) bool {
			return e.Kind == kind && e.Node == "worker-0" && (key == "" || e.Detail[key] == value)
		}
	}

	return map[string]interruption{
		"pulling":  {match: at(history.KindPull, "", "")},
		"cordoned": {match: at(history.KindCordon, "unschedulable", "true"), says: []string{"worker-0"}},
		"installed": {
			match: at(history.KindJournal, "phase", "installed"), says: []string{"worker-0", "stays cordoned"},
			cordoned: []string{"worker-0"}, recorded: "installed", hold: "faults: [{node: cp-0, step: etcd, effect: silent}]",
		},
		"going down": {
			match: at(history.KindDown, "", ""), says: []string{"worker-0", "its cordon stays"},
			cordoned: []string{"worker-0"}, recorded: "rebooting",
		},
	}
}

// TestAccCancelLeavesOnlyWhatHasToStay: the lock is given back, what was going on
// is recorded, and of the cordons only that of a node that may start the new
// system is left. The state wants what it wanted, and the next apply goes on.
func TestAccCancelLeavesOnlyWhatHasToStay(t *testing.T) {
	full(t)

	// The provider has 15 seconds of its own clock to stand down, in which it has
	// to get the processor.
	const (
		slow  = 20
		limit = 15 * time.Second
	)

	for title, moment := range interruptions() {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 2, Speed: slow})
			w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, slow))

			w.write(use(s), `talos_version = "1.13.0"`+guarded)
			w.apply().mustSucceed(0)

			w.write(use(s), `talos_version = "1.13.4"`+guarded)
			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await(title, moment.match)
			s.faults(moment.hold)

			began := time.Now()

			run.signal(syscall.SIGINT)
			run.wait().interrupted().mustFail(append(moment.says, "cancelled", "Run terraform apply again")...)

			s.faults("")

			if took := time.Since(began); took > limit {
				t.Errorf("it took %s to stop", took)
			}

			if !s.released() {
				t.Error("the lease was not given back")
			}

			s.wantCordoned(moment.cordoned...)

			phase := ""
			if phases := s.phases("worker-0"); len(phases) > 0 {
				phase = phases[len(phases)-1]
			}

			if phase != moment.recorded {
				t.Errorf("the journal has worker-0 as %q, want %q", phase, moment.recorded)
			}

			if wanted := w.attributes()["talos_version"]; wanted != talosModern {
				t.Errorf("the state wants Talos %v", wanted)
			}

			w.mustPlan("update")
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, nil)
			s.times(once(1, 1))
			s.nothingLeft()
			w.mustPlan()
		})
	}
}
