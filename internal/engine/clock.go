// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"time"
)

// Clock is where the engine takes the time from: every poll, lease and timeout
// goes through it, so that a simulation may run faster than the world. Deadlines
// of single calls belong to the ports and are always real.
type Clock interface {
	Now() time.Time
	// Sleep returns after d, or earlier with the cause when ctx is done.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is a context that ends after d on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// RealClock is the clock on the wall.
func RealClock() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

func (realClock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func (realClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, context.DeadlineExceeded)
}
