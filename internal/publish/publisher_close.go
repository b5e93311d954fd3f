// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// closeTimeout bounds [Publisher.Close] for callers without a deadline.
const closeTimeout = 15 * time.Second

// Close publishes what is not published yet, checks that it stands, and ends
// the background work. It is bounded by the context, and by 15 seconds where
// that has no deadline. The error says what could not be published; it does not
// concern the upgrade itself.
func (p *Publisher) Close(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, closeTimeout)
		defer cancel()
	}

	p.mutex.Lock()
	again := p.closed
	p.closed = true
	p.running = false
	launched := p.cancel != nil
	flushed, unsaid := p.flushed, p.unsaid
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
	p.running = false
	p.mutex.Unlock()

	if idle {
		return
	}

	err := p.finish(ctx)

	p.mutex.Lock()
	defer p.mutex.Unlock()

	// What does not stand by now may be somebody else's to say.
	p.wanted = map[string]*string{}
	p.flushed, p.unsaid = true, err
}

// finish repeats the last word until it is seen to stand.
func (p *Publisher) finish(ctx context.Context) error {
	backoff := minBackoff

	for {
		err := p.settle(ctx)
		if err == nil {
			return nil
		}

		timer := time.NewTimer(backoff)

		select {
		case <-ctx.Done():
			timer.Stop()

			return fmt.Errorf("the annotations of %s could not be brought up to date: %w", p.store, err)
		case <-timer.C:
		}

		backoff = min(2*backoff, maxBackoff)
	}
}

var errOverwritten = errors.New("they were changed by somebody else")

// settle publishes what is pending and reads it back: somebody else may have
// written to the object, and an attempt given up earlier may have arrived late.
func (p *Publisher) settle(ctx context.Context) error {
	if err := p.publish(ctx); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()

	found, err := p.store.Read(ctx)
	if err != nil {
		return err
	}

	p.mutex.Lock()
	defer p.mutex.Unlock()

	for key, value := range p.wanted {
		standing, exists := found[key]
		if exists != (value != nil) || exists && standing != *value {
			delete(p.standing, key)

			err = errOverwritten
		}
	}

	return err
}
