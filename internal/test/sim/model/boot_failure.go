// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// hang keeps a machine from starting while a fault says so, or for good when
// its firmware does not accept the system. It returns false when the world
// ended first.
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
			fault, found = w.takeBootFault(n, n.slots[n.next].talos, EffectNeverReturns)
		}

		if found {
			n.dead = make(chan struct{})
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
				close(release)
				n.dead = nil
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

// fallBack plays a new system that fails at its first start: its kernel runs,
// machined gives up, reverts the bootloader and boots the old system. It
// returns whether that happened, and false when the world ended first.
func (w *World) fallBack(ctx context.Context, n *node) (fallen, ok bool) {
	const least, most = 10 * time.Second, 25 * time.Second

	var trial time.Duration

	w.locked(func() {
		if n.tag < 0 || n.tag == n.next {
			return
		}

		if _, found := w.takeBootFault(n, n.slots[n.next].talos, EffectFallback); !found {
			return
		}

		fallen = true
		trial = w.spread(n, "failing boot", least, most)
		n.load(n.next)
		n.bootID = w.newBootID(n)
		w.recordBoot(n, causeUpgrade)
	})

	if !fallen {
		return false, ctx.Err() == nil
	}

	if w.clock.Sleep(ctx, trial) != nil {
		return true, false
	}

	w.locked(func() {
		broken := n.slots[n.next]
		n.next, n.tag = n.tag, -1
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

// outlive waits while a machine hangs.
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

// stick keeps a machine in its boot sequence, with its API up and nothing started,
// while a fault says so. It returns false when the boot ended first.
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
