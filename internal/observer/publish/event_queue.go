// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// maxWaiting is how much may wait to be written: the API server of a control
	// plane that reboots is away for a minute or two.
	maxWaiting = 500
	// minEventBackoff and maxEventBackoff are the pauses after a failed attempt.
	minEventBackoff = 250 * time.Millisecond
	maxEventBackoff = 5 * time.Second
	// maxAsked is the longest pause that an API server with too much to do is granted.
	maxAsked = 30 * time.Second
	// maxOrderly is how much is written in order at the end of a run, which waits no
	// longer than its lease allows. Of more, what matters most is written first.
	maxOrderly = 50
	// maxFaults is how often an Event is sent with which the API server has an
	// error of its own.
	maxFaults = 3
	// reporter is who reports the Events.
	reporter = "talosupgrade"
)

// How much is written about one object with one reason. More of it is counted with
// what follows.
const (
	stepBurst = 100
	stepRate  = 1
	waitBurst = 3
	waitRate  = 1.0 / 60
)

// eventQueue writes the Events about one subject in order, in the background. The
// broadcaster of client-go would not do: it drops Events, and cannot be flushed while
// the run still has its lease.
type eventQueue struct {
	sink    *EventSink
	subject eventSubject
	clock   *eventClock
	// steps combines what differs in its message where there is a lot of it; waits
	// has one Event for all that differ in numbers, with the newest of them.
	steps, waits *record.EventCorrelator

	// ctx ends when nothing more may be written.
	ctx    context.Context
	cancel context.CancelFunc
	// hurry ends a pause after a failed attempt, done is closed when the background
	// work has ended.
	hurry, done chan struct{}

	mutex sync.Mutex
	// changed tells that something waits, or that the queue is closed.
	changed sync.Cond
	waiting []*eventAttempt
	// started tells that there is background work, closed that nothing more is taken,
	// ranked that what matters most is written first, and disowned that what was not
	// written is somebody else's to say.
	started, closed, ranked, disowned bool
	// unwritten counts what there was no room or no time for.
	unwritten int

	// What follows is of the background work.

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

func newEventQueue(sink *EventSink, subject eventSubject, clock *eventClock) *eventQueue {
	q := &eventQueue{
		sink: sink, subject: subject, clock: clock, hurry: make(chan struct{}, 1), done: make(chan struct{}),
		steps: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: stepBurst, QPS: stepRate, SpamKeyFunc: spamKey, Clock: clock,
		}),
		waits: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{
			BurstSize: waitBurst, QPS: waitRate, SpamKeyFunc: spamKey, Clock: clock, MaxEvents: 1,
			KeyFunc:     func(event *corev1.Event) (group, member string) { return spamKey(event), event.Message },
			MessageFunc: func(event *corev1.Event) string { return event.Message },
		}),
	}

	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.changed.L = &q.mutex

	return q
}

// spamKey is alike for Events about the same object for the same reason. What is
// being waited for tells waits apart, and not how far it is.
func spamKey(event *corev1.Event) string {
	key := []string{event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Type, event.Reason}

	if event.Reason == reasonWaiting {
		what, _, _ := strings.Cut(event.Message, ": ")
		key = append(key, strings.FieldsFunc(what, unicode.IsDigit)...)
	}

	return strings.Join(key, "\n")
}

// add takes something to be written and returns at once. Where there is no room for
// it, the oldest of what matters least is given up.
func (q *eventQueue) add(text eventText) {
	q.mutex.Lock()
	defer q.mutex.Unlock()

	if q.closed {
		return
	}

	if q.waiting = append(q.waiting, &eventAttempt{eventQueue: q, text: text}); len(q.waiting) > maxWaiting {
		least := slices.MinFunc(q.waiting, func(a, b *eventAttempt) int { return cmp.Compare(a.text.rank, b.text.rank) })
		index := slices.Index(q.waiting, least)

		q.waiting = slices.Delete(q.waiting, index, index+1)
		q.unwritten++
	}

	if !q.started {
		q.started = true

		go q.run()
	}

	q.changed.Signal()
}

// run writes until the queue is closed and nothing waits any more.
func (q *eventQueue) run() {
	defer close(q.done)

	for {
		attempt, ok := q.next()
		if !ok {
			return
		}

		q.write(attempt)
	}
}

// next is the first that waits, once there is one; not ok where none will come.
func (q *eventQueue) next() (attempt *eventAttempt, ok bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()

	for len(q.waiting) == 0 && !q.closed {
		q.changed.Wait()
	}

	if len(q.waiting) == 0 {
		return nil, false
	}

	attempt, q.waiting = q.waiting[0], q.waiting[1:]

	return attempt, true
}

// write tries until the Event is written, cannot be, nothing more may be written, or
// another one has to be written first.
func (q *eventQueue) write(attempt *eventAttempt) {
	backoff := newBackoff(minEventBackoff, maxEventBackoff)

	for attempt.again() {
		pause := max(backoff.Step(), min(attempt.asked, maxAsked))

		select {
		case <-q.ctx.Done():
			q.mutex.Lock()
			q.unwritten++
			q.mutex.Unlock()

			return
		case <-time.After(pause):
		case <-q.hurry:
			if q.yields(attempt) {
				return
			}

			backoff = newBackoff(minEventBackoff, maxEventBackoff)
		}
	}
}

// yields puts an attempt back where something that waits matters more.
func (q *eventQueue) yields(attempt *eventAttempt) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()

	if !q.ranked || len(q.waiting) == 0 || q.waiting[0].text.rank <= attempt.text.rank {
		return false
	}

	q.waiting = slices.Insert(q.waiting, 0, attempt)
	q.rank()

	return true
}

// rank has what matters most written first, and the older of what matters as much.
func (q *eventQueue) rank() {
	slices.SortStableFunc(q.waiting, func(a, b *eventAttempt) int { return cmp.Compare(b.text.rank, a.text.rank) })
}

// finish returns when nothing waits to be written, or when the context ends. Nothing
// is written after it.
func (q *eventQueue) finish(ctx context.Context) {
	defer q.cancel()

	q.mutex.Lock()
	q.closed = true
	started := q.started

	if q.ranked = len(q.waiting) > maxOrderly; q.ranked {
		q.rank()
	}

	q.changed.Signal()
	q.mutex.Unlock()

	if !started {
		return
	}

	signal(q.hurry)

	select {
	case <-q.done:
	case <-ctx.Done():
		q.giveUp()
		<-q.done
	}
}

// disown writes nothing more: it is somebody else's to say.
func (q *eventQueue) disown() {
	q.giveUp()

	q.mutex.Lock()
	defer q.mutex.Unlock()

	q.disowned = true
}

// giveUp gives up what waits to be written, and what is being written.
func (q *eventQueue) giveUp() {
	q.mutex.Lock()
	defer q.mutex.Unlock()

	q.closed = true
	q.unwritten += len(q.waiting)
	q.waiting = nil
	q.changed.Signal()
	q.cancel()
}

// eventAttempt is one Event that is being written.
type eventAttempt struct {
	*eventQueue

	text eventText
	// event is nil before it is known what it is about; patch is how it differs from
	// the one that is there, if it is.
	event *corev1.Event
	patch []byte
	// sent tells that it was sent before, and may be there.
	sent   bool
	faults int
	// asked is the pause that the API server wants before the next attempt.
	asked time.Duration
}

// again makes an attempt, and tells whether another one could do better.
func (a *eventAttempt) again() bool {
	if a.noCreate != nil {
		return false
	}

	correlator := a.steps
	if a.text.rank == rankWait {
		correlator = a.waits
	}

	if a.event == nil {
		involved, err := a.subject.reference(a.ctx, a.text.node)
		if err != nil {
			a.away = err

			return true
		}

		result, err := correlator.EventCorrelate(a.newEvent(involved))
		if err != nil {
			return a.refuse(err)
		}

		if result.Skip {
			// There are enough of them.
			return false
		}

		a.event, a.patch = result.Event, result.Patch
		// What tells alike Events apart does not know it.
		a.event.ReportingController = reporter
	}

	if a.event.Count > 1 && a.noPatch != nil {
		return false
	}

	written, err := a.send()
	if err != nil {
		return a.retries(err)
	}

	if written != nil {
		correlator.UpdateState(written)
	}

	return false
}

// newEvent is the Event, as if there were no other one like it.
func (a *eventAttempt) newEvent(involved corev1.ObjectReference) *corev1.Event {
	at, kind := metav1.NewTime(a.text.at), corev1.EventTypeNormal
	if at.IsZero() {
		at = metav1.NewTime(a.clock.Now())
	}

	if a.text.warning {
		kind = corev1.EventTypeWarning
	}

	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: a.subject.namespace, Name: a.newName(involved)},
		InvolvedObject: involved, Reason: a.text.reason, Message: a.text.message, Type: kind,
		FirstTimestamp: at, LastTimestamp: at, Count: 1, Source: corev1.EventSource{Component: reporter},
	}
}

// newName is one that no other Event has.
func (a *eventAttempt) newName(involved corev1.ObjectReference) string {
	return util.GenerateEventName(involved.Name, a.clock.Now().UnixNano())
}

// send counts the Event that is there already, or makes it. What is written is nil
// where it need not, or may not, be.
func (a *eventAttempt) send() (written *corev1.Event, err error) {
	if a.event.Count > 1 {
		written, err = a.sink.patch(a.ctx, a.event, a.patch)

		switch {
		case forbids(err):
			a.noPatch, err = err, nil

			return nil, err
		case !apierrors.IsNotFound(err):
			return written, err
		}
	}

	// There was none, or the API server has forgotten it, as it does after an hour.
	a.event.ResourceVersion = ""

	written, err = a.sink.create(a.ctx, a.event)

	switch {
	case apierrors.IsAlreadyExists(err) && a.sent:
		written, err = nil, nil
	case apierrors.IsAlreadyExists(err):
		a.event.Name = a.newName(a.event.InvolvedObject)
	}

	a.sent = true

	return written, err
}

// retries takes note of what failed, and tells whether another attempt could do
// better.
func (a *eventAttempt) retries(err error) bool {
	var (
		answer apierrors.APIStatus
		code   int32
	)

	if errors.As(err, &answer) {
		code = answer.Status().Code
	}

	seconds, _ := apierrors.SuggestsClientDelay(err)
	a.asked = time.Duration(seconds) * time.Second

	switch {
	case answer == nil, apierrors.IsAlreadyExists(err):
	case forbids(err), code == http.StatusUnauthorized:
		a.noCreate = err

		return false
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
	case code >= http.StatusInternalServerError && a.faults < maxFaults-1:
		a.faults++
	default:
		return a.refuse(err)
	}

	a.away = err

	return true
}

// refuse takes note of an Event that is given up: no attempt could do better.
func (a *eventAttempt) refuse(err error) (again bool) {
	a.refused++
	a.refusal = err

	return false
}

// forbids tells a missing permission from an objection to one Event.
func forbids(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && !deniedByAdmission(err.Error())
}

// failure says what was not written, and why; nil where there is nothing to say. The
// background work has ended.
func (q *eventQueue) failure() error {
	var parts []string

	if q.noCreate != nil {
		parts = append(parts, fmt.Sprintf("the permission to create events in the namespace %s is missing: %v", q.subject.namespace, q.noCreate))
	}

	if q.noPatch != nil {
		parts = append(parts, fmt.Sprintf("the permission to patch events in the namespace %s is missing, so that repeated ones are not counted: %v",
			q.subject.namespace, q.noPatch))
	}

	if q.refused > 0 {
		parts = append(parts, fmt.Sprintf("the API server refused %d of them, the last because: %v", q.refused, q.refusal))
	}

	if q.unwritten > 0 && !q.disowned {
		text := fmt.Sprintf("%d of them could not be written in time", q.unwritten)
		if q.away != nil {
			text += ": " + cluster.Plain(q.away.Error())
		}

		parts = append(parts, text)
	}

	if len(parts) == 0 {
		return nil
	}

	failed := &eventError{text: fmt.Sprintf("Kubernetes Events about %s are missing: %s", q.subject.name, strings.Join(parts, "; "))}
	if q.noCreate != nil || q.noPatch != nil {
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

// maxLookups is how often the published object is looked for. The publisher may
// be about to create it.
const maxLookups = 5

// eventSubject is what Events are about.
type eventSubject struct {
	// name is for people; namespace holds the Events.
	name, namespace string
	// reference is the object, or the node. An error means that it is worth to ask
	// again.
	reference func(ctx context.Context, node string) (corev1.ObjectReference, error)
}

// nodeSubject are the nodes. Each is named twice, as kubelets do: "kubectl describe
// node" asks for both.
func nodeSubject() eventSubject {
	return eventSubject{
		name: "nodes", namespace: metav1.NamespaceDefault,
		reference: func(_ context.Context, node string) (corev1.ObjectReference, error) {
			return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, nil
		},
	}
}

// objectSubject is the published object, whose UID is looked up: Events can do
// without. Events about objects without a namespace are in the default one.
func objectSubject(of cluster.Reference, access cluster.ObjectAccess) eventSubject {
	involved := corev1.ObjectReference{APIVersion: of.APIVersion, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name}
	lookups := 0

	return eventSubject{
		name: of.String(), namespace: cmp.Or(of.Namespace, metav1.NamespaceDefault),
		reference: func(ctx context.Context, _ string) (corev1.ObjectReference, error) {
			if access == nil || lookups >= maxLookups {
				return involved, nil
			}

			object, err := access.Object(ctx, of)
			if errors.Is(err, cluster.ErrUnreachable) {
				return involved, err
			}

			if lookups++; lookups < maxLookups && errors.Is(err, cluster.ErrNotFound) {
				return involved, err
			}

			lookups = maxLookups
			involved.UID = types.UID(stringField(object["metadata"], "uid"))

			return involved, nil
		},
	}
}

// eventTimeout bounds one request.
const eventTimeout = 10 * time.Second

// EventSink writes Kubernetes Events to one API server.
type EventSink struct {
	client rest.Interface
}

// NewEventSink uses the connection of another client of the same API server, and
// ends with it.
func NewEventSink(config *rest.Config, httpClient *http.Client) (*EventSink, error) {
	client, err := coreClient(config, httpClient)
	if err != nil {
		return nil, err
	}

	return &EventSink{client: client}, nil
}

func (s *EventSink) create(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	return s.send(ctx, event.Namespace, s.client.Post().Body(event))
}

func (s *EventSink) patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return s.send(ctx, event.Namespace, s.client.Patch(types.StrategicMergePatchType).Name(event.Name).Body(patch))
}

func (*EventSink) send(ctx context.Context, namespace string, request *rest.Request) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()

	var written corev1.Event

	err := request.Namespace(namespace).Resource("events").MaxRetries(0).Do(ctx).Into(&written)

	return &written, err
}
