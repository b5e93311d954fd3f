// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// record writes the entry of the upgrade to the journal.
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

// forget removes the entry of the upgrade from the journal.
func (u *nodeUpgrade) forget(ctx context.Context) error {
	return u.remove(ctx, func(j cluster.Journal) cluster.Journal { return j.Without(u.step.Key) })
}

// restore removes the entry of an upgrade that was not acted on. The upgrade that was confirmed before, if there
// was one, is valid again.
func (u *nodeUpgrade) restore(ctx context.Context, former cluster.Entry) error {
	if former.ConfirmedBootID == "" {
		return u.forget(ctx)
	}

	return u.remove(ctx, func(j cluster.Journal) cluster.Journal {
		return j.WithConfirmed(u.step.Key, former, u.run.journal.known())
	})
}

// confirm removes the entry of a finished upgrade. The journal records what the other boot slot holds if that is
// certain: the installer was seen to succeed, and the following boot started what it had installed.
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

// remove applies the change, which removes the entry of the upgrade from the journal.
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

// forgotten records that the journal has no entry of the upgrade.
func (u *nodeUpgrade) forgotten() {
	u.entry.Phase = ""

	if u.phase != inService {
		u.phase = untouched
	}
}
