// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// heartbeat is how often the time of the last update is refreshed.
	heartbeat = 10 * time.Second
	// patchTimeout bounds one attempt to publish.
	patchTimeout = 10 * time.Second
	// minBackoff and maxBackoff are the pauses after a failed attempt. The API
	// server of a control plane that reboots is away for a minute or two.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Store is the object that carries the annotations.
type Store interface {
	// Patch sets the given annotations and removes those that are nil, in one
	// request. Others stay as they are.
	Patch(ctx context.Context, changes map[string]*string) error
	// Read are the annotations of the object; empty when it does not exist.
	Read(ctx context.Context) (map[string]string, error)
	// String names the object for people.
	String() string
}

// Publisher keeps the annotations of a store up to date with a run.
type Publisher struct {
	store Store

	start  sync.Once
	cancel context.CancelFunc
	stop   chan struct{}
	done   chan struct{}
	wake   chan struct{}

	mutex sync.Mutex
	// wanted is what should stand, nil for what should not.
	wanted map[string]*string
	// standing is what the store is known to hold. A key is missing as long as
	// nobody knows, as after an attempt that failed.
	standing map[string]*string
	// running tells that the heartbeat beats.
	running bool
	// beaten is when something was last published.
	beaten time.Time
	closed bool
	// flushed tells that the last word was said for as long as it is ours to say,
	// unsaid what of it does not stand.
	flushed bool
	unsaid  error
	// attempting is held for one attempt: an older state can never be written over
	// a newer one.
	attempting chan struct{}
}

// New makes a publisher. [Publisher.Close] must be called in the end.
func New(store Store) *Publisher {
	return &Publisher{
		store:    store,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
		wanted:   map[string]*string{},
		standing: map[string]*string{},

		attempting: make(chan struct{}, 1),
	}
}

// Observe takes note of an event and returns at once.
func (p *Publisher) Observe(event cluster.Event) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if event.Kind == cluster.EventRunLost {
		// The annotations are somebody else's now, the unpublished ones too.
		p.wanted, p.running = map[string]*string{}, false

		return
	}

	changes, running := translate(event, p.running)
	if p.closed || len(changes) == 0 {
		return
	}

	maps.Copy(p.wanted, changes)
	p.running, p.flushed = running, false

	p.start.Do(p.launch)

	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is pending already
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
			backoff = min(max(minBackoff, 2*backoff), maxBackoff)
		}

		if !p.pause(backoff) {
			return
		}
	}
}

// pause waits for the next reason to publish: after a failure the end of the
// back-off, otherwise an event or the heartbeat. It is false when the
// publisher is being closed.
func (p *Publisher) pause(backoff time.Duration) bool {
	wake, wait := p.wake, p.untilBeat()
	if backoff > 0 {
		wake, wait = nil, backoff
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

// untilBeat is the time until the next heartbeat, 0 when none is due.
func (p *Publisher) untilBeat() time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if !p.running {
		return 0
	}

	return max(time.Until(p.beaten.Add(heartbeat)), time.Nanosecond)
}

// publish makes one attempt to write what is not known to stand.
func (p *Publisher) publish(ctx context.Context) error {
	select {
	case p.attempting <- struct{}{}:
		defer func() { <-p.attempting }()
	case <-ctx.Done():
		return ctx.Err()
	}

	changes := p.pending(time.Now())
	if len(changes) == 0 {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	err := p.store.Patch(ctx, changes)

	p.mutex.Lock()
	defer p.mutex.Unlock()

	if err != nil {
		// The patch may have been applied all the same.
		for key := range changes {
			delete(p.standing, key)
		}

		return err
	}

	maps.Copy(p.standing, changes)
	p.beaten = time.Now()

	return nil
}

func (p *Publisher) pending(now time.Time) map[string]*string {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	changes := map[string]*string{}

	for key, value := range p.wanted {
		if standing, known := p.standing[key]; !known || !same(standing, value) {
			changes[key] = value
		}
	}

	if len(changes) > 0 || p.running && now.Sub(p.beaten) >= heartbeat {
		changes[KeyLastUpdate] = text(now.UTC().Format(time.RFC3339))
	}

	return changes
}

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}

	return *a == *b
}

func text(value string) *string { return &value }
