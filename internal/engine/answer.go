// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// awaitAnswer waits until the node answers.
func (u *nodeUpgrade) awaitAnswer(ctx context.Context) (cluster.Machine, error) {
	return u.awaitMachine(ctx, func(cluster.Machine) string { return "" })
}

// awaitBootID waits until the node answers and tells its boot.
func (u *nodeUpgrade) awaitBootID(ctx context.Context) (cluster.Machine, error) {
	return u.awaitMachine(ctx, func(machine cluster.Machine) string {
		if machine.BootID == "" {
			return bootUnknown
		}

		return ""
	})
}

// awaitMachine waits for an answer of the node that lacks nothing.
func (u *nodeUpgrade) awaitMachine(ctx context.Context, lacks func(cluster.Machine) string) (cluster.Machine, error) {
	var machine cluster.Machine

	err := u.run.engine.wait(ctx, u.step.Node, "the Talos API of "+u.step.Node+" to answer", func(ctx context.Context) (bool, string, error) {
		var err error

		machine, err = u.run.engine.talos.Machine(ctx, u.step.Address)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		missing := lacks(machine)

		return missing == "", missing, nil
	})

	return machine, err
}

// atTarget tells whether the machine runs what the step wants.
func (u *nodeUpgrade) atTarget(machine cluster.Machine) bool {
	return machine.Talos.Equal(u.step.To) && (!u.step.Demanded || machine.Schematic == u.step.Schematic)
}

// beyondTarget tells whether the machine is past the step already: somebody else was
// at it since the plan was made, and no version ever goes down.
func (u *nodeUpgrade) beyondTarget(machine cluster.Machine) bool {
	return u.step.To.Less(machine.Talos)
}
