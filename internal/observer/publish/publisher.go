// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ cluster.Observer  = (*Publisher)(nil)
	_ cluster.Flusher   = (*Publisher)(nil)
	_ cluster.Announcer = (*Publisher)(nil)
)

const (
	// minBackoff and maxBackoff are the pauses after a failed attempt. The API
	// server of a control plane that reboots is away for a minute or two.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
	// closeTimeout bounds [Publisher.Close] for callers without a deadline.
	closeTimeout = 15 * time.Second
	// hopelessAttempts is how often the last word is tried where waiting is not
	// known to help.
	hopelessAttempts = 3
	// giveUpTimeout bounds the wait for an attempt that was given up.
	giveUpTimeout = time.Second
)

// newBackoff is a pause that doubles with each attempt that failed.
func newBackoff(shortest, longest time.Duration) wait.Backoff {
	const everMore = 100

	return wait.Backoff{Duration: shortest, Factor: 2, Steps: everMore, Cap: longest}
}

// Publisher keeps the annotations of a store up to date with a run, and the status
// where it is a [StatusStore].
type Publisher struct {
	store   Store
	options Options
	// parts are what of the object is kept up to date: its annotations and, where the
	// store has one, its status. Whoever uses them has the turn.
	annotations *annotationPart
	parts       []*retriedPart
	// turn is held for one attempt: an older state can never be written over a newer
	// one.
	turn chan struct{}

	start  sync.Once
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mutex sync.Mutex
	// said is what should stand, as far as the run alone can tell.
	said statement
	// run is how the run has gone so far.
	run    runState
	closed bool
	// lost tells that the run is not ours any more: nothing is said of it again.
	lost bool
	// flushed tells that the last word was said for as long as it is ours to say,
	// unsaid what of it does not stand.
	flushed bool
	unsaid  error
	// giveUp ends the attempt under way; nil while there is none.
	giveUp context.CancelFunc
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
		store: store, options: options, annotations: newAnnotationPart(store), said: newStatement(),
		turn: make(chan struct{}, 1), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}

	made.parts = append(made.parts, newRetriedPart(made.annotations))

	if store, ok := store.(StatusStore); ok {
		made.parts = append(made.parts, newRetriedPart(newStatusPart(store)))
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

	said, next := translate(event, p.run, p.options.Available)
	if p.closed || p.lost || len(said.annotations) == 0 {
		return
	}

	p.said.add(said, event)
	p.run, p.flushed = next, false

	p.start.Do(func() {
		var ctx context.Context

		ctx, p.cancel = context.WithCancel(context.Background())

		go p.loop(ctx)
	})

	signal(p.wake)
}

// forget leaves nothing to say, and ends an attempt to say something. The lock is
// held.
func (p *Publisher) forget() {
	p.said, p.run.running = newStatement(), false

	if p.giveUp != nil {
		p.giveUp()
	}
}

// signal has whoever waits look again.
func signal(waiting chan<- struct{}) {
	select {
	case waiting <- struct{}{}:
	default: // somebody did already
	}
}

// loop publishes until it is stopped: with every event, with every heartbeat, and
// after a failure with the end of the back-off.
func (p *Publisher) loop(ctx context.Context) {
	defer close(p.done)

	for {
		var timer <-chan time.Time

		if next := p.attempt(ctx); !next.IsZero() {
			timer = time.After(time.Until(next))
		}

		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer:
		}
	}
}

// attempt makes one attempt at each part of the object, and returns when the next is
// due; zero where only an event is a reason for one.
func (p *Publisher) attempt(ctx context.Context) (next time.Time) {
	ctx, release, err := p.takeTurn(ctx)
	if err != nil {
		return next
	}

	defer release()

	for _, part := range p.parts {
		if due := part.attempt(ctx, p.desired); next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
	}

	return next
}

// takeTurn waits for the attempts of others to end. The attempt that begins with it
// ends when there is nothing to say any more.
func (p *Publisher) takeTurn(ctx context.Context) (attempt context.Context, release func(), err error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, cluster.Ended(ctx)
	}

	attempt, cancel := context.WithCancel(ctx)

	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.giveUp = cancel

	return attempt, func() {
		p.mutex.Lock()
		p.giveUp = nil
		p.mutex.Unlock()

		cancel()
		<-p.turn
	}, nil
}

// desired is what should stand on the object now. Whoever calls it has the turn.
func (p *Publisher) desired() desiredState {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	made := desiredState{silent: len(p.said.annotations) == 0, running: p.run.running}

	if before := p.annotations.before; !made.silent && before != nil {
		made.annotations = p.said.annotationsAfter(p.run, before)
		if p.annotations.tight != nil {
			made.annotations = shorten(made.annotations)
		}

		if len(made.annotations) > 0 {
			made.status = p.said.status(made.annotations, before)
		}
	}

	return made
}

// retriedPart is a part of the object with its own back-off: a failure of one part
// does not hold up the other.
type retriedPart struct {
	part

	// retry is when the next attempt is due after one that failed.
	retry   time.Time
	backoff wait.Backoff
}

func newRetriedPart(of part) *retriedPart {
	return &retriedPart{part: of, backoff: newBackoff(minBackoff, maxBackoff)}
}

// attempt is sync, unless an attempt failed a short time ago, and returns when the
// next one is due.
func (r *retriedPart) attempt(ctx context.Context, desired func() desiredState) (due time.Time) {
	if time.Until(r.retry) > 0 {
		return r.retry
	}

	due, err := r.sync(ctx, desired, false)
	if err == nil {
		r.retry, r.backoff = time.Time{}, newBackoff(minBackoff, maxBackoff)

		return due
	}

	r.retry = time.Now().Add(r.backoff.Step())

	return r.retry
}

// Flush publishes what is not published yet and checks that it stands, or returns
// when the context ends. It is called while the annotations are ours to write, and
// [Publisher.Close] writes nothing after it unless something else was observed. It
// implements [cluster.Flusher].
func (p *Publisher) Flush(ctx context.Context) {
	p.mutex.Lock()
	idle := p.closed || p.cancel == nil || len(p.said.annotations) == 0
	p.run.running = false
	p.mutex.Unlock()

	if idle {
		return
	}

	err := p.finish(ctx)

	p.mutex.Lock()
	// What does not stand by now may be somebody else's to say.
	p.forget()

	p.flushed = true
	if !p.lost {
		p.unsaid = err
	}
	p.mutex.Unlock()

	// An attempt that was given up takes no longer than a request takes to notice.
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTimeout)
	defer cancel()

	if _, release, err := p.takeTurn(ctx); err == nil {
		release()
	}
}

// Close publishes what is not published yet, checks that it stands, and ends
// the background work. It is bounded by the context, and by 15 seconds where
// that has no deadline. The error says what could not be published; it does not
// concern the upgrade itself. [Publisher.Notes] has what else there is to say.
func (p *Publisher) Close(ctx context.Context) error {
	ctx, cancel := bounded(ctx, closeTimeout)
	defer cancel()

	p.mutex.Lock()
	idle := p.closed || p.cancel == nil
	p.closed, p.run.running = true, false
	settled, unsaid := p.flushed || p.lost, p.unsaid
	p.mutex.Unlock()

	if idle {
		return nil
	}

	// After a flush, what is written may be somebody else's.
	if !settled {
		unsaid = p.finish(ctx)
	}

	p.cancel()
	<-p.done

	return unsaid
}

// bounded is the context with a deadline, if it has none.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}

	return context.WithTimeout(ctx, limit)
}

// finish repeats the last word until it is seen to stand, or until it is clear that
// it will not.
func (p *Publisher) finish(ctx context.Context) error {
	backoff := newBackoff(minBackoff, maxBackoff)

	for attempt := 1; ; attempt++ {
		names, errs := p.settle(ctx)
		if len(errs) == 0 {
			return nil
		}

		hopeless := attempt >= hopelessAttempts && !slices.ContainsFunc(errs, heals)
		if !hopeless {
			select {
			case <-ctx.Done():
			case <-time.After(backoff.Step()):
				continue
			}
		}

		return fmt.Errorf("the %s of %s could not be brought up to date: %w", strings.Join(names, " and the "), p.store, errs[0])
	}
}

// settle makes one attempt at all parts of the object, and returns the names of those
// that are not seen to say what they should, and why.
func (p *Publisher) settle(ctx context.Context) (names []string, errs []error) {
	ctx, release, err := p.takeTurn(ctx)
	if err != nil {
		return []string{p.annotations.name()}, []error{err}
	}

	defer release()

	for _, part := range p.parts {
		if _, err := part.sync(ctx, p.desired, true); err != nil {
			names, errs = append(names, part.name()), append(errs, err)
		}
	}

	return names, errs
}

// heals tells whether waiting may cure the error.
func heals(err error) bool {
	return cluster.Heals(err) && !errors.Is(err, errDeleting)
}

// Notes are sentences about what a person should know of the object, although
// everything that is to stand there may stand: that somebody else writes the same
// annotations, or that the object does not take everything. They are complete after
// [Publisher.Close].
func (p *Publisher) Notes() []string {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()

	var notes []string
	for _, part := range p.parts {
		notes = append(notes, part.notes()...)
	}

	return notes
}

// Announces implements [cluster.Announcer]: it tells whether the object lacks what
// an event of a run with nothing to do would have it say, and whether its status
// says something else.
func (p *Publisher) Announces(ctx context.Context, event cluster.Event) bool {
	if !p.options.Announce || !nothingToDo(event) {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	found, err := p.store.Read(ctx)
	if err != nil {
		return false
	}

	run := runState{begun: true, idle: true}
	said, _ := translate(event, run, p.options.Available)
	wanted := said.annotationsAfter(run, found)

	for key, value := range wanted {
		if worthAnnouncing(key, value, found) {
			return true
		}
	}

	store, hasStatus := p.store.(StatusStore)
	if !hasStatus || len(wanted) == 0 {
		return false
	}

	status, _, err := store.Status(ctx)

	return err == nil && said.status(wanted, found).contradicts(status)
}
