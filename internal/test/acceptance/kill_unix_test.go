// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// running is a CLI that has not ended yet, in a process group of its own.
type running struct {
	w      *workspace
	cmd    *exec.Cmd
	cancel context.CancelFunc
	output bytes.Buffer
}

// background starts the CLI. A run that the test does not wait for is killed when the test ends.
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

		// Providers of earlier phases of the run have already ended.
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

// kill kills the CLI and the provider, and waits until they have ended.
func (r *running) kill() {
	r.w.t.Helper()
	r.signal(syscall.SIGKILL)

	if killed := r.wait(); killed.exit == 0 {
		r.w.t.Fatal("the run came to its end before it was killed")
	}
}

// interrupted drops the CLI's own diagnostic about an interrupt.
func (r result) interrupted() result {
	r.errors = slices.DeleteFunc(r.errors, func(d diagnostic) bool { return d.Summary == "execution halted" })

	return r
}

// TestAccKilled kills the command line and the provider in either half. All other moments are swept in virtual time.
func TestAccKilled(t *testing.T) {
	fullOverReal(t)

	for title, half := range map[string]struct {
		from, wanted string
		match        func(history.Event) bool
		upgraded     func(*simulated)
	}{
		"Talos": {
			talosLegacy, `talos_version = "1.13.4"`, turn(history.KindStage, "to", "upgrading"),
			// A node on which it is not certain whether the install ended reboots once more, but is never installed
			// again without a boot.
			func(s *simulated) { s.wantUpgraded(talosTarget, nil); s.times(once(1, 1)) },
		},
		"Kubernetes": {
			talosTarget, `kubernetes_version = "` + kubernetesTarget + `"`,
			func(e history.Event) bool {
				return turn(history.KindComponent, "component", "kubelet")(e) && e.Detail["state"] == "stopped"
			},
			func(s *simulated) { s.wantKubernetes(kubernetesTarget); s.notRebooted() },
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: half.from, Pods: 1})
			w := newWorkspace(t)
			w.write(use(s), half.wanted)

			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await("the moment in "+title, half.match)
			run.kill()

			w.apply().mustSucceed(0)
			half.upgraded(s)
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
	s.await("the install", installed)
	run.killProviders()

	if killed := run.wait(); killed.exit == 0 {
		t.Fatal("the apply succeeded without its provider")
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 2))
}

// TestAccDestroyKeepsAnUnfinishedJournal destroys the resource after a run that was cut off: what the journal has
// about an armed node must not be lost.
func TestAccDestroyKeepsAnUnfinishedJournal(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.0"`)
	w.apply().mustSucceed(0)

	w.write(use(s), `talos_version = "1.13.4"`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the install", installed)
	run.kill()

	w.destroy().mustSucceed(0).mustWarn("journal")

	if w.attributes() != nil {
		t.Error("the resource is still in state")
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 1))
}
