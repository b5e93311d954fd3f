// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"time"
)

// nodeGrace is how long the node controller waits for a kubelet that is silent
// before it says that the node is not ready.
const nodeGrace = 40 * time.Second

func (n *node) kubeletService() KubeletService { return n.service.KubeletService }

// kubeletStuck reports whether a kubelet cannot come up.
func (n *node) kubeletStuck() bool {
	return !n.kubelet.Running && (n.service.held != nil || !imageExists(n.service.Image))
}

func (w *World) recordKubelet(n *node, image, state string) {
	w.recordComponent(n, KubeletName, image, "", state)
}

// kubeletStep does something to the kubelet under the lock, unless the machine
// went down or a later restart has taken over.
func (w *World) kubeletStep(life context.Context, n *node, run int, do func()) bool {
	var done bool

	w.locked(func() {
		if done = life.Err() == nil && n.service.run == run; done {
			do()
			w.touch(n)
		}
	})

	return done
}

// restartKubelet ends the service and starts it again. Before the first kubelet
// of a boot it has nothing to do.
func (w *World) restartKubelet(n *node) {
	n.service.run++

	if !n.service.started {
		return
	}

	if n.service.Running {
		w.stopKubelet(n)
	}

	w.spawnKubelet(n)
}

// stopKubelet destroys the service. The node stays ready for as long as the
// node controller waits.
func (w *World) stopKubelet(n *node) {
	now := w.clock.Now()
	n.kubelet.Running = false
	n.service.Running, n.service.Healthy, n.service.Since = false, false, time.Time{}
	n.service.stopped = now
	w.recordKubelet(n, n.service.running, componentStopped)

	w.later(n.life, nodeGrace, func() {
		if !n.kubelet.Running && n.kubelet.Ready && n.service.stopped.Equal(now) {
			n.kubelet.Ready = false
			w.touch(n)
		}
	})
}

// spawnKubelet brings a kubelet up in the background.
func (w *World) spawnKubelet(n *node) {
	run := n.service.run
	create := w.spread(n, "kubelet create", 700*time.Millisecond, 2*time.Second)
	health := w.spread(n, "kubelet health", 1300*time.Millisecond, 4*time.Second)

	w.spawn(n.life, func(life context.Context) {
		w.mu.Lock()
		image := n.service.Image
		w.mu.Unlock()

		there := w.obtain(life, n, KubeletName, runtimeImage{NamespaceSystem, image}, func(string) bool {
			return w.kubeletStep(life, n, run, func() { w.recordKubelet(n, image, componentFailed) })
		})
		if !there || w.clock.Sleep(life, create) != nil {
			return
		}

		var held bool

		going := w.kubeletStep(life, n, run, func() {
			if held = w.holdsKubelet(n, image); !held {
				w.createKubelet(n, image)
				w.registerKubelet(n, run)
				w.remakePods(n, run)
				w.recordKubelet(n, image, componentStarting)
			}
		})
		if !going || held || w.clock.Sleep(life, health) != nil {
			return
		}

		w.kubeletStep(life, n, run, func() { w.kubeletHealthy(n) })
	})
}

// createKubelet makes the service with its process.
func (w *World) createKubelet(n *node, image string) {
	n.service.running = image
	n.service.Running, n.service.Since = true, w.clock.Now()
	n.kubelet.Running = true

	if version := versionOf(image); version != "" {
		n.kubelet.Version, n.components.Kubelet = version, version
	}

	w.note(n, KubeletName, "kubelet v%s starts", n.kubelet.Version)
	n.serviceRuns(w, KubeletName)
}

// registerKubelet makes a new kubelet report its version and, for some seconds, that its node is not ready. A fault
// may keep it from being ready.
func (w *World) registerKubelet(n *node, run int) {
	const least, most = 2 * time.Second, 6 * time.Second

	length := w.spread(n, "kubelet ready", least, most)
	n.kubelet.Ready = false

	if fault, struck := w.takeFault(n.name, StepKubeletRestart, EffectNotReady); struck {
		w.ail(n, fault)

		return
	}

	w.later(n.life, length, func() {
		if n.service.run == run && n.kubelet.Running && n.rejoined && !n.kubelet.Ready && n.ailment.effect == "" {
			w.becomeReady(n)
		}
	})
}

// kubeletHealthy marks the kubelet as healthy.
func (w *World) kubeletHealthy(n *node) {
	n.service.Healthy = true
	w.recordKubelet(n, n.service.running, componentReady)
	w.confirmSoon(n)
}

// kubeletBoots starts the kubelet of a machine that has booted; the time for it
// is part of the boot.
func (w *World) kubeletBoots(n *node) {
	n.service.started = true
	n.service.run++

	if n.kubeletStuck() {
		w.recordKubelet(n, n.service.Image, componentFailed)
		w.touch(n)

		return
	}

	n.pulled[runtimeImage{NamespaceSystem, n.service.Image}] = w.clock.Now()
	w.createKubelet(n, n.service.Image)
	n.service.Healthy = true
	w.recordKubelet(n, n.service.running, componentReady)
	w.touch(n)
}

// holdsKubelet reports whether a fault keeps the kubelet down.
func (w *World) holdsKubelet(n *node, image string) bool {
	if n.service.held != nil {
		return true
	}

	fault, struck := w.takeFault(n.name, StepKubeletRestart, EffectStaysDown)
	if !struck {
		return false
	}

	w.recordKubelet(n, image, componentFailed)
	n.service.held = w.newHold(fault, func(ended *hold) {
		if n.service.held == ended {
			w.releaseKubelet(n)
		}
	})

	return true
}

// releaseKubelet lets a kubelet come up that a fault held back.
func (w *World) releaseKubelet(n *node) {
	n.service.held = nil

	if n.up && n.service.started && !n.service.Running {
		n.service.run++
		w.spawnKubelet(n)
	}
}

// ailment is why a kubelet that runs reports that its node is not ready. The
// zero value is a healthy one.
type ailment struct {
	step   Step
	effect Effect
	// end is zero if it lasts until the script is replaced.
	end time.Time
}

func (a ailment) forGood() bool { return a.effect != "" && a.end.IsZero() }

// strikeKubelets applies the script to the nodes that are ready. The lock is held.
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

// ail makes the kubelet report that the node is not ready, until the fault ends or the machine boots.
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

// heal ends the ailment of a kubelet.
func (w *World) heal(n *node) {
	n.ailment = ailment{}

	// A machine that is going down has stopped its kubelet.
	if n.kubelet.Running {
		w.becomeReady(n)
	}
}

// confirmSoon makes an installed system confirm itself, a moment after the last condition that it waited for.
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

// becomeReady makes the kubelet report that the node is ready. An installed system confirms itself a moment later.
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
		if n.kubelet.Ready && !w.lapsed(n, fault) {
			w.ail(n, fault)
		}
	})
}
