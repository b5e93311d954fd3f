// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const stageReceived = "RequestReceived"

// The origin of a request, as the history names it.
const (
	byClient  = "client"
	byMachine = "machine"
	byOther   = "other"
)

// clientAgent begins the user agent of the provider.
const clientAgent = "terraform-provider-talosupgrade"

// auditEvent is the part of audit.k8s.io/v1 Event that is used here.
type auditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus metav1.Status   `json:"responseStatus"`
	RequestObject  json.RawMessage `json:"requestObject"`
	ResponseObject json.RawMessage `json:"responseObject"`
	Received       time.Time       `json:"requestReceivedTimestamp"`
}

// mark returns the number of a request of Sync; false if it is another request.
func (e auditEvent) mark() (int64, bool) {
	path, query, found := strings.Cut(e.RequestURI, "?")
	if !found || path != markPath || e.User.Username != userSimulator {
		return 0, false
	}

	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, false
	}

	mark, err := strconv.ParseInt(values.Get(markQuery), 10, 64)

	return mark, err == nil
}

// by returns the origin of the request: by the certificate, and otherwise by the user agent.
func (e auditEvent) by() string {
	switch {
	case e.User.Username == userMachine:
		return byMachine
	case strings.HasPrefix(e.UserAgent, clientAgent):
		return byClient
	default:
		return byOther
	}
}

// resource returns "pods" or, with a subresource, "pods/eviction".
func (e auditEvent) resource() string {
	if e.ObjectRef.Subresource != "" {
		return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
	}

	return e.ObjectRef.Resource
}

func (e auditEvent) succeeded() bool {
	return e.ResponseStatus.Code >= http.StatusOK && e.ResponseStatus.Code < http.StatusMultipleChoices
}

// dryRun reports whether the request was to change nothing: by its query, or by the body of a deletion or an
// eviction.
func (e auditEvent) dryRun() bool {
	if _, query, found := strings.Cut(e.RequestURI, "?"); found {
		values, err := url.ParseQuery(query)
		if err == nil && slices.Contains(values["dryRun"], metav1.DryRunAll) {
			return true
		}
	}

	var body struct {
		DryRun        []string `json:"dryRun"`
		DeleteOptions struct {
			DryRun []string `json:"dryRun"`
		} `json:"deleteOptions"`
	}

	if e.Verb != "delete" && e.ObjectRef.Subresource != "eviction" {
		return false
	}

	return json.Unmarshal(e.RequestObject, &body) == nil &&
		slices.Contains(append(body.DryRun, body.DeleteOptions.DryRun...), metav1.DryRunAll)
}

// name returns the name of the object; a creation has it only in the body.
func (e auditEvent) name() string {
	if e.ObjectRef.Name != "" {
		return e.ObjectRef.Name
	}

	return e.object().Metadata.Name
}

// objectPath returns the path at which the object of a write can be read; empty if there is none.
func (e auditEvent) objectPath() string {
	path, _, _ := strings.Cut(e.RequestURI, "?")

	switch {
	case e.ObjectRef.Subresource != "" && e.ObjectRef.Subresource != "status", e.name() == "":
		return ""
	case e.Verb == "create":
		return path + "/" + e.name()
	default:
		return path
	}
}

// shownBy reports whether an object is as the request wanted it to be.
func (e auditEvent) shownBy(object []byte, found bool) bool {
	if e.Verb == "delete" || !found {
		return e.Verb == "delete" && !found
	}

	var wanted, is struct {
		Metadata struct {
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
		Spec   any            `json:"spec"`
		Data   map[string]any `json:"data"`
		Status any            `json:"status"`
	}

	if json.Unmarshal(e.RequestObject, &wanted) != nil || json.Unmarshal(object, &is) != nil {
		return false
	}

	if e.Verb != "patch" {
		return e.ObjectRef.Subresource == "" && reflect.DeepEqual(wanted.Metadata, is.Metadata) &&
			reflect.DeepEqual(wanted.Spec, is.Spec) && reflect.DeepEqual(wanted.Data, is.Data) ||
			e.ObjectRef.Subresource == "status" && reflect.DeepEqual(wanted.Status, is.Status)
	}

	return merged(wanted.Metadata.Annotations, is.Metadata.Annotations) && merged(wanted.Spec, is.Spec) &&
		merged(wanted.Data, is.Data) && merged(wanted.Status, is.Status)
}

// merged reports whether a merge patch would change nothing.
func merged(patch, is any) bool {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch == nil || reflect.DeepEqual(patch, is)
	}

	there, _ := is.(map[string]any)

	for key, value := range fields {
		standing, stands := there[key]
		if value == nil && stands || value != nil && !merged(value, standing) {
			return false
		}
	}

	return true
}

// dataOver returns the data of a ConfigMap after a write: a merge patch of the data before, or else the whole
// object.
func (e auditEvent) dataOver(stood map[string]string) map[string]string {
	var asked struct {
		Data map[string]*string `json:"data"`
	}

	if json.Unmarshal(e.RequestObject, &asked) != nil {
		return stood
	}

	now := map[string]string{}
	if e.Verb == "patch" {
		maps.Copy(now, stood)
	}

	for key, value := range asked.Data {
		if value == nil {
			delete(now, key)
		} else {
			now[key] = *value
		}
	}

	return now
}

// object returns the part of the resulting object that the history uses.
func (e auditEvent) object() resultObject {
	var object resultObject

	// A response that is not an object of the kind has none of the fields.
	if json.Unmarshal(e.ResponseObject, &object) != nil {
		return resultObject{}
	}

	return object
}

// version orders the writes of an object; 0 if the answer was not an object.
func (o resultObject) version() uint64 {
	version, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}

	return version
}

// resultObject is what a Node, Lease, ConfigMap or custom resource has.
type resultObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable  bool   `json:"unschedulable"`
		HolderIdentity string `json:"holderIdentity"`
		RenewTime      string `json:"renewTime"`
		NodeName       string `json:"nodeName"`
	} `json:"spec"`
	Data   map[string]string `json:"data"`
	Status resultStatus      `json:"status"`
}

// syncTimeout bounds each call of Sync.
const syncTimeout = 10 * time.Second

// applyTimeout bounds how long etcd may still apply a write after the API server has given it up; applyPoll is how
// often that is checked.
const applyTimeout, applyPoll = 250 * time.Millisecond, 5 * time.Millisecond

// markPath is the path that Sync requests, markQuery the parameter with its number.
const markPath, markQuery = "/version", "mark"

// auditor reads the audit log of the API server as it is written, keeps a copy in a file, and turns it into
// history.
type auditor struct {
	// pipe is what the API server's standard output is copied to.
	pipe    *io.PipeWriter
	file    *os.File
	ledger  *ledger
	budgets *budgets
	reading sync.WaitGroup

	mutex sync.Mutex
	// client reads what a failed request has changed; nil until the API server serves.
	client *client
	marks  int64
	// open are the requests that arrived and are not answered yet.
	open map[string]bool
	// waiting are calls of Sync whose mark has not been read yet, settling those that wait for requests that were
	// open at their mark.
	waiting  map[int64]chan struct{}
	settling []*settling
}

// settling has a channel that is closed once the last of its requests is done.
type settling struct {
	open map[string]bool
	done chan struct{}
}

// newAuditor returns an auditor that writes the copy to the path.
func newAuditor(path string, ledger *ledger) (*auditor, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}

	reader, writer := io.Pipe()
	a := &auditor{
		pipe: writer, file: file, budgets: ledger.budgets, ledger: ledger,
		open:    map[string]bool{},
		waiting: map[int64]chan struct{}{},
	}

	ledger.became = a.became
	a.reading.Go(func() { a.read(reader) })

	return a, nil
}

// Write takes what the API server prints.
func (a *auditor) Write(text []byte) (int, error) { return a.pipe.Write(text) }

// close ends the reader; the API server must have ended before.
func (a *auditor) close() error {
	// Closing a pipe's writer does not fail.
	_ = a.pipe.Close()

	a.reading.Wait()

	if err := a.file.Close(); err != nil {
		return fmt.Errorf("closing the audit log: %w", err)
	}

	return nil
}

// read must never wait for a request that the API server logs, because that waits for read.
func (a *auditor) read(pipe io.Reader) {
	lines := bufio.NewReaderSize(pipe, 64<<10)

	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			a.line(line)
		}

		if err != nil {
			return
		}
	}
}

func (a *auditor) line(line []byte) {
	var event auditEvent

	// The API server's own messages go to the standard error. Any other line that is not an event is ignored.
	if json.Unmarshal(line, &event) != nil || event.AuditID == "" {
		return
	}

	if mark, ok := event.mark(); ok {
		a.marked(mark)

		return
	}

	// The copy is for people; the history is what counts.
	_, _ = a.file.Write(line)

	if event.Stage == stageReceived {
		a.received(event.AuditID)

		return
	}

	a.ledger.take(event)
	a.completed(event.AuditID)
}

// asks sets the client that reads what failed requests have changed.
func (a *auditor) asks(client *client) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	a.client = client
}

// became returns a failed request as it would be logged if its client had waited for the answer; ok is false if it
// did not take effect. The API server logs a write whose client went away meanwhile as failed (504) even if it took
// effect, and only the object shows that, before its next change.
func (a *auditor) became(event auditEvent) (settled auditEvent, ok bool) {
	a.mutex.Lock()
	client := a.client
	a.mutex.Unlock()

	path := event.objectPath()
	if client == nil || path == "" || event.ResponseStatus.Code < http.StatusInternalServerError {
		return event, false
	}

	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()

	ticker := time.NewTicker(applyPoll)
	defer ticker.Stop()

	for {
		object, found, err := client.raw(ctx, path)
		if err == nil && event.shownBy(object, found) {
			event.ResponseObject, event.ResponseStatus.Code = object, http.StatusOK

			return event, true
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return event, false
		}
	}
}

func (a *auditor) received(id string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	a.open[id] = true
}

func (a *auditor) completed(id string) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	delete(a.open, id)

	kept := a.settling[:0]

	for _, waiter := range a.settling {
		delete(waiter.open, id)

		if len(waiter.open) == 0 {
			close(waiter.done)
		} else {
			kept = append(kept, waiter)
		}
	}

	a.settling = kept
}

// marked ends a call of Sync once everything that was open before its mark is done.
func (a *auditor) marked(mark int64) {
	a.mutex.Lock()
	defer a.mutex.Unlock()

	done, ok := a.waiting[mark]
	if !ok {
		return
	}

	delete(a.waiting, mark)

	if len(a.open) == 0 {
		close(done)

		return
	}

	a.settling = append(a.settling, &settling{open: maps.Clone(a.open), done: done})
}

// sync returns once every request that was answered before the call is in the history.
func (a *auditor) sync(ctx context.Context, client *client) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()

	done := make(chan struct{})

	a.mutex.Lock()
	a.marks++
	mark := a.marks
	a.waiting[mark] = done
	a.mutex.Unlock()

	if err := leaveMark(ctx, client, mark); err != nil {
		a.mutex.Lock()
		delete(a.waiting, mark)
		a.mutex.Unlock()

		return fmt.Errorf("marking the audit log: %w", err)
	}

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the audit log: %w", ctx.Err())
	}
}

// leaveMark makes a request that only the audit log shows.
func leaveMark(ctx context.Context, client *client, mark int64) error {
	query := url.Values{markQuery: {strconv.FormatInt(mark, 10)}}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.host+markPath+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}

	response, err := client.http.Do(request)
	if err != nil {
		return err
	}

	_, err = io.Copy(io.Discard, response.Body)

	return errors.Join(err, response.Body.Close())
}

// Follow makes the history wait for what was answered on another cluster before it records that the lease was
// acquired or released here; sync waits for that.
func (s *Server) Follow(sync func(context.Context) error) {
	ledger := s.auditor.ledger

	ledger.mutex.Lock()
	defer ledger.mutex.Unlock()

	ledger.elsewhere = func() {
		// If the other cluster has ended, it has nothing more to record.
		_ = sync(context.Background())
	}
}

// Sync returns once every Kubernetes request that was answered before the call is in the history, so that what the
// caller records next comes after it.
func (s *Server) Sync(ctx context.Context) error {
	return s.auditor.sync(ctx, s.simulator)
}

// auditPolicy keeps what clients wrote, with the resulting object if the history needs it. A request is also logged
// when it arrives, so that Sync can wait for one whose answer is sent but whose line is not written.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
omitManagedFields: true
rules:
# The marks by which the reader knows how far it has read.
- level: Metadata
  users: ["talossim"]
  nonResourceURLs: ["/version"]
# What the simulator and Kubernetes itself do.
- level: None
  users: ["talossim", "system:apiserver", "system:kube-controller-manager", "system:anonymous"]
- level: None
  verbs: ["get", "list", "watch"]
# Questions that are asked with a POST, and what does not end by itself.
- level: None
  resources:
  - group: authorization.k8s.io
  - group: authentication.k8s.io
  - group: ""
    resources: ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy", "nodes/proxy"]
- level: None
  nonResourceURLs: ["*"]
- level: RequestResponse
  resources:
  - group: ""
    resources: ["nodes", "nodes/status", "pods", "pods/status", "pods/eviction", "configmaps"]
  - group: coordination.k8s.io
    resources: ["leases"]
  - group: vitistack.io
  - group: talos.alperen.cloud
# Secrets among them: what is in them is nowhere in the log.
- level: Metadata
`
