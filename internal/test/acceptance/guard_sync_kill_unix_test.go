// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccInstallImageFollowsAfterAKill: what a run that died owes a node that runs
// the target already is made up for.
func TestAccInstallImageFollowsAfterAKill(t *testing.T) {
	full(t)

	for title, match := range map[string]func(history.Event) bool{
		"booted": moments()["booted"].match,
		"named": func(e history.Event) bool {
			return e.Kind == history.KindConfig && e.Detail["changed"] == "installer" && e.Node == "worker-0"
		},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
			before := s.configs()

			w := newWorkspace(t)
			w.write(use(s), "talos_version = \"1.13.4\"\nsync_install_image = true")
			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await(title, match)
			run.signal(syscall.SIGKILL)

			if killed := run.wait(); killed.exit == 0 {
				t.Fatal("the run came to its end before it was killed")
			}

			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, once(1, 1))
			s.wantNamed(before, talosModern, installer+talosTarget, "cp-0", "worker-0")

			if changes := s.configured(); len(changes) != 2 {
				t.Errorf("the configurations were changed %v, want each once", changes)
			}

			w.plan().mustSucceed(0)
		})
	}
}
