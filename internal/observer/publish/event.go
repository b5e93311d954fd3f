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
	// maxHeld is how many events are kept that came before the run had the lease.
	maxHeld = 50
	// eventsTimeout bounds [Events.Close] for callers without a deadline.
	eventsTimeout = 15 * time.Second
)

// EventTargets are what the Kubernetes Events of a run are about.
type EventTargets struct {
	// Nodes is where the nodes are, in the upgraded cluster; nil writes no Events
	// about nodes.
	Nodes *EventSink
	// Object is where the published object is; nil writes no Events about it.
	Object *EventSink
	// Of is the published object. Its APIVersion must be known.
	Of cluster.Reference
	// Access looks up the UID of the object, by which "kubectl describe" finds its
	// Events; nil leaves it out.
	Access cluster.ObjectAccess
}

// Events tells a run as Kubernetes Events: everything about the published object,
// and about the nodes what concerns them. Nothing is written before the run has
// the lease, and nothing after [Events.Flush].
type Events struct {
	// object and nodes have a queue each, as they may be in two clusters: one that is
	// away does not hold up the other. Nil writes nothing about them.
	object, nodes *eventQueue

	mutex sync.Mutex
	// begun tells that the run has the lease.
	begun bool
	// held is what was observed before that.
	held []cluster.Event
	// idle tells that the run has nothing to do, which nobody wants to be told
	// with each apply.
	idle bool
	// over tells that nothing more is said: another run speaks for the cluster, or
	// this one is closed.
	over, closed bool
}

// NewEvents makes an observer; nothing is started before the first event.
// [Events.Close] must be called in the end.
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

// Observe takes note of an event and returns at once.
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
		// It may have failed before there was a plan, and a rollback that a person asks
		// for has none. It had the lease.
		e.begin(false)
	}

	if e.begun {
		e.tell(event)

		return
	}

	e.held = append(e.held, event)
	e.held = e.held[max(len(e.held)-maxHeld, 0):]
}

// begin tells what was held back, from now on under the lease.
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

// Flush returns when everything that was observed is written, or when the context
// ends; nothing is written after it, because what the run says is not under the
// lease any more. It implements [cluster.Flusher].
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

// Close writes what is not written yet, where [Events.Flush] did not, and ends the
// background work. It is bounded by the context, and by 15 seconds where that has
// no deadline. The error says what could not be written, and why; it does not
// concern the upgrade itself.
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
