// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// observationAge is how old the observation behind a disruptive call may be.
// Recording may take longer than that while the API server is away, and what
// took it away may be what the guards look for.
const observationAge = 10 * time.Second

// errAlreadyThere is a node that reached its target without us.
var errAlreadyThere = errors.New("the node runs its target already")

// errStale is a node that no longer runs what the plan was made for: the image
// was chosen for another system, and may even skip a release line.
var errStale = errors.New("the node runs neither what the plan was made for nor its target")

// reserve tells whether the guards looked recently enough to act on it, and
// notes that this is done: what another upgrade does from now on, it does after a
// look of its own that is newer.
func (u *nodeUpgrade) reserve() bool {
	return u.run.engine.clock.Now().Sub(u.observedAt) <= observationAge && u.run.coordinator.reserve(u.steps, u.step.Role, u.wasCordoned)
}

// recordIntent guards the node and records the intent. The record names the boot that
// the guards saw: a node that rebooted since its upgrade began would otherwise
// look as if it had gone through the reboot that its install still needs. It
// returns only while the observation is fresh, and the step is then claimed.
func (u *nodeUpgrade) recordIntent(ctx context.Context, before string) error {
	for {
		if err := u.awaitGuards(ctx, before); err != nil {
			return errors.Join(err, u.withdrawIntent(ctx))
		}

		if u.atTarget(u.observed) || u.beyondTarget(u.observed) {
			return errors.Join(errAlreadyThere, u.withdrawIntent(ctx))
		}

		if !u.observed.Talos.Equal(u.step.From) {
			return errors.Join(errStale, u.withdrawIntent(ctx))
		}

		if !u.pending || u.entry.BootID != u.observed.BootID {
			u.entry.BootID, u.entry.Previous, u.entry.PreviousSchematic = u.observed.BootID, u.observed.Talos, u.observed.Schematic
			u.entry.Platform, u.entry.PreviousEtcd = u.observed.Platform, u.member

			if err := u.record(ctx, cluster.PhaseIntent); err != nil {
				return errors.Join(err, u.clearDoubtfulIntent(ctx))
			}
		}

		if ctx.Err() != nil {
			// It was recorded when the time was up, and nothing came of it.
			return errors.Join(context.Cause(ctx), u.withdrawIntent(ctx))
		}

		// Installing what another run installs as well could cost the node both of its
		// systems, so the lease is read, however fresh it is.
		ok, _, err := u.run.lock.renewOnce(ctx)

		switch {
		case err != nil:
			return errors.Join(err, u.withdrawIntent(ctx))
		case ok && u.reserve():
			return nil
		}

		// A context that ended is noticed by the guards.
		_ = u.run.engine.clock.Sleep(ctx, minPoll)
	}
}

// withdrawIntent takes an intent back that nothing was done about, unless it is another
// run's affair by now.
func (u *nodeUpgrade) withdrawIntent(ctx context.Context) error {
	if _, _, lost := u.run.lock.state(); lost != nil || !u.pending {
		return nil
	}

	kept, cancel := u.run.engine.recordContext(ctx)
	defer cancel()

	return u.forget(kept)
}

// clearDoubtfulIntent takes an intent back of whose record nobody knows whether it was
// written. Where that cannot be had the node is left as one that has none: the next
// run looks at it all the same.
func (u *nodeUpgrade) clearDoubtfulIntent(ctx context.Context) error {
	kept, end := u.run.engine.recordContext(ctx)
	defer end()

	bounded, cancel := u.run.engine.clock.WithTimeout(kept, stopGrace)
	defer cancel()

	err := u.forget(bounded)
	u.pending = false

	return err
}

// withdrawUnsent takes the intent back of a call that did not reach the node.
func (u *nodeUpgrade) withdrawUnsent(ctx context.Context, cause error) error {
	if err := u.withdrawIntent(ctx); err != nil {
		return errors.Join(cause, err)
	}

	return fmt.Errorf("%w: %w", errNotSent, cause)
}
