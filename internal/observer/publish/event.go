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
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
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
	// lines are the object's and the nodes' own.
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
	clock := &eventClock{}

	events := &Events{}

	if targets.Object != nil {
		events.object = newEventQueue(targets.Object, &involvedObject{of: targets.Of, access: targets.Access}, clock)
	}

	if targets.Nodes != nil {
		events.nodes = newEventQueue(targets.Nodes, involvedNode{}, clock)
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
		if len(e.held) > maxHeld {
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

	said, ok := eventTextOf(event)
	if !ok {
		return
	}

	if e.object != nil {
		e.object.add(said)
	}

	if e.nodes == nil {
		return
	}

	for _, node := range nodesOf(event) {
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

	e.each(func(line *eventQueue) {
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

	e.each(func(line *eventQueue) { line.drain(ctx) })

	var failures []error
	for _, line := range e.lines() {
		failures = append(failures, line.close())
	}

	return errors.Join(failures...)
}

func (e *Events) lines() []*eventQueue {
	var lines []*eventQueue

	for _, line := range []*eventQueue{e.object, e.nodes} {
		if line != nil {
			lines = append(lines, line)
		}
	}

	return lines
}

// each does the same with all lines at once.
func (e *Events) each(do func(*eventQueue)) {
	var all sync.WaitGroup

	for _, line := range e.lines() {
		all.Go(func() { do(line) })
	}

	all.Wait()
}

const (
	// maxQueued is how much may wait to be written: the API server of a control
	// plane that reboots is away for a minute or two.
	maxQueued = 500
	// minEventBackoff and maxEventBackoff are the pauses after a failed attempt.
	minEventBackoff = 250 * time.Millisecond
	maxEventBackoff = 5 * time.Second
)

// eventQueue writes the Events about one thing in order, in the background.
type eventQueue struct {
	writer *eventWriter

	mutex sync.Mutex
	// ctx ends when nothing more may be written; nil before there was anything.
	ctx    context.Context
	cancel context.CancelFunc
	queue  []eventText
	// over tells that nothing more is taken, and disowned that nobody misses it.
	over, disowned bool
	// unsaid counts what there was no room or no time for.
	unsaid int
	// quiet is closed when nothing waits to be written; nil while nothing does.
	quiet chan struct{}

	wake, hurry, done chan struct{}
}

func newEventQueue(sink *EventSink, about involved, clock *eventClock) *eventQueue {
	return &eventQueue{
		writer: newEventWriter(sink, about, clock),
		wake:   make(chan struct{}, 1), hurry: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// add takes something to be written and returns at once.
func (l *eventQueue) add(said eventText) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if l.over {
		return
	}

	if l.queue = append(l.queue, said); len(l.queue) > maxQueued {
		l.makeRoom()
	}

	if l.quiet == nil {
		l.quiet = make(chan struct{})
	}

	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancel(context.Background())

		go l.run(l.ctx)
	}

	signal(l.wake)
}

// makeRoom gives up the oldest of what matters least.
func (l *eventQueue) makeRoom() {
	least := slices.MinFunc(l.queue, func(a, b eventText) int { return int(a.rank) - int(b.rank) })
	index := slices.IndexFunc(l.queue, func(said eventText) bool { return said.rank == least.rank })

	l.queue = slices.Delete(l.queue, index, index+1)
	l.unsaid++
}

// run writes until the context ends.
func (l *eventQueue) run(ctx context.Context) {
	defer close(l.done)

	for {
		said, found := l.next(ctx)

		switch {
		case found:
			l.write(ctx, said)
		case ctx.Err() != nil:
			return
		default:
			select {
			case <-ctx.Done():
			case <-l.wake:
			}
		}
	}
}

// next is the oldest that waits. The one before has been written.
func (l *eventQueue) next(ctx context.Context) (eventText, bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if len(l.queue) == 0 || ctx.Err() != nil {
		if l.quiet != nil {
			close(l.quiet)
			l.quiet = nil
		}

		return eventText{}, false
	}

	said := l.queue[0]
	l.queue = l.queue[1:]

	return said, true
}

// write tries until the Event is written, cannot be, or the context ends.
func (l *eventQueue) write(ctx context.Context, said eventText) {
	attempt := l.writer.begin(said)
	backoff := minEventBackoff

	for attempt.again(ctx) {
		timer := time.NewTimer(backoff)

		select {
		case <-ctx.Done():
		case <-timer.C:
			backoff = min(2*backoff, maxEventBackoff)
		case <-l.hurry:
			backoff = minEventBackoff
		}

		timer.Stop()

		if ctx.Err() != nil {
			l.mutex.Lock()
			l.unsaid++
			l.mutex.Unlock()

			return
		}
	}
}

// drain returns when nothing waits to be written, or when the context ends.
func (l *eventQueue) drain(ctx context.Context) {
	l.mutex.Lock()
	quiet := l.quiet
	l.mutex.Unlock()

	if quiet == nil {
		return
	}

	signal(l.hurry)

	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// end writes nothing more from now on.
func (l *eventQueue) end() {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	l.over = true
	l.unsaid += len(l.queue)
	l.queue = nil

	if l.cancel != nil {
		l.cancel()
	}
}

// disown is end, where what was not written is somebody else's to say.
func (l *eventQueue) disown() {
	l.mutex.Lock()
	l.disowned = true
	l.mutex.Unlock()

	l.end()
}

// close is end, and waits for the end of the background work. It says what was not
// written, and why.
func (l *eventQueue) close() error {
	l.end()

	l.mutex.Lock()
	launched := l.ctx != nil
	l.mutex.Unlock()

	if launched {
		<-l.done
	}

	// Nobody else uses the line any more.
	if l.disowned {
		l.unsaid = 0
	}

	return l.writer.failure(l.unsaid)
}

const (
	// reporter is who reports the Events.
	reporter = "talosupgrade"
	// maxFaults is how often an Event is sent with which the API server has an
	// error of its own.
	maxFaults = 3
)

// eventAttempt is one Event that is being written.
type eventAttempt struct {
	*eventWriter

	said eventText
	// event is nil before it is known what it is about; patch is how it differs from
	// the one that is there, if it is.
	event *corev1.Event
	patch []byte
	// sent tells that it was sent before, and may be there.
	sent   bool
	faults int
}

func (w *eventWriter) begin(said eventText) *eventAttempt {
	return &eventAttempt{eventWriter: w, said: said}
}

// again makes an attempt, and tells whether another one could do better.
func (a *eventAttempt) again(ctx context.Context) bool {
	if a.noCreate != nil {
		return false
	}

	if a.event == nil {
		involved, err := a.about.reference(ctx, a.said)
		if err != nil {
			a.away = err

			return true
		}

		if !a.correlate(involved) {
			return false
		}
	}

	written, err := a.send(ctx)
	if err != nil {
		return a.judge(err)
	}

	if written != nil {
		a.correlator().UpdateState(written)
	}

	return false
}

// correlate makes the Event; false where there are enough of them.
func (a *eventAttempt) correlate(involved corev1.ObjectReference) bool {
	at := metav1.NewTime(a.said.at)
	if at.IsZero() {
		at = metav1.NewTime(a.clock.Now())
	}

	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: a.about.namespace(), Name: a.name(involved)},
		InvolvedObject: involved, Reason: a.said.reason, Message: a.said.message, Type: corev1.EventTypeNormal,
		FirstTimestamp: at, LastTimestamp: at, Count: 1, Source: corev1.EventSource{Component: reporter},
	}

	if a.said.warning {
		event.Type = corev1.EventTypeWarning
	}

	result, err := a.correlator().EventCorrelate(event)
	if err != nil {
		a.refused++
		a.refusal = err

		return false
	}

	if result.Skip {
		return false
	}

	a.event, a.patch = result.Event, result.Patch
	// What tells alike Events apart does not know it.
	a.event.ReportingController = reporter

	return true
}

// name is one that no other Event has.
func (a *eventAttempt) name(involved corev1.ObjectReference) string {
	return util.GenerateEventName(involved.Name, a.clock.Now().UnixNano())
}

func (a *eventAttempt) correlator() *record.EventCorrelator {
	if a.said.rank == rankWait {
		return a.waits
	}

	return a.steps
}

// send counts the Event that is there already, or makes it. What is written is nil
// where it need not, or may not, be.
func (a *eventAttempt) send(ctx context.Context) (written *corev1.Event, err error) {
	if a.event.Count > 1 {
		if a.uncounted() {
			return nil, nil
		}

		written, err = a.sink.patch(ctx, a.event, a.patch)

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

	written, err = a.sink.create(ctx, a.event)

	switch {
	case apierrors.IsAlreadyExists(err) && a.sent:
		written, err = nil, nil
	case apierrors.IsAlreadyExists(err):
		a.event.Name = a.name(a.event.InvolvedObject)
	}

	a.sent = true

	return written, err
}

// judge takes note of what failed, and tells whether another attempt could do
// better.
func (a *eventAttempt) judge(err error) bool {
	var answer apierrors.APIStatus

	if !errors.As(err, &answer) || apierrors.IsAlreadyExists(err) {
		a.away = err

		return true
	}

	switch code := answer.Status().Code; {
	case forbids(err), code == http.StatusUnauthorized:
		a.noCreate = err

		return false
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		a.away = err

		return true
	case code >= http.StatusInternalServerError:
		if a.faults++; a.faults < maxFaults {
			a.away = err

			return true
		}
	}

	a.refused++
	a.refusal = err

	return false
}

// forbids tells a missing permission from an objection to one Event.
func forbids(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) &&
		!strings.Contains(err.Error(), "admission webhook") && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

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
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()

	var written corev1.Event

	err := s.client.Post().Namespace(event.Namespace).Resource("events").Body(event).MaxRetries(0).Do(ctx).Into(&written)

	return &written, err
}

func (s *EventSink) patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()

	var written corev1.Event

	err := s.client.Patch(types.StrategicMergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).
		Body(patch).MaxRetries(0).Do(ctx).Into(&written)

	return &written, err
}

// maxLookups is how often the published object is looked for. The publisher may
// be about to create it.
const maxLookups = 5

// involved finds the object that an Event is about.
type involved interface {
	// reference is the object. An error means that it is worth to ask again.
	reference(ctx context.Context, said eventText) (corev1.ObjectReference, error)
	// String names what the Events are about.
	String() string
	// namespace holds the Events.
	namespace() string
}

// involvedNode stands for the node of each saying.
type involvedNode struct{}

func (involvedNode) String() string { return "nodes" }

func (involvedNode) namespace() string { return metav1.NamespaceDefault }

// reference names the node twice, as kubelets do: "kubectl describe node" asks for
// both.
func (involvedNode) reference(_ context.Context, said eventText) (corev1.ObjectReference, error) {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: said.node, UID: types.UID(said.node)}, nil
}

// involvedObject stands for the published object. It is used by one goroutine.
type involvedObject struct {
	of     cluster.Reference
	access cluster.ObjectAccess

	uid     types.UID
	lookups int
}

func (i *involvedObject) String() string { return i.of.String() }

// namespace is that of the object; Events about objects without one are in the
// default namespace.
func (i *involvedObject) namespace() string {
	if i.of.Namespace == "" {
		return metav1.NamespaceDefault
	}

	return i.of.Namespace
}

func (i *involvedObject) reference(ctx context.Context, _ eventText) (corev1.ObjectReference, error) {
	err := i.identify(ctx)

	return corev1.ObjectReference{
		APIVersion: i.of.APIVersion, Kind: i.of.Kind, Namespace: i.of.Namespace, Name: i.of.Name, UID: i.uid,
	}, err
}

// identify looks up the UID of the object, which Events can do without.
func (i *involvedObject) identify(ctx context.Context) error {
	if i.uid != "" || i.access == nil || i.lookups >= maxLookups {
		return nil
	}

	object, err := i.access.Object(ctx, i.of)
	if err == nil {
		metadata, _ := object["metadata"].(map[string]any)
		uid, _ := metadata["uid"].(string)
		i.uid, i.lookups = types.UID(uid), maxLookups

		return nil
	}

	if errors.Is(err, cluster.ErrUnreachable) {
		return err
	}

	if i.lookups++; i.lookups < maxLookups && errors.Is(err, cluster.ErrNotFound) {
		return err
	}

	i.lookups = maxLookups

	return nil
}

// maxEventMessage is how long the message of a Kubernetes Event may be, in bytes,
// with room for what is put before it where several are combined.
const maxEventMessage = 1024 - 64

// reasonWaiting is the reason of Events that say what is being waited for.
const reasonWaiting = "Waiting"

// eventRank is what is given up last where not everything can be written.
type eventRank int

const (
	rankWait eventRank = iota
	rankStep
	rankTurn
	rankWarning
	rankRun
)

// eventText is what a Kubernetes Event says.
type eventText struct {
	// node is the node that it is about; empty for the published object.
	node string
	// alone is the message where the Event is about the node itself.
	message, alone string
	reason         string
	warning        bool
	rank           eventRank
	at             time.Time
}

// of is the saying about a node.
func (s eventText) of(node string) eventText {
	s.node, s.message = node, s.alone

	return s
}

// eventTextOf is the event for people; not ok where there is nothing to tell.
func eventTextOf(event cluster.Event) (said eventText, ok bool) {
	switch event.Kind {
	case cluster.EventRunStarted:
		said = eventText{reason: "UpgradeStarted", message: "Upgrade started: " + journey(event), rank: rankRun}
	case cluster.EventRunDone:
		said = eventText{reason: "UpgradeCompleted", message: "Upgrade completed: " + arrival(event), rank: rankRun}
	case cluster.EventRunFailed:
		said = eventText{reason: "UpgradeFailed", message: "Upgrade failed: " + reasonOf(event), warning: true, rank: rankRun}
	case cluster.EventNodeStarted:
		said = started(event)
	case cluster.EventNodeDone:
		said = finished(event)
	case cluster.EventNodeStep:
		said = stepped(event)
	case cluster.EventRollingBack:
		said = eventText{
			reason: "RollingBack", message: "Rolling back node " + event.Node + onto(" to Talos ", event.To) + ": " + reasonOf(event),
			alone:   "Rolling back" + onto(" to Talos ", event.To) + ": " + reasonOf(event),
			warning: true, rank: rankRun,
		}
	case cluster.EventWarning:
		said = remarked(event, "UpgradeWarning", rankWarning)
		said.warning = true
	case cluster.EventWaiting:
		said = remarked(event, reasonWaiting, rankWait)
	default:
		return eventText{}, false
	}

	said.message, said.alone = eventMessage(said.message), eventMessage(cmp.Or(said.alone, said.message))
	said.at = event.Time

	return said, true
}

// eventProduct is one of Talos and Kubernetes, as an event speaks of it.
type eventProduct struct {
	name     string
	progress cluster.Progress
	target   version.Version
}

// managedProducts are those about which the target says something.
func managedProducts(event cluster.Event) []eventProduct {
	return slices.DeleteFunc([]eventProduct{
		{"Talos", event.Talos, event.Target.Talos}, {"Kubernetes", event.Kubernetes, event.Target.Kubernetes},
	}, func(one eventProduct) bool { return one.target.IsZero() })
}

// journey is from where to where the products move.
func journey(event cluster.Event) string {
	var parts []string

	for _, one := range managedProducts(event) {
		switch lowest := one.progress.Lowest; {
		case one.progress.Total > 0 && one.progress.Steps == 0:
			parts = append(parts, one.name+" "+one.target.String()+" already")
		case lowest.IsZero() || lowest.Equal(one.target):
			parts = append(parts, one.name+" to "+one.target.String())
		default:
			parts = append(parts, fmt.Sprintf("%s %s \u2192 %s", one.name, lowest, one.target))
		}
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

// arrival is where the products are, as far as every node shows it.
func arrival(event cluster.Event) string {
	var running, parts []string

	for _, one := range managedProducts(event) {
		switch {
		case one.progress.Total == 0:
			// Where all nodes are held nothing is known of any.
		case one.progress.Done < one.progress.Total:
			parts = append(parts, fmt.Sprintf("%d/%d nodes show %s %s so far", one.progress.Done, one.progress.Total, one.name, one.target))
		case one.progress.Lowest.IsZero():
			running = append(running, one.name+" "+one.target.String())
		default:
			running = append(running, one.name+" "+one.progress.Lowest.String())
		}
	}

	if len(running) > 0 {
		parts = slices.Insert(parts, 0, "now running "+strings.Join(running, " and "))
	}

	return cmp.Or(strings.Join(parts, ", "), "nothing is managed")
}

func started(event cluster.Event) eventText {
	switch event.Component {
	case "":
		return eventText{
			reason: "NodeUpgradeStarted", message: "Upgrading node " + event.Node + onto(" to Talos ", event.To),
			alone: "Upgrading the node" + onto(" to Talos ", event.To), rank: rankTurn,
		}
	case cluster.Manifests:
		return eventText{reason: "ManifestsStarted", message: "Syncing the bootstrap manifests", rank: rankTurn}
	default:
		return eventText{
			reason: "ComponentUpgradeStarted", message: "Upgrading " + string(event.Component) + " on " + event.Node + onto(" to ", event.To),
			alone: "Upgrading " + string(event.Component) + onto(" to ", event.To), rank: rankTurn,
		}
	}
}

func finished(event cluster.Event) eventText {
	switch event.Component {
	case "":
		return eventText{
			reason: "NodeUpgraded", message: "Node " + event.Node + " upgraded" + onto(" to Talos ", event.To),
			alone: "Node upgraded" + onto(" to Talos ", event.To), rank: rankTurn,
		}
	case cluster.Manifests:
		return eventText{reason: "ManifestsSynced", message: "Bootstrap manifests synced", rank: rankTurn}
	default:
		return eventText{
			reason: "ComponentUpgraded", message: string(event.Component) + " on " + event.Node + " upgraded" + onto(" to ", event.To),
			alone: string(event.Component) + " upgraded" + onto(" to ", event.To), rank: rankTurn,
		}
	}
}

// onto is the version with what comes before it; empty where it is not known.
func onto(before string, to version.Version) string {
	if to.IsZero() {
		return ""
	}

	return before + to.String()
}

// stepped is what is being done to a node, a component or the manifests.
func stepped(event cluster.Event) eventText {
	why, what := stepWords(event.Step)

	if event.Component != "" && event.Component != cluster.Manifests {
		what += " (" + string(event.Component) + ")"
	}

	if event.Text != "" {
		what += ": " + event.Text
	}

	said := eventText{reason: why, message: what, alone: what, rank: rankStep}
	if event.Node != "" {
		said.message = event.Node + ": " + what
	}

	return said
}

// stepWords are the reason and the beginning of the message of a step.
func stepWords(step cluster.NodeStep) (reason, what string) {
	switch step {
	case cluster.StepPull:
		return "Pulling", "Pulling the image"
	case cluster.StepCordon:
		return "Cordoning", "Cordoning the node"
	case cluster.StepDrain:
		return "Draining", "Draining the node"
	case cluster.StepInstall:
		return "Installing", "Installing"
	case cluster.StepLegacy:
		return "Installing", "Installing and rebooting"
	case cluster.StepInstaller:
		return "WaitingForInstaller", "Waiting until no installation is running"
	case cluster.StepReboot:
		return "Rebooting", "Rebooting the node"
	case cluster.StepReturn:
		return "WaitingForReturn", "Waiting for the node to come back"
	case cluster.StepEtcd:
		return "WaitingForEtcd", "Waiting for the etcd member to be healthy"
	case cluster.StepReady:
		return "WaitingForReady", "Waiting for the node to be ready"
	case cluster.StepUncordon:
		return "Uncordoning", "Uncordoning the node"
	case cluster.StepSnapshot:
		return "TakingSnapshot", "Taking a snapshot of etcd"
	case cluster.StepGates:
		return "WaitingForGates", "Waiting for the gates"
	case cluster.StepRollback:
		return "SendingBack", "Sending the node back to its previous system"
	case cluster.StepInstallImage:
		return "UpdatingInstallImage", "Updating machine.install.image"
	default:
		return componentWords(step)
	}
}

func componentWords(step cluster.NodeStep) (reason, what string) {
	switch step {
	case cluster.StepConfigure:
		return "Configuring", "Changing the machine configuration"
	case cluster.StepRestart:
		return "Restarting", "Waiting for the component to run from its new image"
	case cluster.StepApply:
		return "ApplyingManifests", "Applying the bootstrap manifests"
	case cluster.StepRollout:
		return "WaitingForRollout", "Waiting for the bootstrap manifests to be rolled out"
	default:
		return "UpgradeStep", string(step)
	}
}

// remarked is what the event says in its own words. They may begin with the node.
func remarked(event cluster.Event, why string, rank eventRank) eventText {
	said := eventText{reason: why, message: reasonOf(event), rank: rank}

	if event.Node != "" {
		said.alone = strings.TrimPrefix(said.message, event.Node+": ")
		if !strings.Contains(said.message, event.Node) {
			said.message += " (" + event.Node + ")"
		}
	}

	return said
}

// eventMessage is a text in one line that is no longer than a message may be.
func eventMessage(text string) string {
	line := readable.Escaped(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "))
	if len(line) <= maxEventMessage {
		return line
	}

	cut := maxEventMessage - len("\u2026")
	for !utf8.RuneStart(line[cut]) {
		cut--
	}

	return line[:cut] + "\u2026"
}
