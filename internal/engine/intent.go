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

// claim tells whether the guards looked recently enough to act on it, and
// notes that this is done: what another turn does from now on, it does after a
// look of its own that is newer.
func (t *turn) claim() bool {
	return t.run.engine.clock.Now().Sub(t.looked) <= observationAge && t.run.traffic.claim(t.steps, t.step.Role, t.occupied)
}

// intend guards the node and records the intent. The record names the boot that
// the guards saw: a node that rebooted since its turn began would otherwise
// look as if it had gone through the reboot that its install still needs. It
// returns only while the observation is fresh, and the step is then claimed.
func (t *turn) intend(ctx context.Context, before string) error {
	for {
		if err := t.guarded(ctx, before); err != nil {
			return errors.Join(err, t.recall(ctx))
		}

		if t.reached(t.seen) || t.passed(t.seen) {
			return errors.Join(errAlreadyThere, t.recall(ctx))
		}

		if !t.seen.Talos.Equal(t.step.From) {
			return errors.Join(errStale, t.recall(ctx))
		}

		if !t.open || t.entry.BootID != t.seen.BootID {
			t.entry.BootID, t.entry.Previous, t.entry.PreviousSchematic = t.seen.BootID, t.seen.Talos, t.seen.Schematic
			t.entry.Platform, t.entry.PreviousEtcd = t.seen.Platform, t.member

			if err := t.record(ctx, cluster.PhaseIntent); err != nil {
				return errors.Join(err, t.unrecord(ctx))
			}
		}

		if ctx.Err() != nil {
			// It was recorded when the time was up, and nothing came of it.
			return errors.Join(context.Cause(ctx), t.recall(ctx))
		}

		// Installing what another run installs as well could cost the node both of its
		// systems, so the lease is read, however fresh it is.
		ok, _, err := t.run.lock.look(ctx)

		switch {
		case err != nil:
			return errors.Join(err, t.recall(ctx))
		case ok && t.claim():
			return nil
		}

		// A context that ended is noticed by the guards.
		_ = t.run.engine.clock.Sleep(ctx, pollFirst)
	}
}

// recall takes an intent back that nothing was done about, unless it is another
// run's affair by now.
func (t *turn) recall(ctx context.Context) error {
	if _, _, lost := t.run.lock.state(); lost != nil || !t.open {
		return nil
	}

	kept, cancel := t.run.engine.outlasting(ctx)
	defer cancel()

	return t.forget(kept)
}

// unrecord takes an intent back of whose record nobody knows whether it was
// written. Where that cannot be had the node is left as one that has none: the next
// run looks at it all the same.
func (t *turn) unrecord(ctx context.Context) error {
	kept, end := t.run.engine.outlasting(ctx)
	defer end()

	bounded, cancel := t.run.engine.clock.WithTimeout(kept, hurriedPatience)
	defer cancel()

	err := t.forget(bounded)
	t.open = false

	return err
}

// unsent takes the intent back of a call that did not reach the node.
func (t *turn) unsent(ctx context.Context, cause error) error {
	if err := t.recall(ctx); err != nil {
		return errors.Join(cause, err)
	}

	return fmt.Errorf("%w: %w", errNotSent, cause)
}
