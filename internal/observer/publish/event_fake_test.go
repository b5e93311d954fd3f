// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
)

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

		document, _ := json.Marshal(before)

		patched, err := strategicpatch.StrategicMergePatch(document, body, corev1.Event{})
		if err != nil || json.Unmarshal(patched, &event) != nil {
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
func sink(t *testing.T, api *eventAPI) *publish.EventSink {
	t.Helper()

	made, err := publish.NewEventSink(&rest.Config{Host: "http://api.test"}, &http.Client{Transport: api})
	if err != nil {
		t.Fatal(err)
	}

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
