// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// queueMost is how much may wait to be written: the API server of a control
	// plane that reboots is away for a minute or two.
	queueMost = 500
	// minEventBackoff and maxEventBackoff are the pauses after a failed attempt.
	minEventBackoff = 250 * time.Millisecond
	maxEventBackoff = 5 * time.Second
)

// eventLine writes the Events about one thing in order, in the background.
type eventLine struct {
	writer *eventWriter

	mutex sync.Mutex
	// ctx ends when nothing more may be written; nil before there was anything.
	ctx    context.Context
	cancel context.CancelFunc
	queue  []saying
	// over tells that nothing more is taken, and disowned that nobody misses it.
	over, disowned bool
	// unsaid counts what there was no room or no time for.
	unsaid int
	// quiet is closed when nothing waits to be written; nil while nothing does.
	quiet chan struct{}

	wake, hurry, done chan struct{}
}

func newEventLine(sink *EventSink, about involved, clock *eventClock) *eventLine {
	return &eventLine{
		writer: newEventWriter(sink, about, clock),
		wake:   make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// add takes something to be written and returns at once.
func (l *eventLine) add(said saying) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.over {
		return
	}

	if l.queue = append(l.queue, said); len(l.queue) > queueMost {
		l.makeRoom()
	}

	if l.quiet == nil {
		l.quiet = make(chan struct{})
	}

	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancel(context.Background())

		go l.run(l.ctx)
	}

	signal(l.wake)
}

// makeRoom gives up the oldest of what matters least.
func (l *eventLine) makeRoom() {
	least := slices.MinFunc(l.queue, func(a, b saying) int { return int(a.rank) - int(b.rank) })
	index := slices.IndexFunc(l.queue, func(said saying) bool { return said.rank == least.rank })

	l.queue = slices.Delete(l.queue, index, index+1)
	l.unsaid++
}

// run writes until the context ends.
func (l *eventLine) run(ctx context.Context) {
	defer close(l.done)

	for {
		said, found := l.next(ctx)

		switch {
		case found:
			l.write(ctx, said)
		case ctx.Err() != nil:
			return
		default:
			select {
			case <-ctx.Done():
			case <-l.wake:
			}
		}
	}
}

// next is the oldest that waits. The one before has been written.
func (l *eventLine) next(ctx context.Context) (saying, bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if len(l.queue) == 0 || ctx.Err() != nil {
		if l.quiet != nil {
			close(l.quiet)
			l.quiet = nil
		}

		return saying{}, false
	}

	said := l.queue[0]
	l.queue = l.queue[1:]

	return said, true
}

// write tries until the Event is written, cannot be, or the context ends.
func (l *eventLine) write(ctx context.Context, said saying) {
	attempt := l.writer.begin(said)
	backoff := minEventBackoff

	for attempt.again(ctx) {
		timer := time.NewTimer(backoff)

		select {
		case <-ctx.Done():
		case <-timer.C:
			backoff = min(2*backoff, maxEventBackoff)
		case <-l.hurry:
			backoff = minEventBackoff
		}

		timer.Stop()

		if ctx.Err() != nil {
			l.mutex.Lock()
			l.unsaid++
			l.mutex.Unlock()

			return
		}
	}
}

// drain returns when nothing waits to be written, or when the context ends.
func (l *eventLine) drain(ctx context.Context) {
	l.mutex.Lock()
	quiet := l.quiet
	l.mutex.Unlock()

	if quiet == nil {
		return
	}

	signal(l.hurry)

	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// end writes nothing more from now on.
func (l *eventLine) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.over = true
	l.unsaid += len(l.queue)
	l.queue = nil

	if l.cancel != nil {
		l.cancel()
	}
}

// disown is end, where what was not written is somebody else's to say.
func (l *eventLine) disown() {
	l.mutex.Lock()
	l.disowned = true
	l.mutex.Unlock()

	l.end()
}

// close is end, and waits for the end of the background work. It says what was not
// written, and why.
func (l *eventLine) close() error {
	l.end()

	l.mutex.Lock()
	launched := l.ctx != nil
	l.mutex.Unlock()

	if launched {
		<-l.done
	}

	// Nobody else uses the line any more.
	if l.disowned {
		l.unsaid = 0
	}

	return l.writer.failure(l.unsaid)
}

// signal has whoever waits look again.
func signal(waiting chan<- struct{}) {
	select {
	case waiting <- struct{}{}:
	default: // somebody did already
	}
}
