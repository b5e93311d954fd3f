// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// providersGone waits until no provider of the workspace is left.
func (r *running) providersGone() {
	r.w.t.Helper()

	timeout := time.After(awaitPatience)
	looks := time.NewTicker(100 * time.Millisecond)

	defer looks.Stop()

	for {
		alive := 0

		entries, err := os.ReadDir(r.w.pids)
		if err != nil {
			r.w.t.Fatal(err)
		}

		for _, entry := range entries {
			pid, err := strconv.Atoi(entry.Name())
			if err != nil {
				r.w.t.Fatal(err)
			}

			if syscall.Kill(pid, 0) == nil {
				alive++
			}
		}

		if alive == 0 {
			return
		}

		select {
		case <-looks.C:
		case <-timeout:
			r.w.t.Fatalf("%d providers are left after %s", alive, awaitPatience)
		}
	}
}

// cancelSpeed is how many simulated seconds pass in a real second. The provider has 15 seconds of its own clock to
// stop, in which it has to be scheduled.
const cancelSpeed = 60

// TestAccTerminated: timeout, systemd and many CI systems send SIGTERM to the whole process group, including the
// provider. That has to be a cancel like a Ctrl-C.
func TestAccTerminated(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 2, Speed: cancelSpeed})
	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, cancelSpeed))
	w.write(use(s), `talos_version = "1.13.4"`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-0 going down", turn(history.KindDown, "", ""))
	run.signal(syscall.SIGTERM)
	run.wait().interrupted().mustFail("worker-0", "it stays cordoned until it is back", "cancelled", "Run terraform apply again")
	run.providersGone()

	if !s.released() {
		t.Error("the lease was not given back")
	}

	s.wantCordoned("worker-0")

	w.apply().mustSucceed(0).mustNotWarn("Taking over the lease of")
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 1))
	s.nothingLeft()
}

// TestAccOrphanedProviderEnds kills only the command line, so the provider gets no signal. It has to stop as if it
// had been cancelled, remove its cordon and release the lease, even if nobody reads its log any more. A budget keeps
// the drain from ending: a node that is being installed when the provider stops would stay cordoned.
func TestAccOrphanedProviderEnds(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2, Speed: cancelSpeed})
	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, cancelSpeed), "TF_LOG_PROVIDER=TRACE", "TF_LOG_PATH="+t.TempDir()+"/log")
	w.write(use(s), `talos_version = "1.13.4"`+undrained)
	s.faults(`faults: [{node: worker-0, step: drain, effect: blocked-by-budget}]`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the cordon", cordoned)

	if err := run.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	if killed := run.wait(); killed.exit == 0 {
		t.Fatal("the run came to its end before it was killed")
	}

	run.providersGone()

	if !s.released() {
		t.Error("the lease was not given back")
	}

	s.wantCordoned()
	s.faults("")
	s.settle()

	w.apply("-lock=false").mustSucceed(0).mustNotWarn("Taking over the lease of")
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 2))
}
