// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// occupy cordons the node on the very observation on which the guards held. No
// other turn looks or cordons meanwhile.
func (t *turn) occupy(ctx context.Context) error {
	announced := false

	return t.guardedThen(ctx, "cordon", func(ctx context.Context) (bool, string, error) {
		if !announced {
			t.doing(cluster.StepCordon, "")

			announced = true
		}

		return t.cordon(ctx)
	})
}

// cordon marks the node unschedulable, unless somebody else already did.
func (t *turn) cordon(ctx context.Context) (bool, string, error) {
	t.traffic.disturb(t.step.Node)

	ours, err := t.kubernetes.Cordon(ctx, t.step.Node, t.run.run)
	if err != nil {
		// A cordon whose reply was lost carries our mark: tidy finds it.
		t.cordoned = true

		return false, err.Error(), onlyFatal(err)
	}

	t.cordoned = ours

	return true, "", nil
}

// tidy takes our cordon back from a node whose turn failed before it was
// armed. It has a little time of its own, also after the run was cancelled.
func (t *turn) tidy(ctx context.Context) {
	if t.armed || !t.cordoned {
		return
	}

	bounded, cancel := t.aftermath(ctx)
	defer cancel()

	if err := t.uncordon(bounded); err != nil {
		t.emit(cluster.Event{Kind: cluster.EventWarning, Node: t.step.Node, Text: "the node could not be uncordoned: " + err.Error()})
	}
}

// uncordon takes our own cordon back; the adapter leaves any other alone.
func (t *turn) uncordon(ctx context.Context) error {
	err := t.wait(ctx, t.step.Node, "the uncordon of "+t.step.Node, func(ctx context.Context) (bool, string, error) {
		if ok, seen, err := t.lock.holds(ctx); err != nil || !ok {
			return false, seen, err
		}

		if err := t.kubernetes.Uncordon(ctx, t.step.Node); err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		return true, "", nil
	})
	if err == nil {
		t.cordoned = false
	}

	return err
}
