// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// forgetJournal deletes the journal, as somebody does who thinks that it is left over.
func (s *simulated) forgetJournal() {
	s.t.Helper()

	if err := s.someone().CoreV1().ConfigMaps("kube-system").Delete(s.t.Context(), "talosupgrade-journal", metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestAccJournalIsDeletedInTheMiddle deletes the journal of a run that goes on, while a node reboots.
func TestAccJournalIsDeletedInTheMiddle(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 3, Workers: 2, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })
	s.forgetJournal()

	run.wait().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(3, 2))
	s.nothingLeft()
	w.plan().mustSucceed(0)
}

// TestAccLockAndJournalAreDeletedAfterAKill: the next apply has only the nodes to go by. Nothing on a node shows that
// something was installed, so in that case a person reboots it first, as the documentation says.
func TestAccLockAndJournalAreDeletedAfterAKill(t *testing.T) {
	full(t)

	for at, test := range map[string]struct {
		when    func(history.Event) bool
		reboots bool
	}{
		"while it installs": {when: installed, reboots: true},
		"while it reboots":  {when: func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" }},
	} {
		t.Run(at, func(t *testing.T) {
			s := start(t, sim.Options{ControlPlanes: 3, Workers: 2, Talos: talosModern})
			w := newWorkspace(t)
			w.write(use(s), `talos_version = "1.13.4"`)
			s.forget()

			run := w.background("apply", "-json", "-auto-approve", "-input=false")
			s.await("worker-0 "+at, test.when)
			run.kill()
			s.free()
			s.forgetJournal()

			if test.reboots {
				s.forget()

				if err := s.World.RebootByHand("worker-0", model.RebootDefault); err != nil {
					t.Fatal(err)
				}

				s.awaitReady("worker-0")
			}

			s.settle()
			w.plan().mustSucceed(2).mustWarn("worker-0 (unfinished)")
			w.apply().mustSucceed(0)
			s.wantUpgraded(talosTarget, nil)
			s.times(once(3, 2))
			s.nothingLeft()
			w.plan().mustSucceed(0)
		})
	}
}
