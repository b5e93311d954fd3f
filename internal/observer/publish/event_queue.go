// SPDX-License-Identifier: MPL-2.0

package publish

import (
	"cmp"
	"context"
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// maxWaiting bounds the Events that wait to be written: the API server of a control plane that reboots is
	// away for a minute or two. minorWaiting is the bound for steps and waits, so that there is room for the rest.
	maxWaiting, minorWaiting = 500, 400
	// maxOrderly bounds the Events that are written at the end of a run before the one that says how it ended.
	maxOrderly = 50
	// minEventBackoff and maxEventBackoff are the pauses after a failed attempt.
	minEventBackoff = 250 * time.Millisecond
	maxEventBackoff = 5 * time.Second
	// maxAsked bounds the pause that a busy API server may ask for.
	maxAsked = 30 * time.Second
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

// eventQueue writes the Events about one subject in order: in the background until the run ends, and then by
// whoever calls finish. client-go's broadcaster is no alternative: it drops Events, and cannot be flushed while the
// run still holds its lease.
type eventQueue struct {
	access  ObjectCreator
	subject eventSubject
	clock   *eventClock
	// steps combines many Events that differ only in their message. waits keeps one Event for all that differ
	// only in numbers, with the latest message.
	steps, waits *record.EventCorrelator

	waiting chan eventText
	// stop ends the background work, which closes done.
	stop context.CancelFunc
	done chan struct{}

	mutex sync.Mutex
	// closed is true once nothing more is accepted, disowned if another run is responsible for what was not written.
	closed, disowned bool
	// last says how the run ended.
	last []eventText
	// unwritten counts the Events for which there was no room or no time.
	unwritten int

	// The following fields belong to whoever writes: the background work, and finish after it.

	// interrupted is what the background work had begun to write when it was stopped.
	interrupted *eventAttempt
	// noCreate and noPatch are the API server's errors about a missing permission, nil if none is known to be
	// missing.
	noCreate, noPatch error
	// refused counts Events that the API server refused, and refusal is the last such error.
	refused int
	refusal error
	// away is the last error after which a retry was worthwhile.
	away error
}

func newEventQueue(access ObjectCreator, subject eventSubject, clock *eventClock) *eventQueue {
	return &eventQueue{
		access: access, subject: subject, clock: clock, waiting: make(chan eventText, maxWaiting),
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

// add queues a text and returns at once. If there is no room, the text is dropped.
func (q *eventQueue) add(text eventText) {
	q.mutex.Lock()
	defer q.mutex.Unlock()

	switch {
	case q.closed:
		return
	case text.weight == ending:
		q.last = append(q.last, text)
	case len(q.waiting) == maxWaiting, text.weight == minor && len(q.waiting) >= minorWaiting:
		q.unwritten++
	default:
		q.waiting <- text
	}

	if q.done == nil {
		q.done = make(chan struct{})

		var ctx context.Context
		ctx, q.stop = context.WithCancel(context.Background())

		go q.run(ctx)
	}
}

// run writes until the context ends.
func (q *eventQueue) run(ctx context.Context) {
	defer close(q.done)

	for {
		select {
		case <-ctx.Done():
			return
		case text := <-q.waiting:
			if attempt := (&eventAttempt{text: text}); !q.write(ctx, attempt) {
				q.interrupted = attempt

				return
			}
		}
	}
}

// finish writes what waits, until the context ends. Nothing is written after that.
func (q *eventQueue) finish(ctx context.Context) {
	if !q.close() {
		return
	}

	var left []*eventAttempt
	if q.interrupted != nil {
		left = append(left, q.interrupted)
	}

	for range len(q.waiting) {
		left = append(left, &eventAttempt{text: <-q.waiting})
	}

	at := len(left)
	if at > maxOrderly {
		at = 0
	}

	for _, text := range slices.Backward(q.last) {
		left = slices.Insert(left, at, &eventAttempt{text: text})
	}

	for index, attempt := range left {
		if !q.write(ctx, attempt) {
			q.unwritten += len(left) - index

			return
		}
	}
}

// disown drops the queue because another run is responsible now.
func (q *eventQueue) disown() {
	q.close()

	q.disowned = true
}

// close ends the background work. It returns false if the queue is closed already.
func (q *eventQueue) close() (first bool) {
	q.mutex.Lock()
	first, q.closed = !q.closed, true
	q.mutex.Unlock()

	if q.done != nil {
		q.stop()
		<-q.done
	}

	return first
}

// eventAttempt is an Event that is being written.
type eventAttempt struct {
	text eventText
	// event is nil until its subject is known. patch is its difference from the existing Event, if there is one.
	event *corev1.Event
	patch []byte
	// faults counts the internal errors of the API server.
	faults int
}

// write tries until the Event is written, dropped or refused, or the context ends; then it returns false.
func (q *eventQueue) write(ctx context.Context, attempt *eventAttempt) (settled bool) {
	backoff := newBackoff(minEventBackoff, maxEventBackoff)

	for {
		if q.noCreate != nil {
			return true
		}

		err := q.try(ctx, attempt)

		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		}

		q.away = err
		seconds, _ := apierrors.SuggestsClientDelay(err)

		select {
		case <-ctx.Done():
			return false
		case <-time.After(max(backoff.Step(), min(time.Duration(seconds)*time.Second, maxAsked))):
		}
	}
}

// try makes one attempt. If another one is worthwhile, an error is returned.
func (q *eventQueue) try(ctx context.Context, attempt *eventAttempt) error {
	correlator := q.steps
	if attempt.text.reason == reasonWaiting {
		correlator = q.waits
	}

	if attempt.event == nil {
		involved, err := q.subject.reference(ctx, attempt.text.node)
		if err != nil {
			return err
		}

		result, err := correlator.EventCorrelate(q.newEvent(attempt.text, involved))

		switch {
		case err != nil:
			return q.refuse(err)
		case result.Skip:
			// The limit for Events like it is reached.
			return nil
		}

		attempt.event, attempt.patch = result.Event, result.Patch
		// The correlator does not set it.
		attempt.event.ReportingController = reporter
	}

	written, err := q.send(ctx, attempt)
	if written != nil && err == nil {
		correlator.UpdateState(written)
	}

	return q.settle(attempt, err)
}

// newEvent returns the Event before it is combined with others like it.
func (q *eventQueue) newEvent(text eventText, involved corev1.ObjectReference) *corev1.Event {
	at, kind := metav1.NewTime(text.at), corev1.EventTypeNormal
	if at.IsZero() {
		at = metav1.NewTime(q.clock.Now())
	}

	if text.warning {
		kind = corev1.EventTypeWarning
	}

	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: q.subject.namespace, Name: util.GenerateEventName(involved.Name, q.clock.Now().UnixNano())},
		InvolvedObject: involved, Reason: text.reason, Message: text.message, Type: kind,
		FirstTimestamp: at, LastTimestamp: at, Count: 1, Source: corev1.EventSource{Component: reporter},
	}
}

// send raises the count of the existing Event, or creates a new one. Written is nil if that is not permitted.
func (q *eventQueue) send(ctx context.Context, attempt *eventAttempt) (written *corev1.Event, err error) {
	if attempt.event.Count > 1 {
		if q.noPatch == nil {
			written, err = q.patch(ctx, attempt.event, attempt.patch)
		}

		switch {
		case forbids(err):
			q.noPatch, err = err, nil

			return nil, err
		case !apierrors.IsNotFound(err):
			return written, err
		}
	}

	// There was no such Event, or the API server has deleted it, as it does after an hour.
	attempt.event.ResourceVersion = ""

	written, err = q.create(ctx, attempt.event)
	if apierrors.IsAlreadyExists(err) {
		// The reply to an earlier attempt was lost.
		return nil, nil
	}

	return written, err
}

// settle returns the error if a retry is worthwhile. Otherwise it records the error and returns nil.
func (q *eventQueue) settle(attempt *eventAttempt, err error) error {
	var answer apierrors.APIStatus

	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer) && errors.Is(err, cluster.ErrRefused):
		return q.refuse(err)
	case answer == nil:
		return err
	}

	switch code := answer.Status().Code; {
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return err
	case code >= http.StatusInternalServerError && attempt.faults < maxFaults-1:
		attempt.faults++

		return err
	case forbids(err), code == http.StatusUnauthorized:
		q.noCreate = err

		return nil
	default:
		return q.refuse(err)
	}
}

// refuse records that an Event is given up because no retry can help, and returns nil.
func (q *eventQueue) refuse(err error) error {
	q.refused++
	q.refusal = err

	return nil
}

// forbids reports whether the error is a missing permission rather than an objection to one Event.
func forbids(err error) bool {
	return errors.Is(err, cluster.ErrDenied) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// failure returns an error that says what was not written and why, or nil if everything was. The background work
// must have ended.
func (q *eventQueue) failure() error {
	var parts []string

	if q.noCreate != nil {
		parts = append(parts, fmt.Sprintf("the permission to create events in the namespace %s is missing: %s", q.subject.namespace, answerIn(q.noCreate)))
	}

	if q.noPatch != nil {
		parts = append(parts, fmt.Sprintf("the permission to patch events in the namespace %s is missing, so that repeated ones are not counted: %s",
			q.subject.namespace, answerIn(q.noPatch)))
	}

	if q.refused > 0 {
		parts = append(parts, fmt.Sprintf("the API server refused %d of them, the last because: %s", q.refused, answerIn(q.refusal)))
	}

	if q.unwritten > 0 && !q.disowned {
		text := fmt.Sprintf("%d of them could not be written in time", q.unwritten)
		if q.away != nil {
			text += ": " + answerIn(q.away)
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

// answerIn returns what the API server answered, or why it did not, without the name of the Event, which is random.
func answerIn(err error) string {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		return cluster.Plain(answer.Status().Message)
	}

	text := cluster.Plain(err.Error())
	if _, why, found := strings.Cut(text, cluster.ErrUnreachable.Error()+": "); found {
		return why
	}

	return text
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

func (q *eventQueue) create(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(event)
	if err != nil {
		return nil, err
	}

	of := referenceTo(event)
	object["apiVersion"], object["kind"] = of.APIVersion, of.Kind

	created, err := q.access.CreateObject(ctx, of, object)

	return decodedEvent(created, err)
}

// patch sends the correlator's patch, which sets plain fields only and so means the same as a JSON merge patch.
func (q *eventQueue) patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}

	patched, err := q.access.PatchObject(ctx, referenceTo(event), "", fields)

	return decodedEvent(patched, err)
}

func referenceTo(event *corev1.Event) cluster.Reference {
	return cluster.Reference{APIVersion: "v1", Kind: "Event", Namespace: event.Namespace, Name: event.Name}
}

func decodedEvent(object map[string]any, err error) (*corev1.Event, error) {
	if err != nil {
		return nil, err
	}

	var event corev1.Event

	return &event, runtime.DefaultUnstructuredConverter.FromUnstructured(object, &event)
}
