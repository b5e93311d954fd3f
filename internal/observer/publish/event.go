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
	// heldMost is how many events are kept that came before the run had the lease.
	heldMost = 50
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
	// lines are the object's and the nodes' own.
	object, nodes *eventLine

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
	clock := &eventClock{}

	events := &Events{}

	if targets.Object != nil {
		events.object = newEventLine(targets.Object, &involvedObject{of: targets.Of, access: targets.Access}, clock)
	}

	if targets.Nodes != nil {
		events.nodes = newEventLine(targets.Nodes, involvedNode{}, clock)
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

		for _, line := range e.lines() {
			line.disown()
		}

		return
	case cluster.EventRunStarted:
		e.begin(event.Talos.Steps == 0 && event.Kubernetes.Steps == 0)
	case cluster.EventRunFailed:
		// It may have failed before there was a plan. It had the lease.
		e.begin(false)
	}

	if !e.begun {
		e.held = append(e.held, event)
		if len(e.held) > heldMost {
			e.held = e.held[1:]
		}

		return
	}

	e.tell(event)
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

	said, ok := sayingOf(event)
	if !ok {
		return
	}

	if e.object != nil {
		e.object.add(said)
	}

	if e.nodes == nil {
		return
	}

	for _, node := range concernedNodes(event) {
		e.nodes.add(said.of(node))
	}
}

// Flush returns when everything that was observed is written, or when the context
// ends; nothing is written after it, because what the run says is not under the
// lease any more. It implements [cluster.Flusher].
func (e *Events) Flush(ctx context.Context) {
	e.mutex.Lock()
	e.over, e.held = true, nil
	e.mutex.Unlock()

	e.each(func(line *eventLine) {
		line.drain(ctx)
		line.end()
	})
}

// Close writes what is not written yet, where [Events.Flush] did not, and ends the
// background work. It is bounded by the context, and by 15 seconds where that has
// no deadline. The error says what could not be written, and why; it does not
// concern the upgrade itself.
func (e *Events) Close(ctx context.Context) error {
	e.mutex.Lock()
	again := e.closed
	e.closed, e.over, e.held = true, true, nil
	e.mutex.Unlock()

	if again {
		return nil
	}

	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, eventsTimeout)
		defer cancel()
	}

	e.each(func(line *eventLine) { line.drain(ctx) })

	var failures []error
	for _, line := range e.lines() {
		failures = append(failures, line.close())
	}

	return errors.Join(failures...)
}

func (e *Events) lines() []*eventLine {
	var lines []*eventLine

	for _, line := range []*eventLine{e.object, e.nodes} {
		if line != nil {
			lines = append(lines, line)
		}
	}

	return lines
}

// each does the same with all lines at once.
func (e *Events) each(do func(*eventLine)) {
	var all sync.WaitGroup

	for _, line := range e.lines() {
		all.Go(func() { do(line) })
	}

	all.Wait()
}
