// SPDX-License-Identifier: MPL-2.0

package engine

import "context"

// gate lets one through at a time. Unlike a mutex it may be held while a port
// is asked: whoever waits for it can give up.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

// enter waits until the gate is free, or returns the cause why ctx ended.
func (g gate) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g gate) leave() { <-g }
