// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"
	"sync"
	"time"
)

const (
	// lingering is how long the process stays after its last response, so that the response arrives.
	lingering = 2 * time.Second
	// endMost is the maximum time that cancelled calls may take to end.
	endMost = time.Minute
)

// lifetime binds all running calls of the process: they are cancelled together, and the process ends with the last
// of them.
type lifetime struct {
	leave func()
	// over is done once the process has to end.
	over context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	running int
	// pending is the timer that ends the process; nil until it has to end.
	pending *time.Timer
}

func newLifetime(leave func()) *lifetime {
	over, end := context.WithCancel(context.Background())

	return &lifetime{leave: sync.OnceFunc(leave), over: over, end: end}
}

// begin starts a call that is cancelled with the lifetime.
func (l *lifetime) begin(ctx context.Context) (bound context.Context, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.running++

	bound, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(l.over, cancel)

	if l.over.Err() != nil {
		cancel()
		l.leaveIn(endMost)
	}

	return bound, func() {
		release()
		cancel()
		l.ended()
	}
}

func (l *lifetime) ended() {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.running--

	if l.running == 0 && l.over.Err() != nil {
		l.leaveIn(lingering)
	}
}

// stop cancels all running calls, as the command line does if it is interrupted. If there are none, the process
// ends.
func (l *lifetime) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.over.Err() != nil {
		return
	}

	l.end()

	if l.running == 0 {
		l.leaveIn(0)

		return
	}

	l.leaveIn(endMost)
}

// leaveIn ends the process after the given time, and replaces an earlier timer. The lock must be held.
func (l *lifetime) leaveIn(after time.Duration) {
	if l.pending != nil {
		l.pending.Stop()
	}

	l.pending = time.AfterFunc(after, l.leave)
}

// finish returns if no call is running. Otherwise it cancels them, and the process ends with the last of them.
func (l *lifetime) finish() {
	l.mu.Lock()
	running := l.running
	l.mu.Unlock()

	if running == 0 {
		return
	}

	l.stop()
	select {}
}
