// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// shutdown is when an operation had to stop, as first noticed.
type shutdown struct {
	mu sync.Mutex
	// contexts are those of the operation and of its lease. If any other context ends, only a part of the
	// operation does.
	contexts []context.Context
	since    time.Time
}

// begin begins another operation.
func (h *shutdown) begin(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.contexts, h.since = []context.Context{ctx}, time.Time{}
}

// watch adds a context whose end stops the operation, until the returned function is called.
func (h *shutdown) watch(ctx context.Context) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()

	whole := h.contexts
	h.contexts = append(slices.Clone(whole), ctx)

	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()

		h.contexts = whole
	}
}

// operation returns the contexts of the operation and of its lease.
func (h *shutdown) operation() []context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.contexts
}

// grace returns how long the next action may take that is still taken after something has ended. If the whole
// operation has ended, all such actions together may take no longer than the given time.
func (h *shutdown) grace(now time.Time, most time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()

	if !slices.ContainsFunc(h.contexts, func(ctx context.Context) bool { return ctx.Err() != nil }) {
		return cleanupTimeout
	}

	if h.since.IsZero() {
		h.since = now
	}

	return max(minStopGrace, min(stopGrace, most-now.Sub(h.since)))
}

// flush waits until the observers have passed on the last events. It asks all of them at once, so that one whose
// cluster is slow does not take the time of the others.
func (e *Engine) flush(ctx context.Context) {
	kept, end := e.cleanupContext(ctx)
	defer end()

	bounded, cancel := e.clock.WithTimeout(kept, flushTimeout)
	defer cancel()

	var all sync.WaitGroup

	for _, observer := range e.observers {
		if late, ok := observer.(cluster.Flusher); ok {
			all.Go(func() { late.Flush(bounded) })
		}
	}

	all.Wait()
}

// callWhole makes a short call that changes something, and does not cut it off: otherwise it could take effect
// when somebody else has the lease.
func (e *Engine) callWhole(ctx context.Context, call func(context.Context) error) error {
	if ctx.Err() != nil {
		return cluster.Ended(ctx)
	}

	kept, end := e.recordContext(ctx)
	defer end()

	return call(kept)
}

// recordContext returns a context for recording what has just taken effect: it ends a little after ctx.
func (e *Engine) recordContext(ctx context.Context) (context.Context, context.CancelFunc) {
	kept, end := context.WithCancel(context.WithoutCancel(ctx))
	calm := e.endAfterStop(kept, end, stopTimeout)
	release := context.AfterFunc(ctx, func() {
		_ = e.clock.Sleep(kept, e.shutdown.grace(e.clock.Now(), stopTimeout))

		end()
	})

	return kept, func() {
		release()
		calm()
		end()
	}
}

// cleanupContext returns a context for what has to be done even if ctx has ended.
func (e *Engine) cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return e.cleanupWithin(ctx, stopTimeout)
}

// cleanupWithin is [Engine.cleanupContext] for actions that end no later than the given time after a cancel.
func (e *Engine) cleanupWithin(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	kept, end := e.clock.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	calm := e.endAfterStop(kept, end, most)

	return kept, func() {
		calm()
		end()
	}
}

// endAfterStop ends a context that outlives others a little after the operation had to stop, now or in the
// future.
func (e *Engine) endAfterStop(kept context.Context, end context.CancelFunc, most time.Duration) (calm func()) {
	var releases []func() bool

	for _, whole := range e.shutdown.operation() {
		releases = append(releases, context.AfterFunc(whole, func() {
			_ = e.clock.Sleep(kept, e.shutdown.grace(e.clock.Now(), most))

			end()
		}))
	}

	return func() {
		for _, release := range releases {
			release()
		}
	}
}
