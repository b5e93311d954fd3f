// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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
	p.course.running = false
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
	idle := p.closed || p.cancel == nil || len(p.wanted) == 0
	p.course.running = false
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
		status = p.status.settle(ctx, p.stature)
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
