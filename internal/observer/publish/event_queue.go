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
	// maxWaiting bounds the Events that wait to be written: the API server of a control plane that reboots is
	// away for a minute or two.
	maxWaiting = 500
	// minEventBackoff and maxEventBackoff are the pauses after a failed attempt.
	minEventBackoff = 250 * time.Millisecond
	maxEventBackoff = 5 * time.Second
	// maxAsked bounds the pause that a busy API server may ask for.
	maxAsked = 30 * time.Second
	// maxOrderly bounds the Events that are written in order at the end of a run, which waits no longer than its
	// lease allows. If there are more, the most important ones are written first.
	maxOrderly = 50
	// maxFaults is how often an Event is sent that the API server answers with an internal error.
	maxFaults = 3
	// reporter is the component that reports the Events.
	reporter = "talosupgrade"
)

// These limit the Events about one object with one reason. Any beyond the limit are dropped, and counted with
// later ones like them.
const (
	stepBurst = 100
	stepRate  = 1
	waitBurst = 3
	waitRate  = 1.0 / 60
)

// eventQueue writes the Events about one subject in order, in the background. client-go's broadcaster is no
// alternative: it drops Events, and cannot be flushed while the run still holds its lease.
type eventQueue struct {
	sink    *EventSink
	subject eventSubject
	clock   *eventClock
	// steps combines many Events that differ only in their message. waits keeps one Event for all that differ
	// only in numbers, with the latest message.
	steps, waits *record.EventCorrelator

	// ctx is cancelled once nothing more may be written.
	ctx    context.Context
	cancel context.CancelFunc
	// hurry ends the pause after a failed attempt. done is closed once the background work has ended.
	hurry, done chan struct{}

	mutex sync.Mutex
	// changed signals that something waits, or that the queue is closed.
	changed sync.Cond
	waiting []*eventAttempt
	// started is true once there is background work, closed once nothing more is accepted, ranked if the most
	// important Events are written first, and disowned if another run is responsible for what was not written.
	started, closed, ranked, disowned bool
	// unwritten counts the Events for which there was no room or no time.
	unwritten int

	// The following fields belong to the background work.

	// noCreate and noPatch are the API server's errors about a missing permission, nil if none is known to be
	// missing.
	noCreate, noPatch error
	// refused counts Events that the API server refused, and refusal is the last such error.
	refused int
	refusal error
	// away is the last error after which a retry was worthwhile.
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

// spamKey is the same for Events about the same object with the same reason. For waits, it also includes what is
// waited for, but not the progress.
func spamKey(event *corev1.Event) string {
	key := []string{event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Type, event.Reason}

	if event.Reason == reasonWaiting {
		what, _, _ := strings.Cut(event.Message, ": ")
		key = append(key, strings.FieldsFunc(what, unicode.IsDigit)...)
	}

	return strings.Join(key, "\n")
}

// add queues a text and returns at once. If the queue is full, the oldest of the least important texts is
// dropped.
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

// run writes until the queue is closed and empty.
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

// next waits for an attempt and returns it. ok is false once the queue is closed and empty.
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

// write retries until the Event is written or refused, nothing more may be written, or a more important Event has
// to be written first.
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

// yields puts an attempt back and returns true if a more important one is waiting.
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

// rank sorts the queue by importance, then by age.
func (q *eventQueue) rank() {
	slices.SortStableFunc(q.waiting, func(a, b *eventAttempt) int { return cmp.Compare(b.text.rank, a.text.rank) })
}

// finish returns once the queue is written or the context ends. Nothing is written after that.
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

// disown drops the queue because another run is responsible now.
func (q *eventQueue) disown() {
	q.giveUp()

	q.mutex.Lock()
	defer q.mutex.Unlock()

	q.disowned = true
}

// giveUp drops the queue, and the Event that is being written.
func (q *eventQueue) giveUp() {
	q.mutex.Lock()
	defer q.mutex.Unlock()

	q.closed = true
	q.unwritten += len(q.waiting)
	q.waiting = nil
	q.changed.Signal()
	q.cancel()
}

// eventAttempt is an Event that is being written.
type eventAttempt struct {
	*eventQueue

	text eventText
	// event is nil until its subject is known. patch is its difference from the existing Event, if there is one.
	event *corev1.Event
	patch []byte
	// sent is true if the Event was sent before and so may exist.
	sent   bool
	faults int
	// asked is the pause that the API server asked for.
	asked time.Duration
}

// again makes an attempt and reports whether a retry is worthwhile.
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
			// The limit for Events like it is reached.
			return false
		}

		a.event, a.patch = result.Event, result.Patch
		// The correlator does not set it.
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

// newEvent returns the Event before it is combined with others like it.
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

// newName returns a unique name for an Event.
func (a *eventAttempt) newName(involved corev1.ObjectReference) string {
	return util.GenerateEventName(involved.Name, a.clock.Now().UnixNano())
}

// send raises the count of the existing Event, or creates a new one. written is nil if that is not needed or not
// permitted.
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

	// There was no such Event, or the API server has deleted it, as it does after an hour.
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

// retries records the error and reports whether a retry is worthwhile.
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

// refuse records that an Event is given up because no retry can help.
func (a *eventAttempt) refuse(err error) (again bool) {
	a.refused++
	a.refusal = err

	return false
}

// forbids reports whether the error is a missing permission rather than an objection to one Event.
func forbids(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && !deniedByAdmission(err.Error())
}

// failure returns an error that says what was not written and why, or nil if everything was. The background work
// must have ended.
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

// eventError says what was not written, and why.
type eventError struct {
	text string
	// meaning is an error of package cluster, or nil if none applies.
	meaning error
}

func (e *eventError) Error() string { return e.text }

func (e *eventError) Unwrap() error { return e.meaning }

// eventClock never returns the same time twice, because Events are named after it.
type eventClock struct {
	mutex sync.Mutex
	last  time.Time
}

// Now returns the time, or the nanosecond after the last one that it returned if that is later.
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

// Since returns the time since then.
func (c *eventClock) Since(then time.Time) time.Duration { return c.Now().Sub(then) }

// maxLookups bounds the lookups of the published object, which the publisher may be about to create.
const maxLookups = 5

// eventSubject is what Events are about.
type eventSubject struct {
	// name is for people. namespace is that of the Events.
	name, namespace string
	// reference returns the reference of the object, or of the node. After an error, it is worth asking again.
	reference func(ctx context.Context, node string) (corev1.ObjectReference, error)
}

// nodeSubject returns the subject for Events about nodes. The UID is the name, as in Events of the kubelet:
// "kubectl describe node" searches for both.
func nodeSubject() eventSubject {
	return eventSubject{
		name: "nodes", namespace: metav1.NamespaceDefault,
		reference: func(_ context.Context, node string) (corev1.ObjectReference, error) {
			return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}, nil
		},
	}
}

// objectSubject returns the subject for Events about the published object. Its UID is looked up, but Events can
// do without. Events about objects without a namespace are in the default one.
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

// NewEventSink returns a sink that shares the connection of another client of the same API server, and works only
// as long as that one.
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
