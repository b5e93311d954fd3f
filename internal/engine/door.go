// SPDX-License-Identifier: MPL-2.0

package engine

import "context"

// semaphore lets one through at a time. Unlike a mutex it may be held while a port
// is asked: whoever waits for it can give up.
type semaphore chan struct{}

func newSemaphore() semaphore { return make(semaphore, 1) }

// enter waits until the door is free, or returns the cause why ctx ended.
func (d semaphore) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	select {
	case d <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d semaphore) leave() { <-d }
