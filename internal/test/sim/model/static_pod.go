// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// podStep does something to a pod under the lock, unless the machine went down
// or a later restart has taken over.
func (w *World) podStep(life context.Context, n *node, pod *staticPod, run int, do func()) bool {
	var done bool

	w.locked(func() {
		if done = life.Err() == nil && pod.run == run; done {
			do()
			w.touch(n)
		}
	})

	return done
}

// restartPod lets the kubelet replace a pod by one of its present
// configuration. Before the first pods of a boot it has nothing to do.
func (w *World) restartPod(n *node, component string) {
	pod := n.pods[component]
	pod.run++

	if !n.podsUp {
		return
	}

	run, stop := pod.run, w.stopTime(n, component)

	w.spawn(n.life, func(life context.Context) {
		if !w.await(life, func() bool { return n.kubelet.Running || pod.run != run }) {
			return
		}

		if w.clock.Sleep(life, stop) == nil && w.podStep(life, n, pod, run, func() { w.replacePod(n, component) }) {
			w.startPod(life, n, component, run)
		}
	})
}

// replacePod ends what runs, and makes the new pod, unless there is to be none.
func (w *World) replacePod(n *node, component string) {
	pod := n.pods[component]
	if !pod.Started.IsZero() {
		pod.Ready, pod.Started = false, time.Time{}
		w.recordPod(n, component, componentStopped)
	}

	pod.flap = nil
	pod.make()

	if pod.Disabled {
		*n.components.at(component) = ""
		w.recordOff(n, component)
	}
}

// startPod brings a pod that was made up until it serves.
func (w *World) startPod(life context.Context, n *node, component string, run int) {
	pod := n.pods[component]

	w.mu.Lock()
	image := pod.PodImage
	w.mu.Unlock()

	if image == "" {
		return
	}

	there := w.obtain(life, n, component, runtimeImage{NamespaceCRI, image}, func(trouble string) bool {
		return w.podStep(life, n, pod, run, func() {
			pod.Trouble = "ImagePullBackOff: " + trouble
			w.recordPod(n, component, componentFailed)
		})
	})
	if !there {
		return
	}

	var (
		held   bool
		length time.Duration
	)

	going := w.podStep(life, n, pod, run, func() {
		if held = w.holdsPod(n, component); held {
			return
		}

		w.runPod(n, component)
		w.recordPod(n, component, componentStarting)
		length = w.startTime(n, component)
	})
	if !going || held || w.clock.Sleep(life, length) != nil {
		return
	}

	w.podStep(life, n, pod, run, func() { w.servePod(n, component) })
}

// stopTime returns the time from the new configuration until the old pod is gone. An API server still answers its
// open requests, so others are recreated before it.
func (w *World) stopTime(n *node, component string) time.Duration {
	if component == APIServerName {
		return w.spreadOf(n, component, "stop", 10*time.Second, 30*time.Second)
	}

	return w.spreadOf(n, component, "stop", 1*time.Second, 3*time.Second)
}

// startTime returns the time from the end of the old pod until the new one serves. The API server of a real machine
// was away for 45 seconds.
func (w *World) startTime(n *node, component string) time.Duration {
	if component == APIServerName {
		return w.spreadOf(n, component, "start", 25*time.Second, 50*time.Second)
	}

	return w.spreadOf(n, component, "start", 3*time.Second, 8*time.Second)
}

// runPod starts the container of a pod.
func (w *World) runPod(n *node, component string) {
	pod := n.pods[component]
	pod.Started, pod.Trouble = w.clock.Now(), ""
	*n.components.at(component) = versionOf(pod.PodImage)
	w.noteStart(n, component)
}

// servePod makes a running pod ready, and a scripted flap strike later.
func (w *World) servePod(n *node, component string) {
	pod := n.pods[component]
	pod.Ready = true
	w.recordPod(n, component, componentReady)
	w.confirmSoon(n)

	fault := pod.flap
	pod.flap = nil

	if fault == nil && component == APIServerName {
		if found, struck := w.takeFault(n.name, StepAPIServer, EffectFlap); struck {
			fault = &found
		}
	}

	if fault != nil {
		w.flapPod(n, component, *fault)
	}
}

// flapPod takes a pod away for a while, some seconds after it became ready.
func (w *World) flapPod(n *node, component string, fault Fault) {
	const usual = 20 * time.Second

	pod, run, away := n.pods[component], n.pods[component].run, fault.For
	if away == 0 {
		away = usual
	}

	w.later(n.life, ComponentFlapAfter, func() {
		if pod.run != run || !pod.Ready {
			return
		}

		pod.Ready, pod.Started = false, time.Time{}
		w.recordPod(n, component, componentFailed)
		w.touch(n)

		w.later(n.life, away, func() {
			if pod.run == run && pod.Started.IsZero() {
				w.runPod(n, component)
				w.servePod(n, component)
				w.touch(n)
			}
		})
	})
}

// holdsPod reports whether a fault keeps a new pod from being ready: the container runs and is never ready, or it
// ends as often as it starts.
func (w *World) holdsPod(n *node, component string) bool {
	pod := n.pods[component]

	if pod.held == nil {
		fault, struck := w.takeComponentFault(n.name, StepStaticPod, component)
		if !struck {
			return false
		}

		if fault.Effect == EffectFlap {
			pod.flap = &fault

			return false
		}

		pod.held = w.newHold(fault, func(ended *hold) {
			if pod.held == ended {
				w.releasePod(n, component)
			}
		})
	}

	if pod.held.effect == EffectNeverReady {
		w.runPod(n, component)
		w.recordPod(n, component, componentStarting)

		return true
	}

	pod.Trouble = fmt.Sprintf("CrashLoopBackOff: back-off 10s restarting failed container=%s pod=%s-%s", component, component, n.name)
	w.noteContainer(n, component, "E", `run.go:72] "command failed" err="context deadline exceeded"`)
	w.recordPod(n, component, componentFailed)

	return true
}

// newHold returns the hold of a fault. If the fault has a duration, end is called under the lock after it.
func (w *World) newHold(fault Fault, end func(*hold)) *hold {
	held := &hold{step: fault.Step, effect: fault.Effect, forGood: fault.For == 0}
	if fault.For > 0 {
		w.later(w.life, fault.For, func() { end(held) })
	}

	return held
}

// releasePod lets a pod come up that a fault held back.
func (w *World) releasePod(n *node, component string) {
	pod := n.pods[component]
	pod.held = nil

	if !n.up || !n.podsUp || pod.Ready {
		return
	}

	pod.run++
	run := pod.run
	pod.make()

	w.touch(n)
	w.spawn(n.life, func(life context.Context) { w.startPod(life, n, component, run) })
}

// podsBoot starts the pods of a machine that has booted, all at once; the time
// for it is part of the boot. A kubelet that does not come up starts none.
func (w *World) podsBoot(n *node) {
	if n.kubeletStuck() {
		run := n.booting

		w.spawn(run, func(life context.Context) {
			if w.await(life, func() bool { return n.kubelet.Running }) {
				w.locked(func() { w.podsBoot(n) })
			}
		})

		return
	}

	n.podsUp, n.podsMadeBy = true, n.kubelet.Version

	for _, component := range staticNames() {
		pod := n.pods[component]
		pod.run++
		pod.make()

		switch {
		case pod.Disabled:
			w.recordOff(n, component)
		case w.holdsPod(n, component):
		case component == APIServerName && n.etcd != nil && !n.etcd.running:
			w.serveLater(n)
		case !imageExists(pod.Image):
			pod.Trouble = "ImagePullBackOff: " + missingImage(pod.Image).Error()
			w.recordPod(n, component, componentFailed)
		default:
			n.pulled[runtimeImage{NamespaceCRI, pod.Image}] = w.clock.Now()
			w.runPod(n, component)
			w.servePod(n, component)
		}
	}

	w.touch(n)
	w.reportPods(n)
}

// remakePods makes the kubelet find the static pods changed, a while after it came up, if another minor version made
// them: each makes something else of their sources (talos#14227). It ends and recreates them, as if their
// configuration had changed.
func (w *World) remakePods(n *node, run int) {
	made, makes := n.podsMadeBy, n.kubelet.Version
	if n.role != ControlPlane || !n.podsUp || sameMinor(made, makes) {
		return
	}

	w.later(n.life, w.spread(n, "pods remade", 8*time.Second, 20*time.Second), func() {
		if n.service.run != run || !n.kubelet.Running {
			return
		}

		n.podsMadeBy = makes

		for _, component := range staticNames() {
			w.restartPod(n, component)
		}

		w.touch(n)
	})
}

// reportPods makes the kubelet report the pods of a new boot, a little after they came up.
func (w *World) reportPods(n *node) {
	w.later(n.life, w.spread(n, "pods reported", 5*time.Second, 40*time.Second), func() {
		n.podsReported = true
		w.record(n.name, history.KindMirror, map[string]string{"state": "fresh"})
		w.touch(n)
	})
}

// serveLater starts an API server on a machine whose etcd member does not run: it is ready once the member runs.
func (w *World) serveLater(n *node) {
	pod, run := n.pods[APIServerName], n.pods[APIServerName].run

	w.runPod(n, APIServerName)
	w.recordPod(n, APIServerName, componentStarting)

	w.spawn(n.life, func(life context.Context) {
		if w.await(life, func() bool { return pod.run != run || n.etcd == nil || n.etcd.running }) {
			w.podStep(life, n, pod, run, func() { w.servePod(n, APIServerName) })
		}
	})
}
