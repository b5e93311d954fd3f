// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// occupy cordons the node, or ends with errNoRoom while it has not touched it.
// Where this run has every node that could take the pods, it waits for another
// turn to end; only then may a new plan find something to do.
func (t *turn) occupy(ctx context.Context) error {
	for announced := false; ; announced = true {
		ended := t.run.traffic.next()

		err := t.occupyNow(ctx)

		var full *noPlaceError
		if !errors.As(err, &full) {
			return err
		}

		if !announced {
			t.run.emit(cluster.Event{Kind: cluster.EventWaiting, Node: t.step.Node, Text: t.step.Node + " waits for its turn: " + full.Error()})
		}

		if !t.idle(ctx, ended) {
			return err
		}
	}
}

// idle waits until a turn has ended, or is true after a while in which none did.
func (t *turn) idle(ctx context.Context, ended <-chan struct{}) bool {
	bounded, cancel := t.run.engine.clock.WithTimeout(ctx, lookAgain)
	defer cancel()

	select {
	case <-ended:
		return false
	case <-bounded.Done():
		return ctx.Err() == nil
	}
}

// occupyNow cordons the node on the very observation on which the guards held.
// No other turn looks or cordons meanwhile; to wait for that is no matter of
// the guards and of their patience.
func (t *turn) occupyNow(ctx context.Context) error {
	asked := t.run.engine.clock.Now()

	if err := t.run.traffic.cordoning.enter(ctx); err != nil {
		if !t.armed && !t.cordoned && errors.Is(err, context.DeadlineExceeded) {
			return errNoRoom
		}

		return fmt.Errorf("other nodes were being cordoned: %w", err)
	}

	defer t.run.traffic.cordoning.leave()

	// What the others took must not be missing when the node is on its way: a
	// new turn has all of its time.
	if waited := t.run.engine.clock.Now().Sub(asked); !t.armed && !t.cordoned && waited >= t.run.request.Policy.NodeTimeout/4 {
		return errNoRoom
	}

	announced := false

	return t.guardedThen(ctx, "cordon", func(ctx context.Context) (bool, string, error) {
		if err := t.run.touch(t.step.Node); err != nil {
			return false, "", err
		}

		if !announced {
			t.doing(cluster.StepCordon, "")

			announced = true
		}

		return t.cordon(ctx)
	})
}

// cordon marks the node unschedulable, unless somebody else already did.
func (t *turn) cordon(ctx context.Context) (bool, string, error) {
	t.run.traffic.disturb(t.step.Node)

	var ours bool

	err := t.run.engine.once(ctx, func(ctx context.Context) (err error) {
		ours, err = t.run.engine.kubernetes.Cordon(ctx, t.step.Node, t.run.engine.run)

		return err
	})
	if err != nil {
		// A cordon whose reply was lost carries our mark: tidy finds it.
		t.cordoned = true

		return false, err.Error(), onlyFatal(err)
	}

	t.cordoned = ours

	return true, "", nil
}

// tidy takes our cordon back from a node whose turn failed while the journal
// had nothing open about it. It has a little time of its own, also after the run was cancelled.
func (t *turn) tidy(ctx context.Context) {
	if t.open || !t.cordoned {
		return
	}

	bounded, cancel := t.run.engine.aftermath(ctx)
	defer cancel()

	if err := t.uncordon(bounded); err != nil {
		t.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: "the node could not be uncordoned: " + err.Error()})
	}
}

// uncordon takes our own cordon back; the adapter leaves any other alone.
func (t *turn) uncordon(ctx context.Context) error {
	err := t.run.engine.wait(ctx, t.step.Node, "the uncordon of "+t.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := t.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		if err := t.run.engine.once(ctx, func(ctx context.Context) error { return t.run.engine.kubernetes.Uncordon(ctx, t.step.Node) }); err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		return true, "", nil
	})
	if err == nil {
		t.cordoned = false
	}

	return err
}
