// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// reach waits until the node answers.
func (t *turn) reach(ctx context.Context) (cluster.Machine, error) {
	return t.answered(ctx, func(cluster.Machine) string { return "" })
}

// identify waits until the node answers and tells its boot.
func (t *turn) identify(ctx context.Context) (cluster.Machine, error) {
	return t.answered(ctx, func(machine cluster.Machine) string {
		if machine.BootID == "" {
			return bootUnknown
		}

		return ""
	})
}

// answered waits for an answer of the node that lacks nothing.
func (t *turn) answered(ctx context.Context, lacks func(cluster.Machine) string) (cluster.Machine, error) {
	var machine cluster.Machine

	err := t.run.engine.wait(ctx, t.step.Node, "the Talos API of "+t.step.Node+" to answer", func(ctx context.Context) (bool, string, error) {
		var err error

		machine, err = t.run.engine.talos.Machine(ctx, t.step.Address)
		if err != nil {
			return false, err.Error(), onlyFatal(err)
		}

		missing := lacks(machine)

		return missing == "", missing, nil
	})

	return machine, err
}

// reached tells whether the machine runs what the step wants.
func (t *turn) reached(machine cluster.Machine) bool {
	return machine.Talos.Equal(t.step.To) && (!t.step.Demanded || machine.Schematic == t.step.Schematic)
}

// passed tells whether the machine is past the step already: somebody else was
// at it since the plan was made, and no version ever goes down.
func (t *turn) passed(machine cluster.Machine) bool { return t.step.To.Less(machine.Talos) }
