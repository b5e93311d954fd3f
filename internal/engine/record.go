// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// recordPatience bounds how long the journal may be unwritable before the run
// gives up: without a record nothing may be installed.
const recordPatience = 2 * time.Minute

// amend changes the journal and has it written before it returns. The change
// is applied to what is there now, so that a lost reply or a foreign write
// costs nothing.
func (r *run) amend(ctx context.Context, node string, change func(cluster.Journal) cluster.Journal) error {
	bounded, cancel := r.clock.WithTimeout(ctx, recordPatience)
	defer cancel()

	stale := false

	err := r.wait(bounded, node, "the journal to be written", func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := r.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		if stale {
			current, err := r.kubernetes.Journal(ctx)
			if err != nil {
				return false, err.Error(), onlyFatal(err)
			}

			r.journal, stale = current, false
		}

		written, err := r.kubernetes.WriteJournal(ctx, change(r.journal))
		if err == nil {
			r.journal = written

			return true, "", nil
		}

		stale = true

		return false, err.Error(), onlyFatal(err)
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrLeaseLost) {
		return fmt.Errorf("the journal kube-system/talosupgrade-journal could not be written: %w", err)
	}

	return err
}

// record writes the entry of a turn.
func (t *turn) record(ctx context.Context, phase cluster.Phase) error {
	entry := t.entry
	entry.Phase, entry.Run, entry.Cordoned, entry.Written = phase, t.run.run, t.cordoned, t.clock.Now()

	if err := t.amend(ctx, t.step.Node, func(j cluster.Journal) cluster.Journal { return j.With(t.step.UUID, entry) }); err != nil {
		return err
	}

	t.entry, t.armed = entry, entry.Open()

	return nil
}

// forget removes the entry of a turn.
func (t *turn) forget(ctx context.Context) error {
	if _, found := t.journal.Entries[t.step.UUID]; !found {
		t.armed = false

		return nil
	}

	if err := t.amend(ctx, t.step.Node, func(j cluster.Journal) cluster.Journal { return j.Without(t.step.UUID) }); err != nil {
		return err
	}

	t.armed = false

	return nil
}
