// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// look is one attempt of a wait: it reports whether the wait is over, or what was seen instead. An error ends the
// wait; a problem that may heal belongs in seen.
type look func(ctx context.Context) (done bool, seen string, err error)

// announceEvery is how often people are told what is still being waited for.
const announceEvery = 30 * time.Second

// lookAgain is how often a run looks for another node to move while upgrades are in progress and none of them
// ends.
const lookAgain = 30 * time.Second

// wait calls try until the condition holds, the context ends or try fails. The caller bounds it with a context
// from the engine's clock.
func (e *Engine) wait(ctx context.Context, node, what string, try look) error {
	return e.waitClosely(ctx, node, what, maxPoll, try)
}

// waitClosely is [Engine.wait] with pauses no longer than the given one, for what takes seconds and is cheap to
// poll.
func (e *Engine) waitClosely(ctx context.Context, node, what string, most time.Duration, try look) error {
	return e.waitPaced(ctx, node, what, minPoll, most, try)
}

// waitPaced is [Engine.wait] with pauses that grow from the first to the longest one.
func (e *Engine) waitPaced(ctx context.Context, node, what string, first, most time.Duration, try look) error {
	var (
		begun     = e.clock.Now()
		announced = begun
		pause     = first
		last      string
	)

	for {
		if ctx.Err() != nil {
			return &say.WaitError{What: what, Seen: last, After: e.clock.Now().Sub(begun), Cause: cluster.Ended(ctx)}
		}

		done, seen, err := try(ctx)

		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case done && err == nil:
			return nil
		case seen != "" && (ctx.Err() == nil || last == "" && errors.Is(cluster.Ended(ctx), context.DeadlineExceeded)):
			// What an attempt that was cut off reports is about the timeout or the interruption, and not about
			// what is being waited for.
			last = seen
		}

		if e.clock.Now().Sub(announced) >= announceEvery {
			announced = e.clock.Now()
			e.emit(cluster.Event{Kind: cluster.EventWaiting, Node: node, Text: what + ": " + last})
		}

		// A context that ended is noticed above.
		_ = e.clock.Sleep(ctx, pause)
		pause = min(pause+pause/2, most)
	}
}

// Clock is where the engine gets the time from: every poll, lease and timeout uses it, so that a simulation can
// run faster than real time. Deadlines of single calls belong to the ports and are always real.
type Clock interface {
	Now() time.Time
	// Sleep returns after d, or earlier with the cause if ctx ends.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout returns a context that ends after d on this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// RealClock returns a clock that shows the real time.
func RealClock() Clock { return realClock{} }

// allowance is the time that something may take: its context ends when the time is used up. The time stands still
// while it is held.
type allowance struct {
	clock Clock

	mu    sync.Mutex
	until time.Time
	held  time.Time // zero while it is not
	most  time.Duration
}

// allow begins an allowance. The returned function ends it and everything that belongs to it.
func allow(ctx context.Context, clock Clock, length time.Duration) (context.Context, *allowance, func()) {
	bounded, end := context.WithCancelCause(ctx)
	a := &allowance{clock: clock, until: clock.Now().Add(length)}
	over := make(chan struct{})

	go func() {
		defer close(over)

		for left := length; left > 0; left = a.left() {
			// The time that is left does not decrease while it is held.
			if clock.Sleep(bounded, max(left, time.Second)) != nil {
				return
			}
		}

		end(cluster.Late("the time for the node (" + length.String() + ") was up"))
	}()

	return bounded, a, func() { end(nil); <-over }
}

func (a *allowance) left() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.until.Add(a.spared()).Sub(a.clock.Now())
}

// spared returns for how long it has been held so far.
func (a *allowance) spared() time.Duration {
	if a.held.IsZero() {
		return 0
	}

	return min(a.clock.Now().Sub(a.held), a.most)
}

// hold stops the time until the returned function is called, but for no longer than the given time.
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
		return cluster.Ended(ctx)
	case <-timer.C:
		return nil
	}
}

func (realClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, cluster.Unanswered(d))
}

// semaphore admits as many holders at a time as it has places. Unlike a mutex it may be held during a call of a
// port, because waiting for it ends with a context.
type semaphore chan struct{}

func newSemaphore(places int) semaphore { return make(semaphore, places) }

// enter waits for a place, or returns the cause if ctx ends.
func (d semaphore) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return cluster.Ended(ctx)
	}

	select {
	case d <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cluster.Ended(ctx)
	}
}

func (d semaphore) leave() { <-d }

// permanentOnly returns an error that waiting does not cure, such as a lost lease, and nil for all others.
func permanentOnly(err error) error {
	if cluster.Heals(err) && !errors.Is(err, say.ErrLeaseLost) {
		return nil
	}

	return err
}
