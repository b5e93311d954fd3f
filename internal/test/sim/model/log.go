// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The services whose logs a machine keeps, besides [KubeletName].
const (
	MachinedName = "machined"
	EtcdName     = "etcd"
)

// ErrNoLog is returned for a service that has not written anything since the boot, or that the machine does not
// have.
var ErrNoLog = errors.New("was not registered")

// noteMost is how many lines a machine keeps of a service, and callsMost how many calls to its API it keeps for the
// log of machined.
const (
	noteMost  = 200
	callsMost = 1000
)

// apiCall is a call to the API of a machine.
type apiCall struct {
	at           time.Time
	method, code string
}

// Called makes machined record a call to the API of a machine, as it does with each call that it has answered.
func (w *World) Called(name, method, code string) {
	w.locked(func() {
		n, err := w.find(name)
		if err != nil {
			return
		}

		n.calls = append(n.calls, apiCall{w.clock.Now(), method, code})
		n.calls = n.calls[max(0, len(n.calls)-callsMost):]
	})
}

// lines returns a call as machined records it: from Talos 1.14 on in one line.
func (c apiCall) lines(talos string) []string {
	const who, may = `authorized based on PID (366) match with service "apid"`, "authorized ([os:admin os:operator os:reader] includes [os:admin])"

	at := stamp(c.at)
	call := "machined " + c.code + " [" + c.method + "] 154.451µs unary Success"
	asked := " (:authority=localhost;content-type=application/grpc)"

	if AtLeast(talos, 1, 14) {
		return []string{at + call + " {" + who + "; " + may + "}" + asked}
	}

	return []string{at + "machined/authz/unix/authorizer " + who, at + "machined/authz/authorizer " + may, at + call + asked}
}

func stamp(at time.Time) string { return at.UTC().Format("2006/01/02 15:04:05") + " " }

// note adds a line to the log of a service. The lock is held.
func (w *World) note(n *node, service, format string, args ...any) {
	if n.logs == nil {
		n.logs = map[string][]string{}
	}

	n.logs[service] = append(n.logs[service], stamp(w.clock.Now())+fmt.Sprintf(format, args...))
	n.logs[service] = n.logs[service][max(0, len(n.logs[service])-noteMost):]
}

// noteContainer adds a line to the log of the container of a static pod, as components
// of Kubernetes write them; the severity is a letter. The lock is held.
func (w *World) noteContainer(n *node, component, severity, text string) {
	if n.logs == nil {
		n.logs = map[string][]string{}
	}

	name := fmt.Sprintf("kube-system/%[1]s-%[2]s:%[1]s", component, n.name)
	n.logs[name] = append(n.logs[name], severity+w.clock.Now().UTC().Format("0102 15:04:05.000000       1 ")+text)
	n.logs[name] = n.logs[name][max(0, len(n.logs[name])-noteMost):]
}

// noteStart makes the container of a static pod log which version starts. The lock is held.
func (w *World) noteStart(n *node, component string) {
	w.noteContainer(n, component, "I", `serving.go:386] "Starting" version="v`+versionOf(n.pods[component].PodImage)+`"`)
}

// Logs returns the last lines of a service (machined, kubelet, etcd), or of the container of a static pod, since
// the boot of its machine, oldest first; all that are kept if the number is negative. Nothing of an earlier boot is
// left, and no log has what an installer prints.
func (w *World) Logs(ctx context.Context, name, service string, lines int) (text []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "logs"); err != nil {
			return
		}

		text = slices.Clone(n.logs[service])
		if service == MachinedName {
			text = n.machinedLog()
		}

		if len(text) == 0 {
			err = fmt.Errorf("log %q %w", service, ErrNoLog)
		}
	})

	if lines >= 0 {
		text = text[max(0, len(text)-lines):]
	}

	return text, err
}

// machinedLog returns the machine's events since the boot as machined logs them, between the calls that its API has
// answered meanwhile.
func (n *node) machinedLog() []string {
	talos, calls := n.running().talos, n.calls
	text := []string{stamp(n.bootedAt) + "[talos] machined v" + talos + " starts, boot ID " + n.bootID}

	for _, event := range n.events.events {
		for ; len(calls) > 0 && calls[0].at.Before(event.At); calls = calls[1:] {
			text = append(text, calls[0].lines(talos)...)
		}

		text = append(text, stamp(event.At)+"[talos] "+event.line())
	}

	for _, call := range calls {
		text = append(text, call.lines(talos)...)
	}

	return text
}

// KernelMessage is a line of the kernel's log.
type KernelMessage struct {
	At                       time.Time
	Facility, Priority, Text string
}

// Dmesg returns the kernel's log of a machine since its boot. What machined logs about the boot is there as well,
// because it writes to it.
func (w *World) Dmesg(ctx context.Context, name string) (messages []KernelMessage, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "dmesg"); err != nil {
			return
		}

		messages = append(messages, KernelMessage{n.bootedAt, "kern", "notice", "Linux version 6.18.0-talos (talossim)"})

		for _, event := range n.events.events {
			messages = append(messages, KernelMessage{event.At, "user", "warning", "[talos] " + event.line()})
		}
	})

	return messages, err
}

// line returns an event as machined logs it.
func (e Event) line() string {
	switch e.Kind {
	case EventSequence:
		return e.sequenceLine()
	case EventPhase:
		return "phase " + e.Name + ": " + e.Action
	case EventTask:
		return "task " + e.Name + ": " + e.Action
	case EventService:
		return "service[" + e.Name + "](Running): Health check successful"
	default:
		return e.stageLine()
	}
}

func (e Event) sequenceLine() string {
	if e.Error != "" {
		return e.Name + " sequence: failed: " + e.Error
	}

	return e.Name + " sequence: " + e.Action
}

// stageLine returns the line of a stage, with why the machine is not ready.
func (e Event) stageLine() string {
	if e.Ready {
		return "machine is " + e.Name + " and ready"
	}

	reasons := make([]string, len(e.Unmet))
	for i, unmet := range e.Unmet {
		reasons[i] = unmet.Name + ": " + unmet.Reason
	}

	return "machine is " + e.Name + " and not ready: " + strings.Join(reasons, "; ")
}

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
	// Error is why a sequence did not start or failed; Locked is true if it did not start.
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
	// Count is the number of past events; negative means all that are held.
	Count int
	// AfterID makes the subscription begin behind the event with that ID; empty has no effect.
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
