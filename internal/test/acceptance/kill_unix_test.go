// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// running is a CLI that has not come to its end, in a process group of its own.
type running struct {
	w      *workspace
	cmd    *exec.Cmd
	cancel context.CancelFunc
	output bytes.Buffer
}

// background starts the CLI. A run that is not waited for is killed with the
// test.
func (w *workspace) background(args ...string) *running {
	w.t.Helper()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), runPatience)
	r := &running{w: w, cmd: w.prepare(ctx, args...), cancel: cancel}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Cancel = func() error { return syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output

	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(cancel)

	return r
}

// signal sends a signal to the CLI and to the provider, as a terminal does.
func (r *running) signal(signal syscall.Signal) {
	r.w.t.Helper()

	if err := syscall.Kill(-r.cmd.Process.Pid, signal); err != nil {
		r.w.t.Fatal(err)
	}
}

// killProviders kills every provider that runs in the workspace, and nothing
// else.
func (r *running) killProviders() {
	r.w.t.Helper()

	entries, err := os.ReadDir(r.w.pids)
	if err != nil {
		r.w.t.Fatal(err)
	}

	killed := 0

	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			r.w.t.Fatal(err)
		}

		// Providers of earlier phases of the run have ended.
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}

	if killed == 0 {
		r.w.t.Fatal("no provider is running")
	}
}

// wait waits for the end of the run.
func (r *running) wait() result {
	r.w.t.Helper()

	err := r.cmd.Wait()
	r.cancel()

	return r.w.read(r.output.Bytes(), err)
}

// interrupted drops what the CLI itself says about an interrupt.
func (r result) interrupted() result {
	r.errors = slices.DeleteFunc(r.errors, func(d diagnostic) bool { return d.Summary == "execution halted" })

	return r
}

// moments at which a run is cut off, in the turn of worker-0 or of cp-1.
func moments() map[string]struct {
	from  string
	match func(history.Event) bool
} {
	return map[string]struct {
		from  string
		match func(history.Event) bool
	}{
		"cordoned": {talosModern, func(e history.Event) bool {
			return e.Kind == history.KindCordon && e.Node == "worker-0" && e.Detail["unschedulable"] == "true"
		}},
		"intent written": {talosModern, func(e history.Event) bool {
			return e.Kind == history.KindJournal && e.Node == "worker-0" && e.Detail["phase"] == "intent"
		}},
		"installed":  {talosModern, func(e history.Event) bool { return e.Kind == history.KindInstall && e.Node == "worker-0" }},
		"going down": {talosModern, func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" }},
		"booted":     {talosModern, func(e history.Event) bool { return e.Kind == history.KindBoot && e.Node == "worker-0" }},
		"legacy upgrade accepted": {talosLegacy, func(e history.Event) bool {
			return e.Kind == history.KindStage && e.Node == "worker-0" && e.Detail["to"] == "upgrading"
		}},
		"control plane down": {talosLegacy, func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "cp-1" }},
	}
}

// TestAccKilled kills the command line and the provider at the moments that differ for
// them; every moment there is is swept in virtual time.
func TestAccKilled(t *testing.T) {
	full(t)

	for _, title := range []string{"intent written", "installed", "legacy upgrade accepted", "control plane down"} {
		moment := moments()[title]

		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 3, Workers: 1, Talos: moment.from, Pods: 1})
			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`)

			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await(title, moment.match)
			run.signal(syscall.SIGKILL)

			if killed := run.wait(); killed.exit == 0 {
				t.Fatal("the run came to its end before it was killed")
			}

			w.apply().mustSucceed(0)
			// A node whose install was in doubt reboots once more, but is never
			// installed over.
			s.wantUpgraded(talosTarget, nil)
			s.times(once(3, 1))
			w.plan().mustSucceed(0)
		})
	}
}

func TestAccProviderKilled(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Pods: 2})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)

	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the install", moments()["installed"].match)
	run.killProviders()

	if killed := run.wait(); killed.exit == 0 {
		t.Fatal("the apply succeeded without its provider")
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
}

// TestAccDestroyKeepsAnUnfinishedJournal is about a destroy after a run that
// was cut off: what it knows about an armed node must not get lost.
func TestAccDestroyKeepsAnUnfinishedJournal(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.0"`)
	w.apply().mustSucceed(0)

	w.write(use(s), `talos_version = "1.13.4"`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the install", moments()["installed"].match)
	run.signal(syscall.SIGKILL)
	run.wait()

	w.destroy().mustSucceed(0).mustWarn("journal")

	if w.attributes() != nil {
		t.Error("the resource is still in state")
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 1))
}

func TestAccInterrupted(t *testing.T) {
	full(t)

	for _, title := range []string{"cordoned", "installed", "legacy upgrade accepted"} {
		moment := moments()[title]

		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: moment.from, Pods: 2})
			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`)

			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await(title, moment.match)
			run.signal(syscall.SIGINT)
			run.wait().interrupted().mustFail("worker-0", "Run terraform apply again")

			// Whoever was interrupted leaves no lock behind: another one can
			// start at once, and it finishes the job.
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, nil)
			s.times(once(1, 2))
		})
	}
}

func TestAccSecondWriterIsRefused(t *testing.T) {
	full(t)

	// A lease lives for 30 seconds. Both sides must get the processor often
	// enough to see that it is alive, so this one runs slowly.
	const slow = 20

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Speed: slow})
	pace := fmt.Sprintf("%s=%d", serveVariable, slow)
	first, second := newWorkspace(t, pace), newWorkspace(t, pace)
	first.write(use(s), `talos_version = "1.13.4"`)
	second.write(use(s), `talos_version = "1.13.4"`)

	s.forget()

	run := first.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the cordon", moments()["cordoned"].match)
	second.apply().mustFail("terraform resource talosupgrade_cluster")

	run.wait().mustSucceed(0)
	second.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}
