// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"slices"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// aWhile is so many renewals of the lease that a run which does not wait would
// have pulled its images and cordoned a node meanwhile.
const aWhile = 12

// renewals waits for so many renewals of the lease.
func (s *simulated) renewals(count int) {
	s.t.Helper()

	for range count {
		s.await("a renewal of the lease", func(e history.Event) bool {
			return e.Kind == history.KindLease && e.Detail["action"] == "renew"
		})
	}
}

// TestAccGateIsWaitedForBeforeTheRoll opens a gate under a run that waits for it.
func TestAccGateIsWaitedForBeforeTheRoll(t *testing.T) {
	smoke(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.allow("no")

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+switched("3h"))
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.renewals(aWhile)
	s.onlyLocked()

	s.allow("yes")
	run.wait().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}

// TestAccWaitingForAGateCanBeInterrupted: nothing has been touched then, and the
// lock is free.
func TestAccWaitingForAGateCanBeInterrupted(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Talos: talosModern})
	s.allow("no")

	w := newWorkspace(t)
	w.write(use(s), `talos_version = "1.13.4"`+switched("3h"))
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.renewals(aWhile)
	run.signal(syscall.SIGINT)
	run.wait().interrupted().mustFail("gates", "no node was disturbed")
	s.onlyLocked()

	if !slices.ContainsFunc(s.changes(), func(e history.Event) bool { return e.Detail["action"] == "release" }) {
		t.Error("the lease was not released")
	}
}

// TestAccGateOfANode is about a gate that does not hold for one node, after it
// held for another: the run stops between the two, and the next one continues.
func TestAccGateOfANode(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern})
	s.allow("worker-0")

	const gates = `talos_version = "1.13.4"
gates = [{
  api_version = "v1"
  kind        = "Node"
  expr        = "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"
}, {
  api_version = "v1"
  kind        = "ConfigMap"
  namespace   = "default"
  name        = "upgrades"
  expr        = "object.data.allowed.contains(node)"
  timeout     = "1m"
}]`

	w := newWorkspace(t)
	w.write(use(s), gates)
	w.plan().mustSucceed(2).mustNotWarn("gates")

	w.apply().mustFail("cp-0", "gates[1]", "ConfigMap default/upgrades", "object.data.allowed.contains(node)", "for 1m")
	s.untouched("cp-0")
	s.times(map[string]int{"worker-0": 1})

	nodes := s.verdict().Nodes
	if nodes["cp-0"].Cordoned || nodes["worker-0"].Cordoned {
		t.Errorf("a node was left cordoned: %+v", nodes)
	}

	s.allow("worker-0, cp-0")
	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))
}

// TestAccGateIsWaitedForBeforeAComponent closes the gate in the middle of an
// upgrade of Kubernetes.
func TestAccGateIsWaitedForBeforeAComponent(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosTarget})
	s.allow("yes")

	w := newWorkspace(t)
	w.write(use(s), `kubernetes_version = "`+kubernetesTarget+`"`+switched("12h"))
	s.forget()

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("the scheduler being configured", func(e history.Event) bool {
		return e.Kind == history.KindConfig && e.Detail["changed"] == "kube-scheduler"
	})
	s.allow("no")
	s.renewals(aWhile)

	// The scheduler is finished, and nothing else begins.
	before := s.configured()
	s.renewals(aWhile)

	if after := s.configured(); len(after) != len(before) || len(after) < 3 || len(after) > 4 {
		t.Errorf("configured while the gate did not hold: %v, before that %v", after, before)
	}

	s.allow("yes")
	run.wait().mustSucceed(0)
	s.wantKubernetes(kubernetesTarget)
	s.notRebooted()
	w.plan().mustSucceed(0)
}
