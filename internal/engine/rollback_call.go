// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// sendBack records what is about to be done and has the node start its old
// system. Whether a call without a reply took effect, the next boot shows: done
// twice in one boot a rollback undoes itself.
func (t *turn) sendBack(ctx context.Context, failed error) error {
	before := t.entry

	if err := t.intendReturn(ctx, failed); err != nil {
		if t.entry.Phase == cluster.PhaseRollingBack && before.Phase != cluster.PhaseRollingBack {
			// It was recorded, and nothing came of it.
			err = errors.Join(err, t.unsay(ctx, before))
		}

		return err
	}

	t.doing(cluster.StepRollback, "")

	err := t.run.engine.once(ctx, func(ctx context.Context) error { return t.run.engine.talos.Rollback(ctx, t.step.Address) })
	t.run.traffic.stepped(t.step.Role)

	switch {
	case err == nil:
		// It has answered that it obeys.
		t.entry.Told = true

		return t.recordGoing(ctx, cluster.PhaseRollingBack)
	case notSent(err), neverRan(err):
		if undone := t.unsay(ctx, before); undone != nil {
			return errors.Join(err, undone)
		}

		if notSent(err) {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}

		return err
	case ctx.Err() != nil:
		return err
	default:
		return nil
	}
}

// unsay takes the record of a rollback back that certainly did not reach the node.
func (t *turn) unsay(ctx context.Context, before cluster.Entry) error {
	kept, cancel := t.run.engine.outlasting(ctx)
	defer cancel()

	said := t.entry
	t.entry = before

	err := t.record(kept, before.Phase)
	if err != nil {
		t.entry = said
	}

	return err
}

// intendReturn guards the node and records that it is about to be sent back. It
// returns only while the observation is fresh, and the step is then claimed.
func (t *turn) intendReturn(ctx context.Context, failed error) error {
	boot := ""

	for {
		if err := t.guarded(ctx, "roll back"); err != nil {
			return err
		}

		if boot == "" {
			boot = t.seen.BootID
		}

		if t.well {
			return errWell
		}

		if t.seen.BootID != boot || !t.seen.Talos.Equal(t.entry.Target) {
			return errStale
		}

		if t.entry.Phase != cluster.PhaseRollingBack || t.entry.BootID != boot {
			t.entry.BootID = boot

			if err := t.record(ctx, cluster.PhaseRollingBack); err != nil {
				return err
			}

			t.run.emit(cluster.Event{
				Kind: cluster.EventRollingBack, Node: t.step.Node, Target: t.run.request.Target, To: t.entry.Previous, Text: failed.Error(), Err: failed,
			})
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		if t.claim() {
			return nil
		}

		// A context that ended is noticed by the guards.
		_ = t.run.engine.clock.Sleep(ctx, pollFirst)
	}
}
