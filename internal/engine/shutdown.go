// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// shutdown is when an operation had to stop, as far as somebody has noticed.
type shutdown struct {
	mu sync.Mutex
	// contexts are those of the operation and of its lease: whatever else ends is
	// the limit of a part of it.
	contexts []context.Context
	since    time.Time
}

// begin begins another operation.
func (h *shutdown) begin(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.contexts, h.since = []context.Context{ctx}, time.Time{}
}

// watch has the operation stop with another context as well, until that is over.
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

// operation are the contexts of the operation and of its lease.
func (h *shutdown) operation() []context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.contexts
}

// grace is how long the next thing may take that is still done after something
// has ended. Where that is the whole operation, all of them together may take no
// longer than the given time.
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

// flush waits for the last word to stand where others look, for as long as the
// lease says that it is ours to say.
func (e *Engine) flush(ctx context.Context) {
	kept, end := e.cleanupContext(ctx)
	defer end()

	bounded, cancel := e.clock.WithTimeout(kept, flushTimeout)
	defer cancel()

	for _, observer := range e.observers {
		if late, ok := observer.(cluster.Flusher); ok {
			late.Flush(bounded)
		}
	}
}

// callWhole carries out a call that takes a moment and changes something: one that is
// cut off may take effect when the lease is somebody else's.
func (e *Engine) callWhole(ctx context.Context, call func(context.Context) error) error {
	if ctx.Err() != nil {
		return cluster.Ended(ctx)
	}

	kept, end := e.recordContext(ctx)
	defer end()

	return call(kept)
}

// recordContext is a context for recording what has just taken effect: it ends a
// little after ctx does.
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

// cleanupContext is a context for what still has to be done when ctx may be over.
func (e *Engine) cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return e.cleanupWithin(ctx, stopTimeout)
}

// cleanupWithin is [Engine.cleanupContext] for what ends so long after a cancel at most.
func (e *Engine) cleanupWithin(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	kept, end := e.clock.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	calm := e.endAfterStop(kept, end, most)

	return kept, func() {
		calm()
		end()
	}
}

// endAfterStop ends a context that outlives others a little after the operation had to
// stop, whether that is so already or comes to be.
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
