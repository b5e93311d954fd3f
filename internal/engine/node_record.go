// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// record writes the entry of an upgrade.
func (u *nodeUpgrade) record(ctx context.Context, phase cluster.Phase) error {
	entry := u.entry
	entry.Phase, entry.Run, entry.Cordoned, entry.Written = phase, u.run.engine.runID, u.cordoned, u.run.engine.clock.Now()

	err := u.run.journal.change(ctx, u.step.Node, func(j cluster.Journal) cluster.Journal {
		if confirmed, known := j.Confirmed[u.step.Key]; known {
			u.former = confirmed
		}

		return j.With(u.step.Key, entry)
	})
	if err != nil {
		return err
	}

	u.entry = entry
	if !u.recorded() {
		u.phase = untouched
	}

	return nil
}

// forget removes the entry of an upgrade.
func (u *nodeUpgrade) forget(ctx context.Context) error {
	return u.remove(ctx, func(j cluster.Journal) cluster.Journal { return j.Without(u.step.Key) })
}

// restore removes the entry of an upgrade that nothing was done about, so that what was
// confirmed before, if anything was, is as true as it was then.
func (u *nodeUpgrade) restore(ctx context.Context, former cluster.Entry) error {
	if former.ConfirmedBootID == "" {
		return u.forget(ctx)
	}

	return u.remove(ctx, func(j cluster.Journal) cluster.Journal {
		return j.WithConfirmed(u.step.Key, former, u.run.journal.known())
	})
}

// confirm removes the entry of an upgrade that is done. The journal remembers what the
// other boot slot holds, where that is certain: the installer was seen to succeed, and
// the boot that followed brought up what it had installed.
func (u *nodeUpgrade) confirm(ctx context.Context) error {
	installed := u.recorded() && (u.entry.Phase == cluster.PhaseInstalled || u.entry.Phase == cluster.PhaseRebooting)
	if !installed || !u.rebooted() || !u.result.runs.Equal(u.entry.Target) {
		return u.forget(ctx)
	}

	done := u.entry
	done.ConfirmedBootID, done.Written = u.booted, u.run.engine.clock.Now()

	return u.remove(ctx, func(j cluster.Journal) cluster.Journal {
		return j.WithConfirmed(u.step.Key, done, u.run.journal.known())
	})
}

// remove takes the entry of an upgrade out of the journal with the change.
func (u *nodeUpgrade) remove(ctx context.Context, change func(cluster.Journal) cluster.Journal) error {
	_, found := u.run.journal.entry(u.step.Key)
	if _, stale := u.run.journal.read(); !found && !stale {
		u.forgotten()

		return nil
	}

	if err := u.run.journal.change(ctx, u.step.Node, change); err != nil {
		return err
	}

	u.forgotten()

	return nil
}

// forgotten notes that the journal has nothing open about the node.
func (u *nodeUpgrade) forgotten() {
	u.entry.Phase = ""

	if u.phase != inService {
		u.phase = untouched
	}
}
