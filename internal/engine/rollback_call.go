// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// requestRollback records what is about to be done and has the node start its old
// system. Whether a call without a reply took effect, the next boot shows: done
// twice in one boot a rollback undoes itself.
func (u *nodeUpgrade) requestRollback(ctx context.Context, failed error) error {
	before := u.entry

	if err := u.recordRollbackIntent(ctx, failed); err != nil {
		if u.entry.Phase == cluster.PhaseRollingBack && before.Phase != cluster.PhaseRollingBack {
			// It was recorded, and nothing came of it.
			err = errors.Join(err, u.withdrawRollback(ctx, before))
		}

		return err
	}

	u.emitStep(cluster.StepRollback, "")

	err := u.run.engine.callWhole(ctx, func(ctx context.Context) error { return u.run.engine.talos.Rollback(ctx, u.step.Address) })
	u.run.coordinator.acted(u.step.Role)

	switch {
	case err == nil:
		// It has answered that it obeys.
		u.entry.Told = true

		return u.recordBestEffort(ctx, cluster.PhaseRollingBack)
	case notSent(err), neverRan(err):
		if undone := u.withdrawRollback(ctx, before); undone != nil {
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

// withdrawRollback takes the record of a rollback back that certainly did not reach the node.
func (u *nodeUpgrade) withdrawRollback(ctx context.Context, before cluster.Entry) error {
	kept, cancel := u.run.engine.recordContext(ctx)
	defer cancel()

	said := u.entry
	u.entry = before

	err := u.record(kept, before.Phase)
	if err != nil {
		u.entry = said
	}

	return err
}

// recordRollbackIntent guards the node and records that it is about to be sent back. It
// returns only while the observation is fresh, and the step is then claimed.
func (u *nodeUpgrade) recordRollbackIntent(ctx context.Context, failed error) error {
	boot := ""

	for {
		if err := u.awaitGuards(ctx, "roll back"); err != nil {
			return err
		}

		if boot == "" {
			boot = u.observed.BootID
		}

		if u.well {
			return errWell
		}

		if u.observed.BootID != boot || !u.observed.Talos.Equal(u.entry.Target) {
			return errStale
		}

		if u.entry.Phase != cluster.PhaseRollingBack || u.entry.BootID != boot {
			u.entry.BootID = boot

			if err := u.record(ctx, cluster.PhaseRollingBack); err != nil {
				return err
			}

			u.run.emit(cluster.Event{
				Kind: cluster.EventRollingBack, Node: u.step.Node, Target: u.run.request.Target, To: u.entry.Previous, Text: failed.Error(), Err: failed,
			})
		}

		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		if u.reserve() {
			return nil
		}

		// A context that ended is noticed by the guards.
		_ = u.run.engine.clock.Sleep(ctx, minPoll)
	}
}
