// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
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
	// said is what should stand, as far as the run alone can tell.
	said statement
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
	// run is how the run has gone so far.
	run runState
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
		said:     newStatement(),
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

	said, next := translate(event, p.run, p.options.Available)
	if p.closed || p.lost || len(said.annotations) == 0 {
		return
	}

	p.said.add(said, event)
	p.run, p.flushed = next, false

	p.start.Do(p.launch)

	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// forget leaves nothing to say, and ends an attempt to say something. The lock is
// held.
func (p *Publisher) forget() {
	p.said, p.run.running = newStatement(), false

	if p.giveUp != nil {
		p.giveUp()
	}
}

func (p *Publisher) launch() {
	var ctx context.Context

	ctx, p.cancel = context.WithCancel(context.Background())

	go p.loop(ctx)
}

// loop publishes until it is stopped.
func (p *Publisher) loop(ctx context.Context) {
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

	if !p.run.running {
		return 0
	}

	return max(time.Until(p.beaten.Add(heartbeat)), time.Nanosecond)
}

// publish makes one attempt to write what is not known to stand. The error is about
// the annotations: the status keeps its own time.
func (p *Publisher) publish(ctx context.Context) error {
	ctx, release, err := p.turn(ctx)
	if err != nil {
		return err
	}

	defer release()

	err = p.annotate(ctx)

	if p.status != nil {
		p.status.keep(ctx, p.desiredStatus)
	}

	return err
}

// turn waits for the attempts of others to end. The attempt that begins with it
// ends when there is nothing to say any more.
func (p *Publisher) turn(ctx context.Context) (attempt context.Context, release func(), err error) {
	select {
	case p.attempting <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
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
		<-p.attempting
	}, nil
}

// annotate writes the annotations that are not known to stand. Where the object
// does not take them all, it writes the short ones.
func (p *Publisher) annotate(ctx context.Context) error {
	if err := p.look(ctx); err != nil {
		return err
	}

	err := p.patch(ctx)
	if !errors.Is(err, cluster.ErrRefused) || !p.tighten(err) {
		return err
	}

	return p.patch(ctx)
}

// look reads what stands where that matters: before the first word, and with every
// heartbeat, as somebody else may have written it.
func (p *Publisher) look(ctx context.Context) error {
	p.mutex.Lock()
	first := p.before == nil
	idle := len(p.said.annotations) == 0 || !first && (!p.run.running || time.Since(p.looked) < heartbeat)
	p.mutex.Unlock()

	if idle {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	found, err := p.store.Read(ctx)

	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.looked = time.Now()

	switch {
	case err != nil && first && !errors.Is(err, cluster.ErrDenied):
		return err
	case err != nil:
		// Who may not read can still write, and what cannot be read now may not have
		// changed.
		found = nil
	default:
		p.recognise(found)
		p.compare(found)
	}

	if first {
		p.before = map[string]string{}
		maps.Copy(p.before, found)
	}

	return nil
}

// recognise takes note of an object that was deleted, and perhaps made again: what
// stood on the one that is gone tells nothing of another one, and nobody else wrote
// that. The lock is held.
func (p *Publisher) recognise(found map[string]string) {
	store, ok := p.store.(identifier)
	if !ok {
		return
	}

	known := p.identity
	p.identity = store.Identity()

	if known == "" || known == p.identity {
		return
	}

	clear(p.standing)
	clear(p.doubtful)

	p.before = map[string]string{}
	maps.Copy(p.before, found)
}

// compare takes note of what somebody else made of the annotations, and returns the
// keys of which what was found is not what is wanted. The lock is held.
func (p *Publisher) compare(found map[string]string) (differing []string) {
	for key, value := range p.effective() {
		stands := lookup(found, key)

		if known, isKnown := p.standing[key]; isKnown {
			if !equal(known, stands) {
				delete(p.standing, key)

				if !p.doubtful[key] {
					p.meddled[key]++
				}
			}

			delete(p.doubtful, key)
		}

		if !equal(value, stands) {
			differing = append(differing, key)
		}
	}

	return differing
}

// patch writes what is pending.
func (p *Publisher) patch(ctx context.Context) error {
	changes := p.pending(time.Now())
	if len(changes) == 0 {
		return nil
	}

	if err := ctx.Err(); err != nil {
		return err
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
			p.doubtful[key] = true
		}

		return err
	}

	maps.Copy(p.standing, changes)
	p.beaten = time.Now()

	return nil
}

// pending are the annotations that are not known to stand, with a heartbeat.
func (p *Publisher) pending(now time.Time) map[string]*string {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	changes := map[string]*string{}

	for key, value := range p.effective() {
		if standing, known := p.standing[key]; !known || !equal(standing, value) {
			changes[key] = value
		}
	}

	if len(changes) > 0 || p.beatDue(now) {
		changes[protocol.KeyLastUpdate] = textValue(now.UTC().Format(time.RFC3339))
	}

	return changes
}

// beatDue tells whether it is time for a heartbeat. The lock is held.
func (p *Publisher) beatDue(now time.Time) bool {
	return p.run.running && now.Sub(p.beaten) >= heartbeat
}

// effective is what should stand on this object; nothing before it is known what
// stood there. The lock is held.
func (p *Publisher) effective() annotations {
	if p.before == nil || len(p.said.annotations) == 0 {
		return nil
	}

	made := p.said.desired(p.run, p.before)
	if p.tight != nil {
		made = shorten(made)
	}

	return made
}

// tighten has only the short annotations published from now on. It is false where
// that is so already.
func (p *Publisher) tighten(why error) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	if p.tight != nil {
		return false
	}

	p.tight = why

	return true
}

// desiredStatus is what the status should say now, and whether the run goes on.
func (p *Publisher) desiredStatus() (wanted desiredStatus, running bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	effective := p.effective()
	if len(effective) == 0 {
		return desiredStatus{}, false
	}

	return p.said.status(effective, p.before), p.run.running
}

// Notes are sentences about what a person should know of the object, although
// everything that is to stand there may stand: that somebody else writes the same
// annotations, or that the object does not take everything. They are complete after
// [Publisher.Close].
func (p *Publisher) Notes() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	var notes []string

	if len(p.meddled) > 0 {
		var counts []string

		for _, key := range slices.Sorted(maps.Keys(p.meddled)) {
			counts = append(counts, key+" ("+readable.Times(p.meddled[key])+")")
		}

		notes = append(notes, fmt.Sprintf("Somebody else writes the annotations of %s too, and changed what was published there: %s. "+
			"Only one of them can be believed: have the other one stop, or publish to another object.", p.store, strings.Join(counts, ", ")))
	}

	if p.tight != nil {
		notes = append(notes, fmt.Sprintf("%s did not take all annotations (%v). Messages were cut to %d characters, and the failed nodes and the available versions left out. "+
			"All annotations of an object together may have 256 KiB: remove some that nobody needs.", p.store, p.tight, shortLimit))
	}

	if p.status != nil {
		notes = append(notes, p.status.notes()...)
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

	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	found, err := p.store.Read(ctx)
	if err != nil {
		return false
	}

	run := runState{begun: true, idle: true}
	said, _ := translate(event, run, p.options.Available)
	wanted := said.desired(run, found)

	for key, value := range wanted {
		if worthAnnouncing(key, value, found) {
			return true
		}
	}

	if p.status == nil || len(wanted) == 0 {
		return false
	}

	status, _, err := p.status.store.Status(ctx)

	return err == nil && said.status(wanted, found).contradicts(status)
}

const (
	// closeTimeout bounds [Publisher.Close] for callers without a deadline.
	closeTimeout = 15 * time.Second
	// hopelessAttempts is how often the last word is tried where waiting is not
	// known to help.
	hopelessAttempts = 3
	// landing bounds the wait for an attempt that was given up.
	landing = time.Second
)

// Close publishes what is not published yet, checks that it stands, and ends
// the background work. It is bounded by the context, and by 15 seconds where
// that has no deadline. The error says what could not be published; it does not
// concern the upgrade itself. [Publisher.Notes] has what else there is to say.
func (p *Publisher) Close(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}

	p.mutex.Lock()
	again := p.closed
	p.closed = true
	p.run.running = false
	launched := p.cancel != nil
	flushed, unsaid := p.flushed || p.lost, p.unsaid
	p.mutex.Unlock()

	if again || !launched {
		return nil
	}

	close(p.stop)

	if flushed {
		// What is written from now on may be somebody else's.
		p.cancel()
		<-p.done

		return unsaid
	}

	select {
	case <-p.done:
	case <-ctx.Done():
	}

	p.cancel()
	<-p.done

	return p.finish(ctx)
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

	p.land()
}

// land waits for an attempt that was given up to end, which takes no longer than a
// request takes to notice.
func (p *Publisher) land() {
	ctx, cancel := context.WithTimeout(context.Background(), landing)
	defer cancel()

	if _, release, err := p.turn(ctx); err == nil {
		release()
	}
}

// finish repeats the last word until it is seen to stand, or until it is clear that
// it will not.
func (p *Publisher) finish(ctx context.Context) error {
	backoff := minBackoff

	for attempt := 1; ; attempt++ {
		annotations, status := p.settle(ctx)
		if annotations == nil && status == nil {
			return nil
		}

		if attempt >= hopelessAttempts && !heals(annotations) && !heals(status) {
			return p.unsettled(annotations, status)
		}

		timer := time.NewTimer(backoff)

		select {
		case <-ctx.Done():
			timer.Stop()

			return p.unsettled(annotations, status)
		case <-timer.C:
		}

		backoff = longer(backoff)
	}
}

// heals tells whether waiting may cure the error.
func heals(err error) bool {
	return cluster.Heals(err) && !errors.Is(err, errDeleting)
}

// unsettled says what does not stand in the end.
func (p *Publisher) unsettled(annotations, status error) error {
	switch {
	case status == nil:
		return fmt.Errorf("the annotations of %s could not be brought up to date: %w", p.store, annotations)
	case annotations == nil:
		return fmt.Errorf("the status of %s could not be brought up to date: %w", p.store, status)
	default:
		return fmt.Errorf("the annotations and the status of %s could not be brought up to date: %w", p.store, annotations)
	}
}

var errOverwritten = errors.New("somebody else changes them at the same time")

// settle publishes what is pending and reads it back: somebody else may have
// written to the object, and an attempt given up earlier may have arrived late.
func (p *Publisher) settle(ctx context.Context) (annotations, status error) {
	ctx, release, err := p.turn(ctx)
	if err != nil {
		return err, nil
	}

	defer release()

	if annotations = p.annotate(ctx); annotations == nil {
		annotations = p.readBack(ctx)
	}

	if p.status != nil {
		status = p.status.settle(ctx, p.desiredStatus)
	}

	return annotations, status
}

// readBack checks that the annotations stand.
func (p *Publisher) readBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	found, err := p.store.Read(ctx)
	if errors.Is(err, cluster.ErrDenied) {
		// Who may write and not read has to do with the word of the API server.
		return nil
	}

	if err != nil {
		return err
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.recognise(found)

	differing := p.compare(found)
	if len(differing) == 0 {
		return nil
	}

	for _, key := range differing {
		delete(p.standing, key)
	}

	slices.Sort(differing)

	return fmt.Errorf("%w: %s", errOverwritten, strings.Join(differing, ", "))
}
