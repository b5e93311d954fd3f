// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"syscall"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// free frees the lock as the documentation says.
func (s *simulated) free() {
	s.t.Helper()

	if err := s.someone().CoordinationV1().Leases("kube-system").Delete(s.t.Context(), "talosupgrade", metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestAccFrozenHolderChangesNothingMore: a run is stopped for longer than its lease lasts, as on a machine that
// sleeps. Another one takes over, and the first has to find that out before it changes anything.
func TestAccFrozenHolderChangesNothingMore(t *testing.T) {
	full(t)

	// No run has to see that another one is alive here, but the successor has to reach its cordon before the first
	// run notices anything.
	const slow = 60

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern, Speed: slow})
	pace := fmt.Sprintf("%s=%d", serveVariable, slow)
	first, second := newWorkspace(t, pace), newWorkspace(t, pace)
	first.write(use(s), `talos_version = "1.13.4"`)
	second.write(use(s), `talos_version = "1.13.4"`)

	s.forget()

	frozen := first.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the install", installed)
	frozen.signal(syscall.SIGSTOP)

	// If the test ends early, the stopped process has to be continued.
	t.Cleanup(func() { _ = syscall.Kill(-frozen.cmd.Process.Pid, syscall.SIGCONT) })

	s.forget()

	successor := second.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-1 being cordoned", func(e history.Event) bool {
		return e.Kind == history.KindCordon && e.Node == "worker-1" && e.Detail["unschedulable"] == "true"
	})

	frozen.signal(syscall.SIGCONT)
	frozen.wait().mustFail("held by", "terraform resource talosupgrade_cluster", "worker-0")

	successor.wait().mustSucceed(0).mustWarn("Taking over the lease of")
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 2))
	second.plan().mustSucceed(0)
}

// TestAccLeaseIsTakenAwayFromARun: somebody deletes the lease of a live run. It must not change anything after that,
// and the next run has to continue.
func TestAccLeaseIsTakenAwayFromARun(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 2, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("worker-0 going down", func(e history.Event) bool { return e.Kind == history.KindDown && e.Node == "worker-0" })
	s.free()
	run.wait().mustFail("worker-0", "lease")
	s.untouched("cp-0", "worker-1")

	if cordons := s.cordons(); cordons != 1 {
		t.Errorf("%d nodes were cordoned, want one", cordons)
	}

	w.apply().mustSucceed(0).mustNotWarn("Taking over the lease")
	s.wantUpgraded(talosTarget, once(1, 2))
	w.plan().mustSucceed(0)
}

// TestAccLeaseOfADeadRunIsFreed: somebody deletes the lease of a dead run instead of waiting until it expires.
func TestAccLeaseOfADeadRunIsFreed(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the install", installed)
	run.kill()

	w.plan().mustSucceed(2).mustWarn("terraform resource talosupgrade_cluster")
	s.free()
	w.plan().mustSucceed(2).mustNotWarn("terraform resource talosupgrade_cluster")

	w.apply().mustSucceed(0).mustNotWarn("Taking over the lease")
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 1))
}

// TestAccLeaseOfSomebodyElse: a person has written a lease that lacks fields.
func TestAccLeaseOfSomebodyElse(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})

	person := "somebody on call"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "talosupgrade"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &person}}

	if _, err := s.someone().CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`)
	w.apply().mustSucceed(0).mustWarn("Taking over the lease of " + person)
	s.wantUpgraded(talosTarget, once(1, 0))
}
