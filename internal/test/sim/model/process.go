// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"time"
)

// spawn runs fn in the background until it returns; its context ends with the
// given life or with the world.
func (w *World) spawn(life context.Context, fn func(ctx context.Context)) {
	if w.stopped.Load() {
		return
	}

	w.work.Go(func() { fn(life) })
}

// later runs fn under the lock after a while, unless life ends before.
func (w *World) later(life context.Context, after time.Duration, fn func()) {
	w.spawn(life, func(ctx context.Context) {
		if w.clock.Sleep(ctx, after) != nil {
			return
		}

		w.locked(func() {
			if ctx.Err() == nil {
				fn()
			}
		})
	})
}

// step is something that happens to a machine at a time after its start.
type step struct {
	at time.Duration
	do func()
}

// perform carries out steps in their order of time; it returns false when
// life ended before the last.
func (w *World) perform(ctx context.Context, timeline []step) bool {
	var passed time.Duration

	for _, next := range timeline {
		if w.clock.Sleep(ctx, next.at-passed) != nil {
			return false
		}

		passed = next.at

		w.locked(func() {
			if ctx.Err() == nil {
				next.do()
			}
		})
	}

	return ctx.Err() == nil
}

// await blocks until cond, asked under the lock, holds. It returns false when
// the context ended before.
func (w *World) await(ctx context.Context, cond func() bool) bool {
	for {
		w.mu.Lock()
		holds, changed := cond(), w.changed
		w.mu.Unlock()

		if holds {
			return ctx.Err() == nil
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// call is one client's request to a machine while it is under way.
type call struct {
	ctx  context.Context
	link context.Context
	end  context.CancelFunc
}

// begin ties a client's context to its connection to the machine: whichever
// breaks first ends the call. The lock is held.
func begin(ctx context.Context, n *node) call {
	tied, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.link, cancel)

	return call{ctx: tied, link: n.link, end: func() { stop(); cancel() }}
}

// broken tells whether the client will not see the answer. The link is asked
// itself as well: the tied context ends a moment later.
func (c call) broken() bool { return c.ctx.Err() != nil || c.link.Err() != nil }

// err is what a client sees of a call that was cut short.
func (c call) err(client context.Context) error {
	if err := client.Err(); err != nil {
		return err
	}

	return ErrConnectionLost
}
