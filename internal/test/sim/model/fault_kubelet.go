// SPDX-License-Identifier: MPL-2.0

package model

import "time"

// ailment is why a kubelet that runs reports that its node is not ready. The
// zero value is a healthy one.
type ailment struct {
	step   Step
	effect Effect
	// end is zero for one that lasts until the script is replaced.
	end time.Time
}

func (a ailment) forGood() bool { return a.effect != "" && a.end.IsZero() }

// strikeKubelets lets the script have its say about the nodes that are ready.
// The lock is held.
func (w *World) strikeKubelets() {
	for _, n := range w.nodes {
		if !n.kubelet.Ready {
			continue
		}

		if fault, found := w.takeFault(n.name, StepKubelet); found {
			w.ail(n, fault)
		}
	}
}

// ail lets the kubelet report that the node is not ready, until the fault ends
// or the machine boots.
func (w *World) ail(n *node, fault Fault) {
	n.kubelet.Ready = false
	n.ailment = ailment{step: fault.Step, effect: fault.Effect}
	w.note(n, KubeletName, "node %q is not ready: %s", n.name,
		fault.text("container runtime network not ready: cni plugin not initialized"))
	w.touch(n)

	if fault.For == 0 {
		return
	}

	n.ailment.end = w.clock.Now().Add(fault.For)
	struck := n.ailment

	w.later(n.life, fault.For, func() {
		if n.ailment == struck {
			w.heal(n)
		}
	})
}

// heal ends what ails a kubelet.
func (w *World) heal(n *node) {
	n.ailment = ailment{}

	// A machine that is on its way down has stopped its kubelet.
	if n.kubelet.Running {
		w.becomeReady(n)
	}
}

// confirmSoon lets a system that was installed confirm itself, a moment after
// the last thing that it waited for.
func (w *World) confirmSoon(n *node) {
	const confirm = 613 * time.Millisecond

	if n.tag < 0 {
		return
	}

	w.later(n.booting, confirm, func() {
		if n.stage == StageRunning && len(n.unmet()) == 0 {
			n.tag = -1
			w.touch(n)
		}
	})
}

// becomeReady lets the kubelet report that the node is ready. A system that
// was installed confirms itself a moment later.
func (w *World) becomeReady(n *node) {
	n.kubelet.Ready = true
	w.note(n, KubeletName, "node %q became ready", n.name)
	w.touch(n)
	w.confirmSoon(n)

	if n.flap == nil {
		return
	}

	fault := *n.flap
	n.flap = nil

	w.later(n.booting, FlapAfter, func() {
		if n.kubelet.Ready {
			w.ail(n, fault)
		}
	})
}
