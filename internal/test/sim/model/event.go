// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"fmt"
	"time"
)

// EventKind is the type of a machine's own event.
type EventKind string

// The kinds of events a machine publishes.
const (
	EventSequence EventKind = "sequence"
	EventPhase    EventKind = "phase"
	EventTask     EventKind = "task"
	EventStage    EventKind = "stage"
	EventService  EventKind = "service"
)

// The actions of sequences, phases, tasks and services.
const (
	ActionNone  = "noop"
	ActionStart = "start"
	ActionStop  = "stop"
)

// Event is one entry of a machine's event buffer.
type Event struct {
	// ID sorts in order of publication.
	ID string
	// At is the simulated instant.
	At time.Time
	// Actor is the call that started the sequence, if any.
	Actor string
	Kind  EventKind
	// Name is the sequence, phase, task, service or stage.
	Name string
	// Action is one of the actions above; for services their state.
	Action string
	// Error is why a sequence did not start or failed; Locked tells the
	// former from the latter.
	Error  string
	Locked bool
	// Ready and Unmet belong to EventStage.
	Ready bool
	Unmet []Condition
}

const ringCapacity = 1000

// ring holds the latest events since the machine started.
type ring struct {
	events []Event
	first  int // number of the first event still held
	more   chan struct{}
	prefix string
}

func newRing(prefix string) *ring {
	return &ring{more: make(chan struct{}), prefix: prefix}
}

func (r *ring) add(now time.Time, event Event) {
	event.At = now
	event.ID = fmt.Sprintf("%s%08d", r.prefix, r.first+len(r.events))

	r.events = append(r.events, event)
	if excess := len(r.events) - ringCapacity; excess > 0 {
		r.events = r.events[excess:]
		r.first += excess
	}

	close(r.more)
	r.more = make(chan struct{})
}

// Tail says which past events a subscription begins with.
type Tail struct {
	// Count of past events; all that are held when negative.
	Count int
	// AfterID begins behind the event of that ID; empty has no effect.
	AfterID string
	// Since is how far to look back; 0 has no effect.
	Since time.Duration
}

func (r *ring) startAt(tail Tail, now time.Time) int {
	end := r.first + len(r.events)

	switch {
	case tail.AfterID != "":
		for i, event := range r.events {
			if event.ID > tail.AfterID {
				return r.first + i
			}
		}

		return end
	case tail.Since > 0:
		for i, event := range r.events {
			if !event.At.Before(now.Add(-tail.Since)) {
				return r.first + i
			}
		}

		return end
	case tail.Count < 0:
		return r.first
	default:
		return max(r.first, end-tail.Count)
	}
}

// Follow hands a machine's events to yield, past ones first, until yield
// returns an error, the context ends, or the connection to the machine breaks
// ([ErrConnectionLost]).
func (w *World) Follow(ctx context.Context, name string, tail Tail, yield func(Event) error) error {
	w.mu.Lock()

	n, err := w.reach(name)
	if err != nil {
		w.mu.Unlock()

		return err
	}

	buffer, link := n.events, n.link
	at := buffer.startAt(tail, w.clock.Now())
	w.mu.Unlock()

	for {
		w.mu.Lock()
		at = max(at, buffer.first)
		batch := append([]Event(nil), buffer.events[at-buffer.first:]...)
		at += len(batch)
		more := buffer.more
		w.mu.Unlock()

		for _, event := range batch {
			if err := yield(event); err != nil {
				return err
			}
		}

		select {
		case <-more:
		case <-link.Done():
			return ErrConnectionLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
