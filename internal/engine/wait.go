// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// look is one look at something that is being waited for: done, or what was
// seen instead. An error ends the wait; what may heal belongs into seen.
type look func(ctx context.Context) (done bool, seen string, err error)

// waitError is a wait that ended before its condition held.
type waitError struct {
	what, seen string
	after      time.Duration
	cause      error
}

func (w *waitError) Error() string {
	text := fmt.Sprintf("waited %s for %s", w.after.Round(time.Second), w.what)
	if w.seen != "" {
		text += "; last seen: " + w.seen
	}

	return text
}

func (w *waitError) Unwrap() error { return w.cause }

// announceEvery is how often a person is told what is still being waited for.
const announceEvery = 30 * time.Second

// wait looks until the condition holds, the context ends or a look fails. The
// caller bounds it with a context from the engine's clock.
func (e *Engine) wait(ctx context.Context, node, what string, try look) error {
	return e.waitClosely(ctx, node, what, maxPoll, try)
}

// waitClosely is [Engine.wait] with pauses no longer than the given one, for
// what takes seconds and costs little to look at.
func (e *Engine) waitClosely(ctx context.Context, node, what string, most time.Duration, try look) error {
	var (
		begun     = e.clock.Now()
		announced = begun
		pause     = minPoll
		last      string
	)

	for {
		if ctx.Err() != nil {
			return &waitError{what: what, seen: last, after: e.clock.Now().Sub(begun), cause: context.Cause(ctx)}
		}

		done, seen, err := try(ctx)

		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case done && err == nil:
			return nil
		case seen != "" && (ctx.Err() == nil || last == ""):
			// What a look says that was cut off is about the time, not about what
			// is being waited for.
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
