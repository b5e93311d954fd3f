// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var (
	_ cluster.Observer = (*Events)(nil)
	_ cluster.Flusher  = (*Events)(nil)
)

const (
	// maxHeld bounds the events kept from before the run holds the lease.
	maxHeld = 50
	// eventsTimeout bounds [Events.Close] for callers without a deadline.
	eventsTimeout = 15 * time.Second
)

// EventTargets are the objects that the Kubernetes Events of a run are about.
type EventTargets struct {
	// Nodes writes the Events about nodes, to the upgraded cluster. If it is nil, there are none.
	Nodes ObjectCreator
	// Object writes the Events about the published object. If it is nil, there are none.
	Object ObjectCreator
	// Of is the published object. Its APIVersion must be known.
	Of cluster.Reference
	// Access looks up the UID of the object, which "kubectl describe" uses to find its Events. If it is nil, they
	// have no UID.
	Access cluster.ObjectAccess
}

// Events publishes a run as Kubernetes Events: all of it about the published object, and what concerns a node
// also about that node. Nothing is written before the run holds the lease, and nothing after [Events.Flush].
type Events struct {
	// object and nodes have a queue each, because they may be in two clusters: if one is unreachable, it does not
	// delay the other. A nil queue writes nothing.
	object, nodes *eventQueue

	mutex sync.Mutex
	// begun is true once the run holds the lease.
	begun bool
	// held are the events that were observed before that.
	held []cluster.Event
	// idle is true if the run has nothing to do, which is not worth an Event with each apply.
	idle bool
	// over is true once nothing more is said: the run has ended, or another one has taken over. closed is true
	// after [Events.Close].
	over, closed bool
}

// NewEvents returns an observer that starts nothing before the first event. The caller must call [Events.Close].
func NewEvents(targets EventTargets) *Events {
	clock, events := &eventClock{}, &Events{}

	if targets.Object != nil {
		events.object = newEventQueue(targets.Object, objectSubject(targets.Of, targets.Access), clock)
	}

	if targets.Nodes != nil {
		events.nodes = newEventQueue(targets.Nodes, nodeSubject(), clock)
	}

	return events
}

// Observe takes an event into account and returns at once.
func (e *Events) Observe(event cluster.Event) {
	e.mutex.Lock()
	defer e.mutex.Unlock()

	if e.over {
		return
	}

	switch event.Kind {
	case cluster.EventRunLost:
		e.over, e.held = true, nil

		for _, queue := range e.queues() {
			queue.disown()
		}

		return
	case cluster.EventRunStarted:
		e.begin(event.Talos.Steps == 0 && event.Kubernetes.Steps == 0)
	case cluster.EventRunFailed, cluster.EventRollingBack, cluster.EventRolledBack:
		// A run may fail before it has a plan, and a rollback that a person asks for has none. Both hold the
		// lease.
		e.begin(false)
	}

	if e.begun {
		e.tell(event)

		return
	}

	e.held = append(e.held, event)
	e.held = e.held[max(len(e.held)-maxHeld, 0):]
}

// begin publishes what was held back, once the run holds the lease.
func (e *Events) begin(idle bool) {
	if e.begun {
		return
	}

	held := e.held
	e.begun, e.idle, e.held = true, idle, nil

	for _, event := range held {
		e.tell(event)
	}
}

func (e *Events) tell(event cluster.Event) {
	switch event.Kind {
	case cluster.EventRunStarted, cluster.EventRunDone, cluster.EventWaiting:
		if e.idle {
			return
		}
	case cluster.EventNodeStarted, cluster.EventNodeStep:
		e.idle = false
	}

	text, ok := eventTextOf(event)
	if !ok {
		return
	}

	if e.object != nil {
		e.object.add(text)
	}

	if e.nodes != nil {
		for _, node := range nodesOf(event) {
			e.nodes.add(text.about(node))
		}
	}
}

// Flush returns once everything that was observed is written, or the context ends. Nothing is written after it,
// because the run no longer holds the lease. It implements [cluster.Flusher].
func (e *Events) Flush(ctx context.Context) {
	e.mutex.Lock()
	e.over, e.held = true, nil
	e.mutex.Unlock()

	var all sync.WaitGroup

	for _, queue := range e.queues() {
		all.Go(func() { queue.finish(ctx) })
	}

	all.Wait()
}

// Close writes what is not written yet, unless [Events.Flush] already did, and ends the background work. It is
// bounded by the context, or by 15 seconds if that has no deadline. The error says what could not be written and
// why; it does not concern the upgrade.
func (e *Events) Close(ctx context.Context) error {
	ctx, cancel := bounded(ctx, eventsTimeout)
	defer cancel()

	e.mutex.Lock()
	again := e.closed
	e.closed = true
	e.mutex.Unlock()

	if again {
		return nil
	}

	e.Flush(ctx)

	var failures []error
	for _, queue := range e.queues() {
		failures = append(failures, queue.failure())
	}

	return errors.Join(failures...)
}

func (e *Events) queues() []*eventQueue {
	var queues []*eventQueue

	for _, queue := range []*eventQueue{e.object, e.nodes} {
		if queue != nil {
			queues = append(queues, queue)
		}
	}

	return queues
}
