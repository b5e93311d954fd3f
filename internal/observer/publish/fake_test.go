// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var errDown = errors.New("the API server is down")

// memory is a store that can be slow, down, or lose replies.
type memory struct {
	mutex   sync.Mutex
	found   map[string]string
	patches []map[string]*string
	// until is when it starts to answer.
	until time.Time
	// takes is how long each patch takes.
	takes time.Duration
	// loses lets patches take effect and fail.
	loses int
	// after runs after each patch that took effect, with the lock held.
	after func(found map[string]string)
}

func (m *memory) String() string { return "the memory" }

func (m *memory) Patch(ctx context.Context, changes map[string]*string) error {
	timer := time.NewTimer(m.takes)
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}

	m.mutex.Lock()
	defer m.mutex.Unlock()

	if time.Now().Before(m.until) {
		return errDown
	}

	if m.found == nil {
		m.found = map[string]string{}
	}

	m.patches = append(m.patches, changes)

	for key, value := range changes {
		if value == nil {
			delete(m.found, key)
		} else {
			m.found[key] = *value
		}
	}

	if m.after != nil {
		m.after(m.found)
	}

	if m.loses > 0 {
		m.loses--

		return errDown
	}

	return nil
}

func (m *memory) Read(context.Context) (map[string]string, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()

	if time.Now().Before(m.until) {
		return nil, errDown
	}

	return maps.Clone(m.found), nil
}

func (m *memory) get(key string) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()

	value, exists := m.found[key]
	if !exists {
		return "absent"
	}

	return value
}

// progress is a half with that many of all nodes done, and as many steps left.
func progress(done, total int, lowest string) cluster.Progress {
	made := cluster.Progress{Managed: true, Done: done, Total: total, Steps: total - done}
	if lowest != "" {
		made.Lowest = version.MustParse(lowest)
	}

	return made
}

// story is a run that goes well, told as the engine tells it.
func story() []cluster.Event {
	target := cluster.Target{Talos: version.MustParse("v1.13.4")}
	none, one, all := progress(0, 2, "1.12.6"), progress(1, 2, "1.12.6"), progress(2, 2, "1.13.4")

	return []cluster.Event{
		{Kind: cluster.EventRunStarted, Talos: none, Target: target},
		{Kind: cluster.EventNodeStarted, Node: "worker-0", Talos: none, Target: target},
		{Kind: cluster.EventNodeStep, Node: "worker-0", Step: cluster.StepDrain},
		{Kind: cluster.EventNodeDone, Node: "worker-0", Target: target},
		{Kind: cluster.EventNodeStarted, Node: "cp-0", Talos: one, Target: target},
		{Kind: cluster.EventNodeDone, Node: "cp-0", Target: target},
		{Kind: cluster.EventRunDone, Talos: all, Target: target},
	}
}

var _ publish.Store = (*memory)(nil)

// eventAPI is the part of an API server that keeps Events. It is the transport of
// a client, so that it works in a bubble.
type eventAPI struct {
	mutex  sync.Mutex
	events map[string]corev1.Event
	// order are the names in the order of their creation.
	order []string
	// requests are "METHOD path".
	requests []string
	// answer decides about a request before it is carried out: a code to answer, an
	// error to fail with, or neither.
	answer func(method, path string) (code int, err error)
	// loses is how many requests are carried out and not answered.
	loses int
}

func (a *eventAPI) RoundTrip(request *http.Request) (*http.Response, error) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	if err := request.Context().Err(); err != nil {
		return nil, err
	}

	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}

	a.requests = append(a.requests, request.Method+" "+request.URL.Path)

	if a.answer != nil {
		code, err := a.answer(request.Method, request.URL.Path)
		if err != nil {
			return nil, err
		}

		if code != 0 {
			return answered(request, code, nil), nil
		}
	}

	code, event := a.carryOut(request, body)

	if a.loses > 0 {
		a.loses--

		return nil, errDown
	}

	return answered(request, code, event), nil
}

func (a *eventAPI) carryOut(request *http.Request, body []byte) (int, *corev1.Event) {
	if a.events == nil {
		a.events = map[string]corev1.Event{}
	}

	var event corev1.Event

	key := strings.TrimPrefix(request.URL.Path, "/api/v1/namespaces/")

	switch request.Method {
	case http.MethodPost:
		if err := json.Unmarshal(body, &event); err != nil || event.ResourceVersion != "" || event.InvolvedObject.Namespace != "" && event.InvolvedObject.Namespace != event.Namespace {
			return http.StatusUnprocessableEntity, nil
		}

		key += "/" + event.Name
		if _, exists := a.events[key]; exists {
			return http.StatusConflict, nil
		}

		a.order = append(a.order, key)
	case http.MethodPatch:
		before, exists := a.events[key]
		if !exists {
			return http.StatusNotFound, nil
		}

		event = before
		if request.Header.Get("Content-Type") != "application/merge-patch+json" || json.Unmarshal(body, &event) != nil {
			return http.StatusBadRequest, nil
		}
	}

	event.ResourceVersion = fmt.Sprint(len(a.requests))
	a.events[key] = event
	event.TypeMeta.Kind, event.TypeMeta.APIVersion = "Event", "v1"

	return http.StatusOK, &event
}

func answered(request *http.Request, code int, event *corev1.Event) *http.Response {
	var body any = event

	if event == nil {
		reasons := map[int]string{403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 422: "Invalid"}
		body = map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reasons[code],
			"message": fmt.Sprintf("the server says %d to %s", code, request.Method),
		}
	}

	encoded, _ := json.Marshal(body)

	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "8")

		encoded = []byte("Too many requests, please try again later.")
		header.Set("Content-Type", "text/plain")
	}

	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: header, Body: io.NopCloser(strings.NewReader(string(encoded))),
	}
}

// told are the Events in the order of their creation, each as a line.
func (a *eventAPI) told() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	var lines []string

	for _, key := range a.order {
		event := a.events[key]

		line := fmt.Sprintf("%s %s: %s %s: %s", event.Namespace, event.InvolvedObject.Name, event.Type, event.Reason, event.Message)
		if event.Count > 1 {
			line += fmt.Sprintf(" (x%d)", event.Count)
		}

		lines = append(lines, line)
	}

	return lines
}

func (a *eventAPI) all() []corev1.Event {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	return slices.Collect(maps.Values(a.events))
}

func (a *eventAPI) count() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	return len(a.requests)
}

// change has the API behave differently from now on.
func (a *eventAPI) change(how func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	how()
}

// away answers nothing before the given time.
func away(until time.Time) func(method, path string) (int, error) {
	return func(string, string) (int, error) {
		if time.Now().Before(until) {
			return 0, errDown
		}

		return 0, nil
	}
}

var publishedCluster = cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}

// sink writes to the API.
func sink(t *testing.T, api http.RoundTripper) publish.ObjectCreator {
	t.Helper()

	const kubeconfig = `{clusters: [{name: a, cluster: {server: "http://api.test"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`

	made, err := kubeapi.New([]byte(kubeconfig), "", kubeapi.Options{Transport: api})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(made.Close)

	return made
}

// events tells the API about the nodes and about a published object.
func events(t *testing.T, api *eventAPI) *publish.Events {
	t.Helper()

	return publish.NewEvents(publish.EventTargets{Nodes: sink(t, api), Object: sink(t, api), Of: publishedCluster})
}

// objects are the answers to the one question for the published object.
type objects struct {
	cluster.ObjectAccess

	mutex   sync.Mutex
	asked   int
	answers []error
}

func (o *objects) Object(context.Context, cluster.Reference) (map[string]any, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()

	o.asked++
	if o.asked <= len(o.answers) {
		return nil, o.answers[o.asked-1]
	}

	return map[string]any{"metadata": map[string]any{"uid": "uid-of-prod"}}, nil
}

// published is the object of a [shelf].
func published() cluster.Reference {
	return cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "tenant-a", Name: "prod"}
}

// annotationsMost is what an API server allows all annotations of an object
// together, in bytes.
const annotationsMost = 256 << 10

// shelf is access to a single object, which behaves as an API server does: it counts
// versions, merges patches, refuses what is too large or not in the schema, and takes
// fields that it does not know for errors in parts only.
type shelf struct {
	mutex sync.Mutex
	// found is nil while there is no object.
	found map[string]any
	// fields are those of the status; nil where the kind has no status.
	fields []string
	// refuses is a field of the status that may not look as it is wanted.
	refuses string
	// pruning drops unknown fields instead of refusing them.
	pruning bool
	version int
	// calls lists the patches in order, with the part in front.
	calls []string
	// reads counts reads.
	reads int
	// answer is asked before each call of that name, and errors are returned.
	answer func(call string) error
	// before runs before each patch of a part, unlocked, as another writer does.
	before func(part string)
}

func newShelf(fields ...string) *shelf {
	s := &shelf{fields: fields, version: 1}
	s.found = map[string]any{
		"apiVersion": published().APIVersion, "kind": published().Kind, "spec": map[string]any{"topology": "x"},
		"metadata": map[string]any{"namespace": published().Namespace, "name": published().Name, "annotations": map[string]any{"theirs": "yes"}},
	}
	s.stamp()

	return s
}

func (s *shelf) stamp() {
	s.version++
	s.metadata()["resourceVersion"] = strconv.Itoa(s.version)
}

func (s *shelf) metadata() map[string]any { return inner(s.found, "metadata") }

// inner is the object in a field of another one; nil where there is none.
func inner(object any, name string) map[string]any {
	fields, _ := object.(map[string]any)
	found, _ := fields[name].(map[string]any)

	return found
}

// list are the conditions that stand.
func (s *shelf) list() []map[string]any {
	entries, _ := s.status()["conditions"].([]any)
	list := make([]map[string]any, len(entries))

	for i, entry := range entries {
		list[i], _ = entry.(map[string]any)
	}

	return list
}

func (s *shelf) Objects(context.Context, cluster.ObjectQuery) ([]map[string]any, error) {
	return nil, cluster.ErrUnsupported
}

func (s *shelf) Object(_ context.Context, of cluster.Reference) (map[string]any, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	s.reads++

	if err := s.asked("read"); err != nil {
		return nil, err
	}

	if of != published() || s.found == nil {
		return nil, fmt.Errorf("unable to read %s: no such object: %w", of, cluster.ErrNotFound)
	}

	return copied(s.found), nil
}

func (s *shelf) HasPart(context.Context, cluster.Reference, string) (bool, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.fields != nil, s.asked("part")
}

func (s *shelf) PatchObject(_ context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	if s.before != nil {
		s.before(part)
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()

	if err := s.asked("patch " + part); err != nil {
		return nil, err
	}

	if of != published() || s.found == nil {
		return nil, fmt.Errorf("unable to change %s: no such object: %w", of, cluster.ErrNotFound)
	}

	text, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}

	s.calls = append(s.calls, part+" "+string(text))
	patch = copied(patch)

	if asked, _ := patch["metadata"].(map[string]any); asked["resourceVersion"] != nil {
		if asked["resourceVersion"] != s.metadata()["resourceVersion"] {
			return nil, fmt.Errorf("the object has been modified: %w", cluster.ErrConflict)
		}

		delete(asked, "resourceVersion")
	}

	next := copied(s.found)

	if part == "" {
		delete(patch, "status")
		merge(next, patch)
	} else if err := s.mergeStatus(next, patch); err != nil {
		return nil, err
	}

	size := 0
	for key, value := range inner(inner(next, "metadata"), "annotations") {
		size += len(key) + len(fmt.Sprint(value))
	}

	if size > annotationsMost {
		return nil, fmt.Errorf("metadata.annotations: Too long: may not be more than %d bytes: %w", annotationsMost, cluster.ErrRefused)
	}

	s.found = next
	s.stamp()

	return copied(s.found), nil
}

func (s *shelf) mergeStatus(next, patch map[string]any) error {
	fields, _ := patch["status"].(map[string]any)
	for name := range fields {
		known := false
		for _, field := range s.fields {
			known = known || field == name
		}

		switch {
		case name == s.refuses:
			return fmt.Errorf("status.%s: Unsupported value: %w", name, cluster.ErrRefused)
		case known:
		case s.pruning:
			delete(fields, name)
		default:
			return fmt.Errorf("strict decoding error: unknown field %q: %w", "status."+name, cluster.ErrRefused)
		}
	}

	merge(next, map[string]any{"status": fields})

	return nil
}

func (s *shelf) asked(call string) error {
	if s.answer == nil {
		return nil
	}

	return s.answer(call)
}

// write changes the object as somebody else does.
func (s *shelf) write(patch map[string]any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	merge(s.found, copied(patch))
	s.stamp()
}

func (s *shelf) annotate(values map[string]any) {
	s.write(map[string]any{"metadata": map[string]any{"annotations": values}})
}

// get is an annotation.
func (s *shelf) get(key string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	annotations, _ := s.metadata()["annotations"].(map[string]any)

	value, exists := annotations[key].(string)
	if !exists {
		return "absent"
	}

	return value
}

// status is the status of the object.
func (s *shelf) status() map[string]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	status, _ := copied(s.found)["status"].(map[string]any)

	return status
}

// condition is "status reason message" of the condition with the type.
func (s *shelf) condition(kind string) string {
	for _, fields := range s.list() {
		if fields["type"] == kind {
			return fmt.Sprintf("%v %v %v", fields["status"], fields["reason"], fields["message"])
		}
	}

	return "absent"
}

// moved is when the condition with the type last changed its status.
func (s *shelf) moved(t *testing.T, kind string) time.Time {
	t.Helper()

	for _, fields := range s.list() {
		if fields["type"] != kind {
			continue
		}

		moved, err := time.Parse(time.RFC3339, fmt.Sprint(fields["lastTransitionTime"]))
		if err != nil {
			t.Error(err)
		}

		return moved
	}

	t.Errorf("there is no condition %s", kind)

	return time.Time{}
}

func copied(value map[string]any) map[string]any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}

	var made map[string]any
	if err := json.Unmarshal(text, &made); err != nil {
		panic(err)
	}

	return made
}

// merge is RFC 7386.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)

		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			standing, _ := into[key].(map[string]any)
			if standing == nil {
				standing = map[string]any{}
			}

			merge(standing, inner)
			into[key] = standing
		default:
			into[key] = value
		}
	}
}

var _ cluster.ObjectAccess = (*shelf)(nil)
