// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"sync"
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

// allowance is the time that something may take: a context that ends when it is
// used up. It stands still while it is held.
type allowance struct {
	clock Clock

	mu    sync.Mutex
	until time.Time
	held  time.Time // zero while it is not
	most  time.Duration
}

// allow begins an allowance. The returned function ends it and everything that
// belongs to it.
func allow(ctx context.Context, clock Clock, length time.Duration) (context.Context, *allowance, func()) {
	bounded, end := context.WithCancelCause(ctx)
	a := &allowance{clock: clock, until: clock.Now().Add(length)}
	over := make(chan struct{})

	go func() {
		defer close(over)

		for left := length; left > 0; left = a.left() {
			// What is left does not get less while it is held.
			if clock.Sleep(bounded, max(left, time.Second)) != nil {
				return
			}
		}

		end(context.DeadlineExceeded)
	}()

	return bounded, a, func() { end(nil); <-over }
}

func (a *allowance) left() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.until.Add(a.spared()).Sub(a.clock.Now())
}

// spared is for how long it was held so far.
func (a *allowance) spared() time.Duration {
	if a.held.IsZero() {
		return 0
	}

	return min(a.clock.Now().Sub(a.held), a.most)
}

// hold lets it stand still until the returned function is called, for the given
// time at most.
func (a *allowance) hold(most time.Duration) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.held, a.most = a.clock.Now(), most

	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()

		a.until, a.held = a.until.Add(a.spared()), time.Time{}
	}
}

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
