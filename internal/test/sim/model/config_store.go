// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"time"
)

// accept makes a configuration that of the machine, of its next boot, or both.
// Writing the same text again is a write, too.
func (w *World) accept(n *node, next *application) {
	w.touch(n)
	n.store(next)

	if next.reply.Mode == ApplyStaged {
		return
	}

	n.config, n.configured = next.text, next.config
	n.configVersion++

	if next.reply.Mode == ApplyReboot {
		n.restarting = true
		w.startReboot(n, RebootDefault, causeReboot)

		return
	}

	const least, most = 300 * time.Millisecond, time.Second

	w.later(n.life, w.spread(n, "reconcile", least, most), func() { w.reconcile(n) })
}

// store keeps for the next boot what a configuration leaves for it: one that is
// only tried leaves the one from before. Nothing but a boot, or another one,
// takes it back.
func (n *node) store(next *application) {
	switch {
	case next.mode == ApplyTry && n.staged == nil:
		n.staged = n.config
	case next.mode == ApplyTry:
	case next.reply.Mode == ApplyStaged:
		n.persistent, n.staged = next.text, next.text
	default:
		n.persistent, n.staged = next.text, nil
	}
}

// persistentConfig is what the machine shows of it.
func (n *node) persistentConfig() []byte {
	if !AtLeast(n.running().talos, 1, 10) {
		return nil
	}

	return bytes.Clone(n.persistent)
}

// overwrite is somebody else who writes what was there before.
func (w *World) overwrite(n *node, text []byte) {
	other := &application{
		text: append(bytes.Clone(text), "# Changed by somebody else.\n"...),
		mode: ApplyNoReboot, by: "fault", reply: ApplyReply{Mode: ApplyNoReboot},
	}

	config, err := readConfiguration(other.text)
	if err != nil {
		return
	}

	other.config = config
	w.recordApply(n, other, n.configured, nil)
	w.accept(n, other)
}
