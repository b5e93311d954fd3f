// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// RebootMode is how a machine goes down.
type RebootMode string

// The modes: by kexec, through the firmware, or without stopping anything.
const (
	RebootDefault    RebootMode = "default"
	RebootPowercycle RebootMode = "powercycle"
	RebootForce      RebootMode = "force"
)

const firmwareTime = 20 * time.Second

var errInternal = errors.New("internal error")

// Reboot acknowledges at once and reboots in the background; it returns the
// actor of the sequence's events. While another sequence than the boot runs
// it acknowledges and does nothing, as Talos does.
func (w *World) Reboot(ctx context.Context, name string, mode RebootMode) (actor string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}

	w.locked(func() {
		var n *node

		if n, err = w.reach(name); err != nil {
			return
		}

		fault, struck := w.takeFault(n.name, StepReboot)
		if struck && fault.Effect == EffectFail {
			err = &labelled{errInternal, fault.text("failed to start the reboot sequence")}

			return
		}

		actor = w.startReboot(n, mode, causeReboot)

		if struck && fault.Effect == EffectConnectionLost {
			err = ErrConnectionLost
		}
	})

	return actor, err
}

// RebootByHand plays a person who reboots a machine, found by name or address, with talosctl: without the faults of
// the reboot step.
func (w *World) RebootByHand(name string, mode RebootMode) (err error) {
	w.locked(func() {
		var n *node

		if n, err = w.reach(name); err != nil {
			return
		}

		if n.sequence != "" && n.sequence != "boot" {
			err = refuse("sequence not started: locked")

			return
		}

		n.byHand = true
		w.startReboot(n, mode, causeReboot)
	})

	return err
}

// Rollback makes the bootloader start the other slot and reboots. A second one without a boot in between undoes it.
// Nothing is drained, and nothing checks whether etcd can go back.
func (w *World) Rollback(ctx context.Context, name string) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}

	w.locked(func() {
		var n *node

		if n, err = w.reach(name); err != nil {
			return
		}

		fault, struck := w.takeFault(n.name, StepRollback)
		if struck && fault.Effect == EffectFail {
			err = refuse("%s", fault.text("previous UKI not found"))

			return
		}

		if err = w.revert(n); err == nil && struck && fault.Effect == EffectConnectionLost {
			err = ErrConnectionLost
		}
	})

	return err
}

// revert changes what the bootloader starts, and reboots. If a sequence runs already, it goes on instead, and boots
// the other slot as well. The META tag of an upgrade that is not confirmed stays until the machine is ready, and
// names the slot that is started now (seen on Talos 1.13.9, 2026-11-26).
func (w *World) revert(n *node) error {
	other := 1 - n.next

	switch {
	case n.slots[other].image != "":
	case n.secure:
		return refuse("previous UKI not found")
	default:
		return refuse("cannot rollback to %q, label does not exist", slotName(other))
	}

	n.next, n.armed, n.reverted, n.selected = other, false, !n.reverted, false

	if n.sequence == "" || n.sequence == "boot" {
		w.startReboot(n, RebootDefault, causeRollback)
	}

	w.touch(n)

	return nil
}

// takeOver reserves a machine for a sequence. Only the boot sequence gives way.
func (w *World) takeOver(n *node, sequence, actor string) bool {
	if n.sequence != "" && n.sequence != "boot" {
		n.events.add(w.clock.Now(), Event{
			Kind: EventSequence, Name: sequence, Actor: actor, Action: ActionNone,
			Error: "sequence not started: locked", Locked: true,
		})

		return false
	}

	n.stopBoot()
	n.sequence, n.actor = sequence, actor
	n.publish(w, Event{Kind: EventSequence, Name: sequence, Action: ActionStart})

	return true
}

func (w *World) newActor(n *node) string {
	n.actors++

	return drawUUID(w.options.Seed, "actor", n.name, strconv.Itoa(n.actors))
}

func (w *World) startReboot(n *node, mode RebootMode, why cause) string {
	actor := ""
	if why == causeReboot {
		actor = w.newActor(n)
	}

	if !w.takeOver(n, "reboot", actor) {
		return actor
	}

	n.reboots++
	w.spawn(n.life, func(life context.Context) {
		if mode != RebootForce && !w.stopGracefully(life, n) {
			return
		}

		w.goDown(n, n.asker(), mode != RebootForce)

		if mode == RebootPowercycle && w.clock.Sleep(w.life, firmwareTime) != nil {
			return
		}

		w.boot(w.life, n, why)
	})

	return actor
}

// stopGracefully ends pods and services. It returns false when the machine
// went away meanwhile.
func (w *World) stopGracefully(life context.Context, n *node) bool {
	w.mu.Lock()
	pods := w.spread(n, "stop pods", 1*time.Second, 4*time.Second)
	services := pods + w.spread(n, "stop services", 3*time.Second, 8*time.Second)
	w.mu.Unlock()

	return w.perform(life, []step{
		{0, func() {
			n.stage = StageRebooting
			n.publish(w, Event{Kind: EventPhase, Name: "cleanup", Action: ActionStart})
			w.touch(n)
		}},
		{pods, func() {
			n.stopKubernetes()
			n.publish(w, Event{Kind: EventTask, Name: "stopAllServices", Action: ActionStart})
			w.etcdStop(n, true)
			w.touch(n)
		}},
		{services, func() {}},
	})
}

// goDown ends what runs on a machine, and every connection to it.
func (w *World) goDown(n *node, by string, graceful bool) {
	w.locked(func() { w.takeDown(n, by, graceful) })
}

func (w *World) takeDown(n *node, by string, graceful bool) {
	if !n.up {
		return
	}

	w.record(n.name, history.KindDown, map[string]string{"by": by})
	w.etcdStop(n, graceful)

	n.up, n.downAt = false, w.clock.Now()
	n.stopKubernetes()
	n.installing = false
	clear(n.ownImages)
	n.sequence, n.actor = "", ""
	n.byHand = false
	n.cut()
	n.kill()
	w.touch(n)
}

// asker returns who wanted the sequence that runs, as the history names it.
func (n *node) asker() string {
	if n.byHand {
		return "other"
	}

	return "client"
}
