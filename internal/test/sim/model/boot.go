// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// cause is why a machine boots.
type cause string

const (
	causeUpgrade  cause = "upgrade"
	causeReboot   cause = "reboot"
	causeFallback cause = "fallback"
	causeRollback cause = "rollback"
)

// boot takes a machine that is down through its start until it is ready. It
// returns early when the world ends, or when the machine goes down again.
func (w *World) boot(ctx context.Context, n *node, why cause) {
	if w.clock.Sleep(ctx, w.bootTime(n)) != nil {
		return
	}

	if !w.hang(ctx, n) {
		return
	}

	fallen, ok := w.fallBack(ctx, n)
	if !ok {
		return
	}

	if fallen {
		why = causeFallback
	}

	if booting := w.kernelStarts(n, why); booting != nil {
		w.rejoin(booting, n)
	}
}

func (w *World) bootTime(n *node) time.Duration {
	least, most := 30*time.Second, 90*time.Second
	if w.options.QuickReboots {
		least, most = 100*time.Millisecond, time.Second
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	return w.spread(n, "boot", least, most)
}

func (w *World) newBootID(n *node) string {
	n.boots++

	return drawUUID(w.options.Seed, "boot", n.name, strconv.Itoa(n.boots))
}

func (w *World) recordBoot(n *node, why cause) {
	running := n.running()

	w.record(n.name, history.KindBoot, running.described(map[string]string{
		"boot_id": n.bootID, "talos": running.talos, "schematic": running.schematic, "platform": running.platform,
		"slot": slotName(n.booted), "kubelet": n.components.Kubelet,
		"fallback": strconv.FormatBool(why == causeFallback), "cause": string(why),
	}))
}

// described adds the extensions, if the system has any, to a detail of the history.
func (s system) described(detail map[string]string) map[string]string {
	if s.extensions != "" {
		detail["extensions"] = s.extensions
	}

	return detail
}

// kernelStarts brings the machine's API back, with the system that the bootloader chose. It returns the context of
// the boot sequence; nil if the machine was removed or the world was stopped.
func (w *World) kernelStarts(n *node, why cause) context.Context {
	var booting context.Context

	w.locked(func() {
		if n.removed || w.stopped.Load() {
			return
		}

		why = n.cause(why)
		n.load(n.next)
		n.armed, n.reverted = false, false

		n.bootID = w.newBootID(n)
		n.bootedAt, n.downAt = w.clock.Now(), time.Time{}
		w.bootKubernetes(n)
		n.ailment, n.flap, n.stuck = ailment{}, nil, nil
		n.up, n.stage, n.sequence = true, StageBooting, "boot"
		n.logs, n.calls = nil, nil
		n.events = newRing(n.name + "-" + strconv.Itoa(n.boots) + "-")
		n.start(w.life)
		booting = n.booting

		w.recordBoot(n, why)

		if n.role == ControlPlane {
			w.record(n.name, history.KindMirror, map[string]string{"state": "stale"})
		}

		n.publish(w, Event{Kind: EventSequence, Name: "boot", Action: ActionStart})

		if fault, found := w.takeBootFault(n, n.running().talos, EffectUnreachable); found {
			w.fallSilent(n, fault, 0)
		}

		w.touch(n)
	})

	return booting
}

// cause returns why a machine really boots: its bootloader knows more than the caller.
func (n *node) cause(asked cause) cause {
	switch {
	case asked == causeFallback:
		return asked
	case n.reverted:
		return causeRollback
	case n.armed:
		return causeUpgrade
	default:
		return causeReboot
	}
}

// rejoin plays a boot from the start of the kernel until the node is Ready again and the upgrade confirmed.
func (w *World) rejoin(booting context.Context, n *node) {
	if !w.stick(booting, n) {
		return
	}

	w.mu.Lock()
	total := w.spread(n, "rejoin", 30*time.Second, 60*time.Second)
	kubelet := w.spread(n, "kubelet start", 4*time.Second, 12*time.Second)
	etcd := w.spread(n, "etcd start", 5*time.Second, 22*time.Second)
	server := etcd + w.spread(n, "apiserver start", 3*time.Second, 7*time.Second)
	w.mu.Unlock()

	timeline := []step{
		{kubelet, func() { w.kubeletBoots(n) }},
	}

	if n.role == ControlPlane {
		timeline = append(timeline,
			step{etcd, func() { w.memberBoots(n) }},
			step{server, func() { w.podsBoot(n); w.promote(n); w.touch(n) }})
	}

	slices.SortFunc(timeline, func(a, b step) int { return int(a.at - b.at) })

	booted := timeline[len(timeline)-1].at + 517*time.Millisecond
	timeline = append(timeline, step{booted, func() {
		n.stage, n.sequence = StageRunning, ""
		n.publish(w, Event{Kind: EventSequence, Name: "boot", Action: ActionStop})
		w.touch(n)
	}})

	if !w.perform(booting, timeline) || w.clock.Sleep(booting, total-booted) != nil {
		return
	}

	if w.await(booting, w.anyAPIServer) {
		w.nodeReady(booting, n)
	}
}

// nodeReady ends a boot: unless a fault prevents it, the node becomes ready, which confirms an upgrade. Then the
// machine lifts the cordon that it set itself.
func (w *World) nodeReady(booting context.Context, n *node) {
	w.locked(func() {
		if booting.Err() != nil {
			return
		}

		// If the kubelet does not run, it makes its node ready once it comes up.
		if n.rejoined = true; !n.kubelet.Running {
			return
		}

		if fault, found := w.takeBootFault(n, n.running().talos, EffectFlap); found {
			n.flap = &fault
		}

		if fault, found := w.takeBootFault(n, n.running().talos, EffectNotReady); found {
			w.ail(n, fault)
		} else {
			w.becomeReady(n)
		}
	})

	if w.await(booting, func() bool { return n.kubelet.Ready }) {
		w.liftCordon(booting, n)
	}
}

// promote turns a learner into a voter.
func (w *World) promote(n *node) {
	if n.etcd.learner && n.etcd.running {
		n.etcd.learner = false
		w.reconsider()
	}
}

func (n *node) publish(w *World, event Event) {
	event.Actor = n.actor
	n.events.add(w.clock.Now(), event)
}

func (n *node) serviceRuns(w *World, name string) {
	n.events.add(w.clock.Now(), Event{Kind: EventService, Name: name, Action: "running"})
}

// hang keeps a machine from starting for as long as a fault says, or for good if its firmware does not accept the
// system. It returns false if the world ended first.
func (w *World) hang(ctx context.Context, n *node) bool {
	var (
		release chan struct{}
		fault   Fault
	)

	w.locked(func() {
		found := n.secure && !n.slots[n.next].secure
		if found {
			w.record(n.name, history.KindFault, map[string]string{
				"step": string(StepBoot), "effect": string(EffectNeverReturns),
				"info": "the firmware refuses an image that is not signed for secure boot",
			})
		} else {
			fault, found = w.takeBootFault(n, n.slots[n.next].talos, EffectNeverReturns, EffectMaintenance)
		}

		if found {
			n.dead, n.unconfigured = make(chan struct{}), fault.Effect == EffectMaintenance
			release = n.dead
			w.touch(n)
		}
	})

	if release == nil {
		return true
	}

	if fault.For > 0 {
		w.later(w.life, fault.For, func() {
			if n.dead == release {
				n.revive()
				w.touch(n)
			}
		})
	}

	select {
	case <-release:
		return ctx.Err() == nil && w.clock.Sleep(ctx, w.bootTime(n)) == nil
	case <-ctx.Done():
		return false
	}
}

// revive ends what kept a machine from starting.
func (n *node) revive() {
	close(n.dead)
	n.dead, n.unconfigured = nil, false
}

// deadOf returns the effect that keeps a machine from starting.
func (n *node) deadOf() Effect {
	if n.unconfigured {
		return EffectMaintenance
	}

	return EffectNeverReturns
}

// fallBack plays a system that fails before the META tag is removed: its kernel runs, machined gives up, makes the
// bootloader start the other system, and reboots. It does not matter which one the tag names (Talos 1.13.9,
// machined: revertBootloader). fallen is true if that happened, ok is false if the world ended first.
func (w *World) fallBack(ctx context.Context, n *node) (fallen, ok bool) {
	const least, most = 10 * time.Second, 25 * time.Second

	var trial time.Duration

	w.locked(func() {
		if n.tag < 0 {
			return
		}

		if _, found := w.takeBootFault(n, n.slots[n.next].talos, EffectFallback); !found {
			return
		}

		fallen = true
		trial = w.spread(n, "failing boot", least, most)
		n.load(n.next)
		n.bootID = w.newBootID(n)
		w.recordBoot(n, n.cause(causeReboot))
	})

	if !fallen {
		return false, ctx.Err() == nil
	}

	if w.clock.Sleep(ctx, trial) != nil {
		return true, false
	}

	w.locked(func() {
		broken := n.slots[n.next]
		n.next, n.tag, n.selected = 1-n.next, -1, false
		w.record(n.name, history.KindDown, map[string]string{"by": "machine"})

		// A second installation without a reboot in between has overwritten
		// the system that ran: there is nothing left to fall back to.
		if n.slots[n.next].image == broken.image || n.slots[n.next].image == "" {
			n.dead = make(chan struct{})
			w.record(n.name, history.KindFault, map[string]string{
				"step": string(StepBoot), "effect": string(EffectNeverReturns),
				"info": "both slots hold the system that does not start",
			})
		}

		w.touch(n)
	})

	return true, w.outlive(ctx, n) && w.clock.Sleep(ctx, w.bootTime(n)) == nil
}

// outlive waits while a machine hangs. It returns false if the context ended first.
func (w *World) outlive(ctx context.Context, n *node) bool {
	w.mu.Lock()
	dead := n.dead
	w.mu.Unlock()

	if dead == nil {
		return true
	}

	select {
	case <-dead:
		return true
	case <-ctx.Done():
		return false
	}
}

// stick keeps a machine in its boot sequence, with its API up and nothing else started, while a fault says so. It
// returns false if the boot ended first.
func (w *World) stick(booting context.Context, n *node) bool {
	w.locked(func() {
		if booting.Err() != nil {
			return
		}

		fault, struck := w.takeBootFault(n, n.running().talos, EffectStuck)
		if !struck {
			return
		}

		n.stuckFor = fault.text("waiting on: address, connectivity")
		n.stuck = w.newHold(fault, func(ended *hold) {
			if n.stuck == ended {
				w.unstick(n)
			}
		})
		w.touch(n)
	})

	return w.await(booting, func() bool { return n.stuck == nil })
}

func (w *World) unstick(n *node) {
	n.stuck = nil
	w.touch(n)
}
