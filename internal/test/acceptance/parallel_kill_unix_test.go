// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccKilledInTheMiddleOfSeveralTurns cuts a run off while two workers are
// in their turns, of which one at least is armed or on its way down.
func TestAccKilledInTheMiddleOfSeveralTurns(t *testing.T) {
	full(t)

	for title, moment := range map[string]struct {
		from string
		kind history.Kind
	}{
		"installed, modern":  {talosModern, history.KindInstall},
		"going down, modern": {talosModern, history.KindDown},
		"going down, legacy": {talosLegacy, history.KindDown},
	} {
		t.Run(title, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 1, Workers: 4, Talos: moment.from, Pods: 4})
			s.policy = []checker.Option{checker.MaxUnavailable(2)}

			w := newWorkspace(t)
			w.write(use(s), "talos_version = \"1.13.4\"\nmax_unavailable = \"2\"")
			s.forget()

			seen := newCrowd()
			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await(title+" while two workers are in their turns", func(event history.Event) bool {
				seen.follow(event)

				return event.Kind == moment.kind && len(seen.turns) > 1
			})
			run.signal(syscall.SIGKILL)

			if killed := run.wait(); killed.exit == 0 {
				t.Fatal("the run came to its end before it was killed")
			}

			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, nil)
			s.times(once(1, 4))
			w.plan().mustSucceed(0)
		})
	}
}
