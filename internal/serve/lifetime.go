// SPDX-License-Identifier: MPL-2.0

package serve

import (
	"context"
	"sync"
	"time"
)

const (
	// lingering is how long the process stays after its last answer, so that it
	// arrives.
	lingering = 2 * time.Second
	// endMost is how long what was cancelled may take to come to its end.
	endMost = time.Minute
)

// lifetime is what all that is going on in the process has in common: it is
// cancelled together, and the process ends with the last of it.
type lifetime struct {
	leave func()
	// over ends when the process has to.
	over context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	running int
	// pending is when the process ends at the latest, once it has to.
	pending *time.Timer
}

func newLifetime(leave func()) *lifetime {
	over, end := context.WithCancel(context.Background())

	return &lifetime{leave: sync.OnceFunc(leave), over: over, end: end}
}

// begin begins something that is cancelled with the lifetime.
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

// stop cancels all that is going on, like the command line does when it is
// interrupted. Where that is nothing, the process ends.
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

// leaveIn ends the process after that time, and no other; with the lock held.
func (l *lifetime) leaveIn(after time.Duration) {
	if l.pending != nil {
		l.pending.Stop()
	}

	l.pending = time.AfterFunc(after, l.leave)
}

// finish returns where nothing is going on. Otherwise it cancels that, and the
// process ends with it.
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
