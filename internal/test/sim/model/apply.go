// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"context"
	"strings"
	"time"
)

// application is one configuration on its way into a machine.
type application struct {
	text   []byte
	mode   ApplyMode
	dryRun bool
	by     string // client, fault or other

	config *configuration
	fault  Fault // zero for none
	reply  ApplyReply
	err    error
	ended  chan struct{}
}

// ApplyConfig replaces the configuration of a machine, found by name or
// address, the way its version of Talos does. It takes most of a second, and
// once begun it ends even when the caller goes away. What the machine does not
// accept is [ErrApplyInvalid], [ErrApplyBusy] or [ErrApplyModeUnsupported].
func (w *World) ApplyConfig(ctx context.Context, name string, config []byte, mode ApplyMode, dryRun bool) (ApplyReply, error) {
	return w.apply(ctx, name, &application{text: bytes.Clone(config), mode: mode, dryRun: dryRun, by: "client"})
}

// SetConfigByHand is a person who edits the configuration of a machine, found
// by name or address, with talosctl: in mode no-reboot, and without the faults
// that are meant for others. edit is given the present text.
func (w *World) SetConfigByHand(node string, edit func(old string) (string, error)) error {
	text, err := w.MachineConfig(node)
	if err != nil {
		return err
	}

	edited, err := edit(string(text))
	if err != nil {
		return err
	}

	_, err = w.apply(context.Background(), node, &application{text: []byte(edited), mode: ApplyNoReboot, by: "other"})

	return err
}

func (w *World) apply(ctx context.Context, name string, next *application) (ApplyReply, error) {
	if err := ctx.Err(); err != nil {
		return ApplyReply{}, err
	}

	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return ApplyReply{}, err
	}

	current := begin(ctx, n)
	defer current.end()

	if err := w.checkApply(n, next); err != nil {
		w.recordApply(n, next, n.configured, err)
		w.mu.Unlock()

		return ApplyReply{}, err
	}

	const least, most = 500 * time.Millisecond, 900 * time.Millisecond

	n.applying = n.applying || !next.dryRun
	next.ended = make(chan struct{})
	length := w.spread(n, "apply", least, most)

	w.spawn(n.life, func(life context.Context) {
		defer close(next.ended)

		if w.clock.Sleep(life, length) != nil {
			next.err = ErrConnectionLost

			return
		}

		w.locked(func() { w.finishApply(life, n, next) })
	})
	w.mu.Unlock()

	select {
	case <-next.ended:
	case <-current.ctx.Done():
		return ApplyReply{}, current.err(ctx)
	case <-w.life.Done():
		return ApplyReply{}, errStopped
	}

	switch {
	case current.link.Err() != nil:
		return ApplyReply{}, ErrConnectionLost
	case next.err == nil && next.fault.Effect == EffectConnectionLost:
		return ApplyReply{}, ErrConnectionLost
	default:
		return next.reply, next.err
	}
}

// checkApply is what a machine looks at before it begins. The lock is held.
func (w *World) checkApply(n *node, next *application) error {
	talos := n.running().talos

	switch next.mode {
	case ApplyReboot, ApplyAuto, ApplyNoReboot, ApplyStaged, ApplyTry:
	default:
		return invalidApply("unknown apply mode %q", next.mode)
	}

	if next.mode == ApplyReboot && AtLeast(talos, 1, 14) {
		return &labelled{ErrApplyModeUnsupported, "the REBOOT mode is not supported, use STAGED and reboot the machine"}
	}

	config, err := readConfiguration(next.text)
	if err != nil {
		return invalidApply("%w", err)
	}

	next.config = config

	if err := config.check(talos); err != nil {
		return invalidApply("%w", err)
	}

	if err := config.checkLost(n.configured); err != nil {
		return invalidApply("%w", err)
	}

	next.reply.Mode = n.applyMode(next, talos)

	if next.reply.Mode == ApplyNoReboot {
		if lines := n.configured.slowChanges(config); len(lines) > 0 && !AtLeast(talos, 1, 14) {
			return invalidApply("this config change can't be applied in immediate mode\ndiff: %s", strings.Join(lines, "\n"))
		}
	}

	if next.dryRun {
		return nil
	}

	if err := n.checkBusy(talos); err != nil {
		return err
	}

	return w.strikeApply(n, next)
}

// applyMode is the mode that a machine uses where it may choose.
func (n *node) applyMode(next *application, talos string) ApplyMode {
	slow := len(n.configured.slowChanges(next.config)) > 0 && !AtLeast(talos, 1, 14)

	switch {
	case next.mode == ApplyTry, next.mode == ApplyAuto && !slow:
		return ApplyNoReboot
	case next.mode == ApplyAuto:
		return ApplyReboot
	default:
		return next.mode
	}
}

// checkBusy refuses a second configuration while one is under way. Older
// machines take both, and the last one stays.
func (n *node) checkBusy(talos string) error {
	first, err := parseVersion("1.13.3")
	if err != nil {
		return err
	}

	running, err := parseVersion(talos)
	if err != nil || running.LessThan(first) {
		return err
	}

	switch {
	case n.restarting:
		return &labelled{ErrApplyBusy, "configuration was already applied and node is rebooting, please retry after reboot"}
	case n.applying:
		return ErrApplyBusy
	default:
		return nil
	}
}

// strikeApply lets the script refuse a configuration, or keeps what it does to
// it later.
func (w *World) strikeApply(n *node, next *application) error {
	if next.by != "client" {
		return nil
	}

	fault, struck := w.takeFaultOf(n.name, StepApply, scope{components: n.changes(n.configured, next.config)})
	if !struck {
		return nil
	}

	next.fault = fault

	switch fault.Effect {
	case EffectFail:
		return invalidApply("%s", fault.text("configuration validation failed: 1 error occurred:\n\t* the configuration was refused"))
	case EffectBusy:
		return &labelled{ErrApplyBusy, fault.text(ErrApplyBusy.Error())}
	default:
		return nil
	}
}

// finishApply is the moment in which a configuration takes effect.
func (w *World) finishApply(life context.Context, n *node, next *application) {
	if life.Err() != nil {
		next.err = ErrConnectionLost

		return
	}

	if !next.dryRun {
		n.applying = false
	}

	before, text := n.configured, n.config
	next.reply.Details = details(n, next)
	w.recordApply(n, next, before, nil)

	if next.dryRun {
		return
	}

	w.accept(n, next)

	if next.fault.Effect == EffectOverwritten {
		w.overwrite(n, text)
	}
}
