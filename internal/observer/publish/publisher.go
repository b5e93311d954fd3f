// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	// heartbeat is how often the time of the last update is refreshed, and what
	// somebody else wrote is corrected.
	heartbeat = 10 * time.Second
	// patchTimeout bounds one attempt to publish.
	patchTimeout = 10 * time.Second
	// minBackoff and maxBackoff are the pauses after a failed attempt. The API
	// server of a control plane that reboots is away for a minute or two.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Publisher keeps the annotations of a store up to date with a run, and the status
// where it is a [StatusStore].
type Publisher struct {
	store   Store
	options Options
	// status is nil where the store has none.
	status *statusKeeper

	start  sync.Once
	cancel context.CancelFunc
	stop   chan struct{}
	done   chan struct{}
	wake   chan struct{}

	mutex sync.Mutex
	// wanted is what should stand, nil for what should not, as far as the run alone
	// can tell.
	wanted map[string]*string
	// rests are the halves of which before has a say in what should stand.
	rests map[string]quiet
	// before is what the store held when the run first looked; nil until then.
	before map[string]string
	// standing is what the store is known to hold. A key is missing as long as
	// nobody knows, as after an attempt that failed.
	standing map[string]*string
	// meddled counts how often somebody else changed a key.
	meddled map[string]int
	// doubtful are the keys of which an attempt may still take effect.
	doubtful map[string]bool
	// tight is why the object does not take everything that is to be said; nil while
	// it does.
	tight error
	// course is that of the run.
	course course
	// beaten is when something was last published.
	beaten time.Time
	// looked is when it was last read what stands.
	looked time.Time
	closed bool
	// lost tells that the run is not ours any more: nothing is said of it again.
	lost bool
	// flushed tells that the last word was said for as long as it is ours to say,
	// unsaid what of it does not stand.
	flushed bool
	unsaid  error
	// attempting is held for one attempt: an older state can never be written over
	// a newer one.
	attempting chan struct{}
	// giveUp ends the attempt under way; nil while there is none.
	giveUp context.CancelFunc
	// identity is that of the object of which it is known what stands.
	identity string
}

// Options are what a publisher does beyond the annotations of a run.
type Options struct {
	// Announce tells that somebody named the object, so that it is kept true also
	// where an apply finds nothing to do.
	Announce bool
	// Available tells which versions a cluster that runs these could be upgraded
	// to next, zero where it could not; a zero version that runs is not known. It
	// returns at once. Nil publishes nothing about it.
	Available func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)
}

// New makes a publisher. [Publisher.Close] must be called in the end.
func New(store Store, options Options) *Publisher {
	made := &Publisher{
		store:    store,
		options:  options,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
		wanted:   map[string]*string{},
		rests:    map[string]quiet{},
		standing: map[string]*string{},
		meddled:  map[string]int{},
		doubtful: map[string]bool{},

		attempting: make(chan struct{}, 1),
	}

	if store, ok := store.(StatusStore); ok {
		made.status = newStatusKeeper(store)
	}

	return made
}

// Observe takes note of an event and returns at once.
func (p *Publisher) Observe(event cluster.Event) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if event.Kind == cluster.EventRunLost {
		// The annotations are somebody else's now, the unpublished ones too. What is
		// still being ended says so of no turn of ours any more.
		p.lost = true
		p.forget()

		return
	}

	said, next := translate(event, p.course, p.options.Available)
	if p.closed || p.lost || len(said.changes) == 0 {
		return
	}

	maps.Copy(p.wanted, said.changes)
	maps.DeleteFunc(p.rests, func(status string, _ quiet) bool { return said.changes[status] != nil })
	maps.Copy(p.rests, said.rests)

	if event.Kind == cluster.EventRunDone {
		talos, kubernetes := halves(event)
		talos.end(p.wanted)
		kubernetes.end(p.wanted)
	}

	p.course, p.flushed = next, false

	p.start.Do(p.launch)

	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// forget leaves nothing to say, and ends an attempt to say something. The lock is
// held.
func (p *Publisher) forget() {
	p.wanted, p.rests, p.course.running = map[string]*string{}, map[string]quiet{}, false

	if p.giveUp != nil {
		p.giveUp()
	}
}

func (p *Publisher) launch() {
	var ctx context.Context

	ctx, p.cancel = context.WithCancel(context.Background())

	go p.run(ctx)
}

// run publishes until it is stopped.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.done)

	var backoff time.Duration

	for {
		err := p.publish(ctx)

		switch {
		case err == nil:
			backoff = 0
		case ctx.Err() != nil:
			return
		default:
			backoff = longer(backoff)
		}

		if !p.pause(backoff) {
			return
		}
	}
}

// longer is the pause after another attempt that failed.
func longer(backoff time.Duration) time.Duration {
	return min(max(minBackoff, 2*backoff), maxBackoff)
}

// pause waits for the next reason to publish: after a failure the end of the
// back-off, otherwise an event, the heartbeat or another attempt at the status. It
// is false when the publisher is being closed.
func (p *Publisher) pause(backoff time.Duration) bool {
	wake, wait := p.wake, p.untilBeat()
	if backoff > 0 {
		wake, wait = nil, backoff
	}

	if p.status != nil {
		wait = sooner(wait, p.status.until())
	}

	var timer <-chan time.Time

	if wait > 0 {
		ticking := time.NewTimer(wait)
		defer ticking.Stop()

		timer = ticking.C
	}

	select {
	case <-p.stop:
		return false
	case <-wake:
	case <-timer:
	}

	return true
}

// sooner is the lesser of two times to wait, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}

	return min(a, b)
}

// untilBeat is the time until the next heartbeat, 0 when none is due.
func (p *Publisher) untilBeat() time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if !p.course.running {
		return 0
	}

	return max(time.Until(p.beaten.Add(heartbeat)), time.Nanosecond)
}
