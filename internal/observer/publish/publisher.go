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
	// minBackoff and maxBackoff are the pauses after a failed attempt. The API server of a control plane that
	// reboots is away for a minute or two.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
	// closeTimeout bounds [Publisher.Close] for callers without a deadline.
	closeTimeout = 15 * time.Second
	// hopelessAttempts is how often the final state is tried if waiting is not known to help.
	hopelessAttempts = 3
	// giveUpTimeout bounds the wait for an attempt that was given up.
	giveUpTimeout = time.Second
)

// newBackoff returns a pause that doubles with each failed attempt.
func newBackoff(shortest, longest time.Duration) wait.Backoff {
	const everMore = 100

	return wait.Backoff{Duration: shortest, Factor: 2, Steps: everMore, Cap: longest}
}

// Publisher keeps the annotations of a store up to date with a run, and the status too if it is a [StatusStore].
type Publisher struct {
	store   Store
	options Options
	// parts are the parts of the object that are kept up to date: its annotations and, if the store has one, its
	// status. Only the holder of the turn may use them.
	annotations *annotationPart
	parts       []*retriedPart
	// turn is held during an attempt, so that an older state is never written over a newer one.
	turn chan struct{}

	start  sync.Once
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{}

	mutex sync.Mutex
	// said is what the object should say, as far as the run alone determines it.
	said statement
	// run is the state of the run so far.
	run    runState
	closed bool
	// lost is true once another run has taken over: nothing is published after that.
	lost bool
	// flushed is true once the final state was published, or could not be in time. unsaid is the error about what
	// was not.
	flushed bool
	unsaid  error
	// giveUp cancels the running attempt, nil while there is none.
	giveUp context.CancelFunc
}

// Options are the options of a [Publisher].
type Options struct {
	// Announce is true if the object was configured explicitly, so that it is kept up to date even if an apply
	// finds nothing to do. Otherwise such an apply only corrects the status of an upgrade that failed or died.
	Announce bool
	// Available returns the versions that a cluster with these versions could be upgraded to next, zero for none.
	// A zero argument means that the running version is unknown. It returns at once. If Available is nil, nothing
	// is published about next versions.
	Available func(talos, kubernetes version.Version) (nextTalos, nextKubernetes version.Version)
}

// New returns a publisher. The caller must call [Publisher.Close].
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

// Observe takes an event into account and returns at once.
func (p *Publisher) Observe(event cluster.Event) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if event.Kind == cluster.EventRunLost {
		// The annotations, including unpublished ones, now belong to another run. Events of upgrades that are
		// still ending are not published any more.
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

// forget discards what should be said and cancels a running attempt. The lock must be held.
func (p *Publisher) forget() {
	p.said, p.run.running = newStatement(), false

	if p.giveUp != nil {
		p.giveUp()
	}
}

// signal wakes the receiver, if it is not about to wake anyway.
func signal(waiting chan<- struct{}) {
	select {
	case waiting <- struct{}{}:
	default: // already signalled
	}
}

// loop publishes until it is stopped: on every event, on every heartbeat, and after the back-off that follows a
// failure.
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

// attempt makes one attempt at each part of the object and returns when the next is due, zero if only an event is
// a reason for one.
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

// takeTurn waits for other attempts to end and begins one. It is cancelled by giveUp.
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

// desired returns what the object should say now. The turn must be held.
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

// retriedPart is a part of the object with its own back-off: a failure of one part does not delay the other.
type retriedPart struct {
	part

	// retry is when the next attempt is due after a failed one.
	retry   time.Time
	backoff wait.Backoff
}

func newRetriedPart(of part) *retriedPart {
	return &retriedPart{part: of, backoff: newBackoff(minBackoff, maxBackoff)}
}

// attempt calls sync, unless the back-off of a failed attempt has not passed, and returns when the next attempt
// is due.
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

// Flush publishes what is not published yet and checks it, or returns when the context ends. It is called while
// the run still owns the annotations. [Publisher.Close] writes nothing after it unless something else was
// observed. It implements [cluster.Flusher].
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
	// What is not published by now may be for another run to say.
	p.forget()

	p.flushed = true
	if !p.lost {
		p.unsaid = err
	}
	p.mutex.Unlock()

	// A cancelled attempt ends as soon as its request notices.
	ctx, cancel := context.WithTimeout(context.Background(), giveUpTimeout)
	defer cancel()

	if _, release, err := p.takeTurn(ctx); err == nil {
		release()
	}
}

// Close publishes what is not published yet, checks it, and ends the background work. It is bounded by the
// context, or by 15 seconds if that has no deadline. The error says what could not be published and does not
// concern the upgrade. [Publisher.Notes] returns what else is worth saying.
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

	// After a flush, the annotations may belong to another run.
	if !settled {
		unsaid = p.finish(ctx)
	}

	p.cancel()
	<-p.done

	return unsaid
}

// bounded returns the context with a deadline, if it has none.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}

	return context.WithTimeout(ctx, limit)
}

// finish repeats the final state until it is seen on the object, or until it is clear that it will not be.
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

// settle makes one attempt at all parts of the object. It returns the names of those that could not be confirmed,
// and why.
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

// heals reports whether waiting may cure the error.
func heals(err error) bool {
	return cluster.Heals(err) && !errors.Is(err, errDeleting)
}

// Notes returns sentences about what people should know of the object, even if it says everything it should: that
// somebody else writes the same annotations, or that the object does not accept everything. They are complete
// after [Publisher.Close].
func (p *Publisher) Notes() []string {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()

	var notes []string
	for _, part := range p.parts {
		notes = append(notes, part.notes()...)
	}

	return notes
}

// Announces implements [cluster.Announcer]. It reports whether the annotations of the object lack something that
// an event of a run with nothing to do would say, or its status contradicts that. If the object was not configured,
// only a status that still shows an upgrade as failed or under way counts.
func (p *Publisher) Announces(ctx context.Context, event cluster.Event) bool {
	if !nothingToDo(event) {
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
		if (p.options.Announce || isStatus(key) && found[key] != "") && worthAnnouncing(key, value, found) {
			return true
		}
	}

	store, hasStatus := p.store.(StatusStore)
	if !p.options.Announce || !hasStatus || len(wanted) == 0 {
		return false
	}

	status, _, err := store.Status(ctx)

	return err == nil && said.status(wanted, found).contradicts(status)
}
