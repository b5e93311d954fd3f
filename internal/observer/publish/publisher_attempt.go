// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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
		p.status.keep(ctx, p.stature)
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
	idle := len(p.wanted) == 0 || !first && (!p.course.running || time.Since(p.looked) < heartbeat)
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
		stands := reading(found, key)

		if known, isKnown := p.standing[key]; isKnown {
			if !same(known, stands) {
				delete(p.standing, key)

				if !p.doubtful[key] {
					p.meddled[key]++
				}
			}

			delete(p.doubtful, key)
		}

		if !same(value, stands) {
			differing = append(differing, key)
		}
	}

	return differing
}

// reading is the annotation as it was found; nil where there is none.
func reading(found map[string]string, key string) *string {
	if value, exists := found[key]; exists {
		return &value
	}

	return nil
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
		if standing, known := p.standing[key]; !known || !same(standing, value) {
			changes[key] = value
		}
	}

	if len(changes) > 0 || p.beatDue(now) {
		changes[KeyLastUpdate] = text(now.UTC().Format(time.RFC3339))
	}

	return changes
}

// beatDue tells whether it is time for a heartbeat. The lock is held.
func (p *Publisher) beatDue(now time.Time) bool {
	return p.course.running && now.Sub(p.beaten) >= heartbeat
}

// effective is what should stand on this object; nothing before it is known what
// stood there. The lock is held.
func (p *Publisher) effective() map[string]*string {
	if p.before == nil || len(p.wanted) == 0 {
		return nil
	}

	made := resolved(p.wanted, p.rests, p.course, p.before)
	if p.tight != nil {
		made = short(made)
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

// shortLimit, in runes, is how long a message is on an object that takes no more.
const shortLimit = 80

// short is what of the annotations has to fit on any object.
func short(wanted map[string]*string) map[string]*string {
	made := make(map[string]*string, len(wanted))

	for key, value := range wanted {
		switch {
		case value == nil, key == KeyAvailable, key == KeyKubernetesAvailable, key == KeyFailedNodes:
			made[key] = nil
		case key == KeyMessage, key == KeyKubernetesMessage:
			made[key] = text(shortened(*value, shortLimit))
		default:
			made[key] = value
		}
	}

	return made
}

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}

	return *a == *b
}

// text is the value of an annotation.
func text(value string) *string {
	value = cluster.Escaped(value)

	return &value
}
