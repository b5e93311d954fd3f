// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
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

// publishEnd has what was said of a run stand where others look, unless another run
// has taken over at the very end. It tells whether the word is still this run's.
func (e *Engine) publishEnd(ctx context.Context, held *lock, failed error) bool {
	kept, end := e.cleanupContext(ctx)
	defer end()

	_, _, err := held.holds(kept)
	lost := errors.Is(err, ErrLeaseLost)

	if lost && !errors.Is(failed, ErrLeaseLost) {
		e.emit(cluster.Event{Kind: cluster.EventRunLost, Text: err.Error(), Err: err})
	}

	e.flush(ctx)

	return !lost && !errors.Is(failed, ErrLeaseLost)
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
		return context.Cause(ctx)
	}

	kept, end := e.recordContext(ctx)
	defer end()

	return call(kept)
}
