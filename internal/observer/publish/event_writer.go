// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// How much is written about one object with one reason. More of it is counted with
// what follows.
const (
	stepBurst = 100
	stepRate  = 1
	waitBurst = 3
	waitRate  = 1.0 / 60
)

// eventWriter turns what is said into Events that are counted and combined where
// they are alike. It is used by one goroutine at a time.
type eventWriter struct {
	sink  *EventSink
	about involved
	clock *eventClock
	// steps combines what differs in its message where there is a lot of it; waits
	// has one Event for all that differ in numbers, with the newest of them.
	steps, waits *record.EventCorrelator

	// noCreate and noPatch are what the API server says of a missing permission;
	// nil where none is known to be missing.
	noCreate, noPatch error
	// refused counts Events that the API server does not take, and refusal is why
	// the last of them.
	refused int
	refusal error
	// away is why the last attempt failed that was worth another one.
	away error
}

func newEventWriter(sink *EventSink, about involved, clock *eventClock) *eventWriter {
	return &eventWriter{
		sink: sink, about: about, clock: clock,
		steps: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: stepBurst, QPS: stepRate, SpamKeyFunc: spamKey, Clock: clock,
		}),
		waits: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: waitBurst, QPS: waitRate, SpamKeyFunc: spamKey, Clock: clock, MaxEvents: 1,
			KeyFunc:     func(event *corev1.Event) (group, member string) { return spamKey(event), event.Message },
			MessageFunc: func(event *corev1.Event) string { return event.Message },
		}),
	}
}

// spamKey is alike for Events about the same object for the same reason. What is
// being waited for tells waits apart, and not how far it is.
func spamKey(event *corev1.Event) string {
	key := []string{event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Type, event.Reason}

	if event.Reason == reasonWaiting {
		what, _, _ := strings.Cut(event.Message, ": ")
		key = append(key, strings.Map(withoutDigits, what))
	}

	return strings.Join(key, "\n")
}

func withoutDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}

	return r
}

// uncounted tells that Events that are there may not be changed.
func (w *eventWriter) uncounted() bool { return w.noPatch != nil }

// failure says what was not written, and why, beside what there was no room and no
// time for; nil where there is nothing to say.
func (w *eventWriter) failure(unsaid int) error {
	var parts []string

	if w.noCreate != nil {
		parts = append(parts, fmt.Sprintf("the permission to create events in the namespace %s is missing: %v", w.about.namespace(), w.noCreate))
	}

	if w.noPatch != nil {
		parts = append(parts, fmt.Sprintf("the permission to patch events in the namespace %s is missing, so that repeated ones are not counted: %v",
			w.about.namespace(), w.noPatch))
	}

	if w.refused > 0 {
		parts = append(parts, fmt.Sprintf("the API server refused %d of them, the last because: %v", w.refused, w.refusal))
	}

	if unsaid > 0 {
		text := fmt.Sprintf("%d of them could not be written in time", unsaid)
		if w.away != nil {
			text += ": " + w.away.Error()
		}

		parts = append(parts, text)
	}

	if len(parts) == 0 {
		return nil
	}

	failed := &eventError{text: fmt.Sprintf("Kubernetes Events about %s are missing: %s", w.about, strings.Join(parts, "; "))}
	if w.noCreate != nil || w.noPatch != nil {
		failed.meaning = cluster.ErrDenied
	}

	return failed
}

// eventError is what was not written, and why.
type eventError struct {
	text string
	// meaning is nil where it has none of those of package cluster.
	meaning error
}

func (e *eventError) Error() string { return e.text }

func (e *eventError) Unwrap() error { return e.meaning }

// eventClock never shows the same time twice: Events are named after it.
type eventClock struct {
	mutex sync.Mutex
	last  time.Time
}

// Now is the time, or a moment later.
func (c *eventClock) Now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	now := time.Now()
	if !now.After(c.last) {
		now = c.last.Add(time.Nanosecond)
	}

	c.last = now

	return now
}

// Since is how long ago it was.
func (c *eventClock) Since(then time.Time) time.Duration { return c.Now().Sub(then) }
