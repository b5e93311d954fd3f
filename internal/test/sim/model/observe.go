// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// Observe is a client's question to a machine: it is recorded under what, may
// be struck by a fault, and returns the state when the machine answers.
func (w *World) Observe(ctx context.Context, name, what string) (state NodeState, err error) {
	if err := ctx.Err(); err != nil {
		return NodeState{}, err
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, what); err == nil {
			state = w.state(n)
		}
	})

	return state, err
}

// ReadBootID is the kernel's boot ID.
func (w *World) ReadBootID(ctx context.Context, name string) (string, error) {
	state, err := w.Observe(ctx, name, "boot_id")

	return state.BootID, err
}

// Version is the Talos version that runs, without v.
func (w *World) Version(ctx context.Context, name string) (string, error) {
	state, err := w.Observe(ctx, name, "version")

	return state.Talos, err
}

// MachineStatus is stage, readiness and unmet conditions; the rest of the
// state comes along.
func (w *World) MachineStatus(ctx context.Context, name string) (NodeState, error) {
	return w.Observe(ctx, name, "machine")
}

// observe finds a machine that answers, after the faults had their say. The
// lock is held.
func (w *World) observe(name, what string) (*node, error) {
	n, err := w.reach(name)
	if err != nil {
		return nil, err
	}

	if fault, found := w.takeFault(n.name, StepObserve); found {
		w.fallSilent(n, fault, 0)

		return w.reach(name)
	}

	w.record(n.name, history.KindRead, map[string]string{"what": what})

	return n, nil
}
