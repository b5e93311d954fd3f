// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// cordonWhenAllowed cordons the node, or ends with errNoRoom while it has not touched it.
// Where this run has every node that could take the pods, it waits for another
// upgrade to end; only then may a new plan find something to do.
func (u *nodeUpgrade) cordonWhenAllowed(ctx context.Context) error {
	for announced := false; ; announced = true {
		ended := u.run.coordinator.peerDone()

		err := u.cordonGuarded(ctx)

		var full *noPlaceError
		if !errors.As(err, &full) {
			return err
		}

		if !announced {
			u.run.emit(cluster.Event{Kind: cluster.EventWaiting, Node: u.step.Node, Text: u.step.Node + " waits for its turn: " + full.Error()})
		}

		if !u.awaitPeer(ctx, ended) {
			return err
		}
	}
}

// awaitPeer waits until an upgrade has ended, or is true after a while in which none did.
func (u *nodeUpgrade) awaitPeer(ctx context.Context, ended <-chan struct{}) bool {
	bounded, cancel := u.run.engine.clock.WithTimeout(ctx, lookAgain)
	defer cancel()

	select {
	case <-ended:
		return false
	case <-bounded.Done():
		return ctx.Err() == nil
	}
}

// cordonGuarded cordons the node on the very observation on which the guards held.
// No other upgrade looks or cordons meanwhile; to wait for that is no matter of
// the guards and of their patience.
func (u *nodeUpgrade) cordonGuarded(ctx context.Context) error {
	asked := u.run.engine.clock.Now()

	if err := u.run.coordinator.cordoning.enter(ctx); err != nil {
		if !u.mayHaveInstalled && !u.cordoned && errors.Is(err, context.DeadlineExceeded) {
			return errYield
		}

		return fmt.Errorf("other nodes were being cordoned: %w", err)
	}

	defer u.run.coordinator.cordoning.leave()

	// What the others took must not be missing when the node is on its way: a
	// new upgrade has all of its time.
	if waited := u.run.engine.clock.Now().Sub(asked); !u.mayHaveInstalled && !u.cordoned && waited >= u.run.request.Policy.NodeTimeout/4 {
		return errYield
	}

	announced := false

	return u.awaitGuardsThen(ctx, "cordon", func(ctx context.Context) (bool, string, error) {
		if err := u.run.beginDisturbing(u.step.Node); err != nil {
			return false, "", err
		}

		if !announced {
			u.emitStep(cluster.StepCordon, "")

			announced = true
		}

		return u.cordon(ctx)
	})
}

// cordon marks the node unschedulable, unless somebody else already did.
func (u *nodeUpgrade) cordon(ctx context.Context) (bool, string, error) {
	u.run.coordinator.disturb(u.step.Node)

	var ours bool

	err := u.run.engine.callWhole(ctx, func(ctx context.Context) (err error) {
		ours, err = u.run.engine.kubernetes.Cordon(ctx, u.step.Node, u.run.engine.runID)

		return err
	})
	if err != nil {
		// A cordon whose reply was lost carries our mark: tidy finds it.
		u.cordoned = true

		return false, err.Error(), permanentOnly(err)
	}

	u.cordoned = ours

	return true, "", nil
}

// cleanUp takes our cordon back from a node whose upgrade failed while the journal
// had nothing open about it. It has a little time of its own, also after the run was cancelled.
func (u *nodeUpgrade) cleanUp(ctx context.Context) {
	if u.pending || !u.cordoned {
		return
	}

	bounded, cancel := u.run.engine.cleanupContext(ctx)
	defer cancel()

	if err := u.uncordon(bounded); err != nil {
		u.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: u.step.Node, Text: "the node could not be uncordoned: " + err.Error()})
	}
}

// uncordon takes our own cordon back; the adapter leaves any other alone.
func (u *nodeUpgrade) uncordon(ctx context.Context) error {
	err := u.run.engine.wait(ctx, u.step.Node, "the uncordon of "+u.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := u.run.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		if err := u.run.engine.callWhole(ctx, func(ctx context.Context) error { return u.run.engine.kubernetes.Uncordon(ctx, u.step.Node) }); err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		return true, "", nil
	})
	if err == nil {
		u.cordoned = false
	}

	return err
}
