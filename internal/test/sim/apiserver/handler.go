// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Options say what happens to the requests of one way in.
type Options struct {
	// Intercept, if not nil, decides about each request before it is handled, including those that will be refused.
	// It is called from several goroutines, and may block until the context ends: when the client gives up or the
	// connection breaks.
	Intercept func(ctx context.Context, request Request) Strike
	// Older refuses a watch that is to begin with the existing objects, like API servers that do not support that.
	Older bool
}

// Request is a request that arrived.
type Request struct {
	// Client is the name of the caller in the history.
	Client string
	// Verb is get, list, watch, create, update, patch, delete or evict.
	Verb string
	// Resource is the plural of the kind, in lower case.
	Resource string
	// Namespace and Name are those of the object. They are empty in a list; in a create, Name is empty as well,
	// because only the body has it.
	Namespace, Name string
	// Node is the name of the node concerned: that of a Node object, or of the node where the pod runs; empty
	// otherwise.
	Node string
	// Number counts the requests of a way in from 1.
	Number int
	// Mutation counts the requests that may change something from 1; 0 for the others, including dry runs.
	Mutation int
}

// String returns a name by which a person can find the request.
func (r Request) String() string {
	name := r.Resource
	if r.Name != "" {
		name += " " + r.Name
	}

	return fmt.Sprintf("%s %s (request %d, mutation %d)", r.Verb, name, r.Number, r.Mutation)
}

// Strike is what happens to a request. The zero value lets it pass.
type Strike struct {
	Cut Cut
	// RetryAfter, if not zero, refuses the request with 429 and these seconds.
	RetryAfter time.Duration
	// Replied, if not nil, is called after the reply to a request that was not cut was sent; the client may not
	// have read it yet.
	Replied func()
}

// Cut is when the connection of a request breaks. All other requests over it
// break with it.
type Cut int

const (
	// CutNot leaves the connection alone.
	CutNot Cut = iota
	// CutBefore breaks it before the request is handled.
	CutBefore
	// CutAfter breaks it after the request has been handled, without a reply.
	CutAfter
)

// way is one way into the API.
type way struct {
	server  *Server
	options Options

	mu            sync.Mutex
	all, mutating int
	kinds         map[string]int
	stopped       bool
	work          sync.WaitGroup
}

// Requests returns the number of requests so far, and of those that may have changed something.
func (w *way) Requests() (all, mutating int) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.all, w.mutating
}

// Kinds returns the number of requests so far by verb and resource, such as "patch nodes".
func (w *way) Kinds() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()

	return maps.Clone(w.kinds)
}

// begin numbers a request; false if the way has been closed.
func (w *way) begin(request *Request, mutates bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.stopped {
		return false
	}

	w.work.Add(1)
	w.all++
	request.Number = w.all

	if w.kinds == nil {
		w.kinds = map[string]int{}
	}

	w.kinds[request.Verb+" "+request.Resource]++

	if mutates {
		w.mutating++
		request.Mutation = w.mutating
	}

	return true
}

// caller is who makes a request, and over which connection.
type caller struct {
	who actor
	// machine is the control plane whose API server answers; empty for that of another cluster.
	machine string
	// direct is true if no API server is between the caller and what is stored.
	direct bool
	// cut breaks the connection.
	cut func()
}

// breakOff ends the connection of a request, and with it the handler.
func (c *caller) breakOff() {
	c.cut()

	panic(http.ErrAbortHandler)
}

// up reports whether the API server that answers a caller runs.
func (s *Server) up(by *caller) bool {
	return s.beside || by.direct || s.world.APIServerUp(by.machine)
}

// answering returns a control plane whose API server runs, of those with the address; of all if it is empty.
func (s *Server) answering(host string) (machine string, up bool) {
	if s.beside {
		return "", true
	}

	return s.world.Answering(host)
}

// call is a request that is being handled.
type call struct {
	Request
	who    actor
	path   string
	target target
	header http.Header
	query  url.Values
	body   []byte
	// dry is true if nothing may be changed.
	dry bool
	// told is true if the history shows what the request did.
	told bool
}

func (c *call) group() schema.GroupResource {
	return schema.GroupResource{Group: c.target.version.Group, Resource: c.Resource}
}

// manager returns the name under which an object remembers who wrote it.
func (c *call) manager() string {
	if given := c.query.Get("fieldManager"); given != "" {
		return given
	}

	name, _, _ := strings.Cut(c.header.Get("User-Agent"), "/")

	return name
}

// leaveGivenUp ends the handler of a request whose client has given up. The connection stays, because it carries
// other requests.
func leaveGivenUp(r *http.Request) {
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

// answer is what a client gets.
type answer struct {
	code    int
	version schema.GroupVersion
	object  runtime.Object
}

// serve handles a request. It breaks the connection if an API server that stops would, or if the options say so.
func (w *way) serve(out http.ResponseWriter, r *http.Request, by *caller) {
	s := w.server
	asked := s.read(r, by)

	if !w.begin(&asked.Request, mutates(asked.Verb) && !asked.dry) {
		panic(http.ErrAbortHandler)
	}
	defer w.work.Done()

	var strike Strike
	if w.options.Intercept != nil {
		strike = w.options.Intercept(r.Context(), asked.Request)
	}

	leaveGivenUp(r)

	if strike.Cut == CutBefore || !s.up(by) {
		by.breakOff()
	}

	if strike.RetryAfter > 0 {
		seconds := int(strike.RetryAfter.Seconds())
		out.Header().Set("Retry-After", strconv.Itoa(seconds))
		s.encode(r, nil, refusal(apierrors.NewTooManyRequests("too many requests, please try again later", seconds))).send(out)

		return
	}

	if asked.Verb == verbWatch {
		w.watch(out, r, asked, by)

		return
	}

	given := s.handle(r, asked, by)

	lost := asked.Mutation > 0 && given.code < http.StatusBadRequest && s.losesReply(asked)
	if strike.Cut == CutAfter || lost {
		by.breakOff()
	}

	given.send(out)

	if strike.Replied != nil {
		context.AfterFunc(r.Context(), strike.Replied)
	}
}

// claims is the manager of the writes that prove that a watch is up to date: nothing depends on their replies.
const claims = "talosupgrade-claim"

// losesReply reports whether the script wants the reply lost to a client's request that has changed something.
func (s *Server) losesReply(asked *call) bool {
	if s.beside || asked.who.by != byClient || asked.manager() == claims {
		return false
	}

	_, struck := s.world.TakeFault(asked.Node, model.StepPatch, model.EffectConnectionLost)

	return struck
}

// mostOfBody is how large a request may be, in bytes.
const mostOfBody = 3 << 20

// read parses a request. What is wrong with it is found when it is handled.
func (s *Server) read(r *http.Request, by *caller) *call {
	asked := &call{header: r.Header, path: r.URL.Path, query: r.URL.Query(), who: by.who}

	asked.Client = by.who.client
	asked.target, _ = targetOf(r.URL.Path)
	asked.Verb = asked.target.verb(r.Method)
	asked.Resource, asked.Namespace, asked.Name = asked.target.resource, asked.target.namespace, asked.target.name

	// By its path, a watch is a list.
	if watch := asked.query.Get("watch"); asked.Verb == verbList && watch != "" && watch != "0" && watch != "false" {
		asked.Verb = verbWatch
	}

	body, err := io.ReadAll(io.LimitReader(r.Body, mostOfBody+1))
	if err != nil || len(body) > mostOfBody {
		asked.Verb = ""
	}

	asked.body = body
	asked.dry = slices.Contains(asked.query["dryRun"], metav1.DryRunAll) || s.deletesDry(asked)

	switch asked.Resource {
	case resourceNodes:
		asked.Node = asked.Name
	case resourcePods:
		asked.Node = s.nodeOfPod(key{asked.Namespace, asked.Name})
	}

	return asked
}

// deletesDry reports whether the options in the body of a deletion or an eviction ask for a dry run.
func (s *Server) deletesDry(asked *call) bool {
	options, err := s.deleteOptions(asked)

	return err == nil && slices.Contains(options.DryRun, metav1.DryRunAll)
}

// handle handles a request. Only one is handled at a time.
func (s *Server) handle(r *http.Request, asked *call, by *caller) reply {
	s.lock()
	defer s.mu.Unlock()

	leaveGivenUp(r)

	if !s.up(by) {
		by.breakOff()
	}

	given, err := s.carryOut(asked)
	if err != nil {
		given = refusal(err)
	}

	if asked.Mutation > 0 && asked.Verb != verbEvict && (err != nil || !asked.told) {
		resource := asked.Resource
		if part := asked.target.subresource; part != "" {
			resource += "/" + part
		}

		detail := asked.who.detail("verb", asked.Verb, "resource", resource,
			"namespace", asked.Namespace, "name", asked.Name, "code", strconv.Itoa(given.code))
		if node, ok := given.object.(*corev1.Node); ok {
			detail["version"] = node.ResourceVersion
		}

		if s.beside {
			detail["cluster"] = "management"
		}

		s.record(asked.Node, history.KindWrite, detail)
	}

	return s.encode(r, s.table(asked.target.version, asked.Resource), given)
}

func (s *Server) carryOut(asked *call) (answer, error) {
	if asked.Verb == verbDiscover {
		return s.about(asked)
	}

	of, err := s.served(asked)
	if err != nil {
		return answer{}, err
	}

	switch asked.Verb {
	case verbList:
		list, err := s.listed(of, asked.Namespace, asked.query)

		return answer{http.StatusOK, of.version, list}, s.sawNodes(asked, list, err)
	case verbGet:
		found, err := s.one(of, key{asked.Namespace, asked.Name})

		return answer{http.StatusOK, of.version, found}, err
	case verbCreate:
		return s.create(of, asked)
	case verbDelete:
		return s.remove(of, asked)
	case verbEvict:
		return s.evict(of, asked)
	default:
		return s.update(of, asked)
	}
}

// served returns the table of a request. Its errors are answers.
func (s *Server) served(asked *call) (*table, error) {
	of := s.table(asked.target.version, asked.Resource)

	if !of.has(asked.target.subresource) || asked.target.version.Version == "" {
		return nil, notServed()
	}

	if asked.Verb == "" {
		return nil, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", asked.group(), asked.Name,
			"the server does not allow this method on the requested resource", 0, true)
	}

	// A path with a namespace is only served for kinds in namespaces, and a path with a name but without a
	// namespace only for the others.
	if scoped := asked.Namespace != ""; of == nil || of.namespaced && !scoped && asked.Name != "" || !of.namespaced && scoped {
		return nil, notServed()
	}

	return of, nil
}

// sawNodes records that a client has read the nodes. Requests for pages of them look for room for pods, and not for
// the state of the nodes.
func (s *Server) sawNodes(asked *call, list runtime.Object, err error) error {
	if err != nil || s.beside || asked.who.by != byClient || asked.Resource != resourceNodes || asked.query.Get("limit") != "" {
		return err
	}

	detail := map[string]string{"what": "nodes", "client": asked.Client}

	// A request that accepts any state, or any that is not older than a version, may be answered from a cache.
	if nodes, ok := list.(*corev1.NodeList); ok && asked.query.Get("resourceVersion") != "" {
		detail["via"], detail["version"] = "cache", nodes.ResourceVersion
	}

	s.record("", history.KindRead, detail)

	return nil
}

// notServed returns the answer for a path that is not served; the real one is a text as well.
func notServed() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "404 page not found", 0, true)
}

// refusal returns an error as an answer.
func refusal(err error) answer {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}

	told := status.Status()
	told.Status = metav1.StatusFailure

	return answer{int(told.Code), corev1.SchemeGroupVersion, &told}
}

// reply is an answer in the media type that a client accepts.
type reply struct {
	code  int
	media string
	body  []byte
}

func (r reply) send(out http.ResponseWriter) {
	out.Header().Set("Content-Type", r.media)
	out.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	out.WriteHeader(r.code)

	// If the client has gone, it does not read the reply.
	_, _ = out.Write(r.body)
}

// encode makes a reply of an answer. The lock is held if that is a stored object.
func (s *Server) encode(r *http.Request, of *table, given answer) reply {
	media := accepted(r.Header)
	if media == "" {
		media = runtime.ContentTypeJSON
		given = refusal(apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "",
			"only the media types JSON and protobuf are served", 0, true))
	}

	given.object = s.viewed(r, of, given.object)

	body, media, err := s.codec.encode(media, given.version, given.object)
	if err != nil {
		return reply{http.StatusInternalServerError, "text/plain", []byte(err.Error())}
	}

	return reply{given.code, media, body}
}

// The verbs of requests.
const (
	verbGet      = "get"
	verbList     = "list"
	verbWatch    = "watch"
	verbCreate   = "create"
	verbUpdate   = "update"
	verbPatch    = "patch"
	verbDelete   = "delete"
	verbEvict    = "evict"
	verbDiscover = "discover"
)

// target is what the path of a request names.
type target struct {
	version                   schema.GroupVersion
	resource, namespace, name string
	subresource               string
}

// targetOf parses a path; false if it is not one of an API group.
func targetOf(path string) (target, bool) {
	var found target

	parts := strings.Split(strings.Trim(path, "/"), "/")

	switch {
	case len(parts) >= 2 && parts[0] == "api":
		found.version, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		found.version, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return target{}, false
	}

	if slices.Contains(parts, "") {
		return target{}, false
	}

	// A namespace itself is an object without a namespace.
	if len(parts) > 2 && parts[0] == resourceNamespaces {
		found.namespace, parts = parts[1], parts[2:]
	}

	for i, into := range []*string{&found.resource, &found.name, &found.subresource} {
		if i < len(parts) {
			*into = parts[i]
		}
	}

	return found, len(parts) <= 3
}

// verb returns the verb of a request for its target; empty if there is none.
func (t target) verb(method string) string {
	switch {
	case t.resource == "" && method == http.MethodGet:
		return verbDiscover
	case t.resource == "":
		return ""
	case t.subresource == "eviction":
		return map[string]string{http.MethodPost: verbEvict}[method]
	case t.name == "":
		return map[string]string{http.MethodGet: verbList, http.MethodPost: verbCreate}[method]
	case t.subresource != "":
		return map[string]string{http.MethodGet: verbGet, http.MethodPut: verbUpdate, http.MethodPatch: verbPatch}[method]
	default:
		return map[string]string{
			http.MethodGet: verbGet, http.MethodPut: verbUpdate, http.MethodPatch: verbPatch, http.MethodDelete: verbDelete,
		}[method]
	}
}

func mutates(verb string) bool {
	switch verb {
	case verbCreate, verbUpdate, verbPatch, verbDelete, verbEvict:
		return true
	default:
		return false
	}
}

// codec encodes and decodes JSON and protobuf.
type codec struct {
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	// strict detects unknown fields.
	strict serializer.CodecFactory
}

// newCodec returns the same codec for all, because it takes long to make.
var newCodec = sync.OnceValues(func() (*codec, error) {
	scheme := runtime.NewScheme()

	err := errors.Join(
		corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme), rbacv1.AddToScheme(scheme),
	)

	return &codec{
		scheme: scheme, codecs: serializer.NewCodecFactory(scheme), strict: serializer.NewCodecFactory(scheme, serializer.EnableStrict),
	}, err
})

// accepted returns the first media type that a client accepts and that is served; empty if there is none. Views of
// objects are not served, except those of [Server.viewed].
func accepted(header http.Header) string {
	wanted := header.Get("Accept")
	if wanted == "" {
		return runtime.ContentTypeJSON
	}

	for one := range strings.SplitSeq(wanted, ",") {
		media, params, err := mime.ParseMediaType(one)

		switch {
		case err != nil || params["as"] != "":
		case media == "*/*" || media == "application/*" || media == runtime.ContentTypeJSON:
			return runtime.ContentTypeJSON
		case media == runtime.ContentTypeProtobuf:
			return media
		}
	}

	return ""
}

// encode returns an object in a media type; in JSON if it has no known kind.
func (c *codec) encode(media string, version schema.GroupVersion, object runtime.Object) (body []byte, written string, err error) {
	switch given := object.(type) {
	case text:
		return []byte(given), "text/plain", nil
	case document:
		body, err = json.Marshal(given.content)

		return body, runtime.ContentTypeJSON, err
	case runtime.Unstructured, *metav1.Table:
		body, err = json.Marshal(object)

		return body, runtime.ContentTypeJSON, err
	}

	info, found := runtime.SerializerInfoForMediaType(c.codecs.SupportedMediaTypes(), media)
	if !found {
		return nil, "", fmt.Errorf("no serializer for %s", media)
	}

	body, err = runtime.Encode(c.codecs.WithoutConversion().EncoderForVersion(info.Serializer, version), object)

	return body, media, err
}

// stream returns a function that writes the events of a watch to a client. typed is true if the objects have a Go
// type.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, of *table, typed bool) (write func(watch.EventType, runtime.Object) error, err error) {
	c, media := s.codec, accepted(r.Header)

	// Objects without a Go type have no protobuf.
	if !typed && media != "" {
		media = runtime.ContentTypeJSON
	}

	info, found := runtime.SerializerInfoForMediaType(c.codecs.SupportedMediaTypes(), media)
	flusher, flushes := w.(http.Flusher)

	if !found || info.StreamSerializer == nil || !flushes {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "",
			"only the media types JSON and protobuf are served", 0, true)
	}

	w.Header().Set("Content-Type", media)

	if media == runtime.ContentTypeProtobuf {
		w.Header().Set("Content-Type", media+";stream=watch")
	}

	w.WriteHeader(http.StatusOK)
	flusher.Flush()

	frames := info.StreamSerializer.NewFrameWriter(w)

	return func(kind watch.EventType, object runtime.Object) error {
		embedded, _, err := c.encode(media, of.version, s.viewed(r, of, object))
		if err != nil {
			return err
		}

		event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: embedded}}
		if err := info.StreamSerializer.Encode(event, frames); err != nil {
			return err
		}

		flusher.Flush()

		return nil
	}, nil
}

// given decodes the object that a client sent, as strictly as the client asked. Its errors are answers.
func (s *Server) given(of *table, asked *call) (object, error) {
	wanted, codecs := of.empty(), s.codec.codecs
	if asked.query.Get("fieldValidation") == metav1.FieldValidationStrict {
		codecs = s.codec.strict
	}

	if err := decode(codecs, asked.header, asked.body, wanted); err != nil {
		return nil, err
	}

	if wanted.GetNamespace() == "" {
		wanted.SetNamespace(asked.Namespace)
	}

	return wanted, nil
}

// decode decodes what a client sent. Its errors are answers.
func (c *codec) decode(header http.Header, body []byte, into runtime.Object) error {
	return decode(c.codecs, header, body, into)
}

func decode(codecs serializer.CodecFactory, header http.Header, body []byte, into runtime.Object) error {
	media := mediaOf(header.Get("Content-Type"))
	if media != runtime.ContentTypeJSON && media != runtime.ContentTypeProtobuf {
		return unsupportedMedia(header.Get("Content-Type"))
	}

	if one, custom := into.(*unstructured.Unstructured); custom {
		if err := one.UnmarshalJSON(body); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}

		return nil
	}

	if _, _, err := codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}

	return nil
}

// mediaOf returns a media type without its parameters; empty for none.
func mediaOf(header string) string {
	media, _, err := mime.ParseMediaType(header)
	if err != nil {
		return ""
	}

	return media
}

func unsupportedMedia(given string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
		fmt.Sprintf("the body of the request was in an unknown format %q", given), 0, true)
}
