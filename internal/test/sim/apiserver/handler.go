// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// mostOfBody is how large a request may be, in bytes.
const mostOfBody = 3 << 20

// call is a request that is being handled.
type call struct {
	Request
	target target
	header http.Header
	query  url.Values
	body   []byte
	// dry tells that nothing may be changed.
	dry bool
	// told tells that the history shows what the request did.
	told bool
}

// answer is what a client gets.
type answer struct {
	code    int
	version schema.GroupVersion
	object  runtime.Object
}

// serve is the handler of all requests. It ends by breaking the connection where
// an API server that stops would, or the options say so.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	asked := s.read(r)

	if !s.begin(&asked.Request, mutates(asked.Verb) && !asked.dry) {
		panic(http.ErrAbortHandler)
	}
	defer s.work.Done()

	var strike Strike
	if s.options.Intercept != nil {
		strike = s.options.Intercept(r.Context(), asked.Request)
	}

	if strike.Cut == CutBefore || !s.up(r.Context()) {
		breakOff(r.Context())
	}

	if strike.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(strike.RetryAfter.Seconds())))
		s.reply(w, r, refusal(apierrors.NewTooManyRequests("too many requests, please try again later", int(strike.RetryAfter.Seconds()))))

		return
	}

	if asked.Verb == verbWatch {
		s.watch(w, r, asked)

		return
	}

	given := s.handle(r.Context(), asked)

	lost := asked.Mutation > 0 && given.code < http.StatusBadRequest && s.cluster.LoseReply(asked.Node)
	if strike.Cut == CutAfter || lost {
		breakOff(r.Context())
	}

	s.reply(w, r, given)

	if strike.Replied != nil {
		context.AfterFunc(r.Context(), strike.Replied)
	}
}

// read finds out what a request is about. What cannot be read of it is seen
// when it is handled.
func (s *Server) read(r *http.Request) *call {
	asked := &call{header: r.Header, query: r.URL.Query()}

	asked.target, _ = targetOf(r.URL.Path)
	asked.Verb = asked.target.verb(r.Method)
	asked.Resource, asked.Namespace, asked.Name = asked.target.resource, asked.target.namespace, asked.target.name

	// Who wants to be told of changes asks for a list, as far as the path goes.
	if watch := asked.query.Get("watch"); asked.Verb == verbList && watch != "" && watch != "0" && watch != "false" {
		asked.Verb = verbWatch
	}

	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		asked.Client = r.TLS.PeerCertificates[0].Subject.CommonName
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
		asked.Node = s.nodeOfPod(asked.Namespace, asked.Name)
	}

	return asked
}

// deletesDry tells whether the options in the body of a deletion, or of an
// eviction, want a dry run.
func (s *Server) deletesDry(asked *call) bool {
	options, err := s.deleteOptions(asked)

	return err == nil && slices.Contains(options.DryRun, metav1.DryRunAll)
}

// up tells whether the API server at the other end of the connection runs.
func (s *Server) up(ctx context.Context) bool {
	connection := linkOf(ctx)

	return ctx.Err() == nil && connection != nil && s.cluster.World().APIServerUp(connection.machine)
}

// breakOff ends the connection of a request, and with it the handler.
func breakOff(ctx context.Context) {
	if connection := linkOf(ctx); connection != nil {
		_ = connection.Close()
	}

	panic(http.ErrAbortHandler)
}

// handle carries out a request, one at a time.
func (s *Server) handle(ctx context.Context, asked *call) answer {
	s.turn.Lock()
	defer s.turn.Unlock()

	// A client that has given up while it waited wants nothing any more.
	if ctx.Err() != nil || !s.up(ctx) {
		breakOff(ctx)
	}

	given, err := s.carryOut(asked)
	if err != nil {
		given = refusal(err)
	}

	if asked.Mutation > 0 && asked.Verb != verbEvict && (err != nil || !asked.told) {
		detail := map[string]string{
			"verb": asked.Verb, "resource": asked.Resource, "namespace": asked.Namespace, "name": asked.Name,
			"by": "client", "client": asked.Client, "code": strconv.Itoa(given.code),
		}
		if node, ok := given.object.(*corev1.Node); ok {
			detail["version"] = node.ResourceVersion
		}

		s.cluster.World().Record(asked.Node, history.KindWrite, detail)
	}

	return given
}

func (s *Server) carryOut(asked *call) (answer, error) {
	if part := asked.target.subresource; part != "" && (part != "eviction" || asked.Resource != resourcePods) {
		return answer{}, notServed()
	}

	if asked.Verb == "" {
		return answer{}, apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, "", asked.group(), asked.Name,
			"the server does not allow this method on the requested resource", 0, true)
	}

	if asked.target.version.Version == "" {
		return answer{}, notServed()
	}

	if asked.Verb == verbDiscover {
		return s.discovered(asked.target.version)
	}

	of := s.find(asked.target)
	if of == nil {
		return answer{}, notServed()
	}

	switch asked.Verb {
	case verbList:
		list, err := s.listed(of, asked.Namespace, asked.query)

		return answer{http.StatusOK, of.version, list}, s.sawNodes(asked, list, err)
	case verbGet:
		found, err := s.one(of, asked.Namespace, asked.Name)

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

// sawNodes tells the history that a client has looked at the nodes. Those who ask
// for pages of them look for room for pods, and not how the nodes are.
func (s *Server) sawNodes(asked *call, list runtime.Object, err error) error {
	if err != nil || asked.Resource != resourceNodes || asked.query.Get("limit") != "" {
		return err
	}

	detail := map[string]string{"what": "nodes", "client": asked.Client}

	// Who is content with any state, or one that is not older than another, may get one
	// out of a cache.
	if nodes, ok := list.(*corev1.NodeList); ok && asked.query.Get("resourceVersion") != "" {
		detail["via"], detail["version"] = "cache", nodes.ResourceVersion
	}

	s.cluster.World().Record("", history.KindRead, detail)

	return nil
}

func (c *call) group() schema.GroupResource {
	return schema.GroupResource{Group: c.target.version.Group, Resource: c.Resource}
}

// notServed is the answer where nothing is; the real one is a text as well.
func notServed() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", schema.GroupResource{}, "", "404 page not found", 0, true)
}

// refusal is an error as an answer.
func refusal(err error) answer {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}

	told := status.Status()
	told.Status = metav1.StatusFailure

	return answer{int(told.Code), corev1.SchemeGroupVersion, &told}
}

func (s *Server) reply(w http.ResponseWriter, r *http.Request, given answer) {
	media := accepted(r.Header)
	if media == "" {
		media = runtime.ContentTypeJSON
		given = refusal(apierrors.NewGenericServerResponse(http.StatusNotAcceptable, "", schema.GroupResource{}, "",
			"only the media types JSON and protobuf are served", 0, true))
	}

	if table, wanted := tableOf(r, given.object); wanted {
		given.object = table
	}

	body, media, err := s.codec.encode(media, given.version, given.object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)

		return
	}

	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(given.code)

	// A client that has gone does not read it.
	_, _ = w.Write(body)
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

// target is what the path of a request leads to.
type target struct {
	version                   schema.GroupVersion
	resource, namespace, name string
	subresource               string
}

// targetOf takes a path apart; false where it leads nowhere.
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

	// A namespace itself is an object without one.
	if len(parts) > 2 && parts[0] == "namespaces" {
		found.namespace, parts = parts[1], parts[2:]
	}

	for i, into := range []*string{&found.resource, &found.name, &found.subresource} {
		if i < len(parts) {
			*into = parts[i]
		}
	}

	return found, len(parts) <= 3
}

// verb is what a request wants with its target; empty where there is no such
// thing.
func (t target) verb(method string) string {
	switch {
	case t.resource == "" && method == http.MethodGet:
		return verbDiscover
	case t.resource == "":
		return ""
	case t.subresource != "":
		if method == http.MethodPost && t.resource == resourcePods && t.subresource == "eviction" {
			return verbEvict
		}

		return ""
	case t.name == "":
		return map[string]string{http.MethodGet: verbList, http.MethodPost: verbCreate}[method]
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

// loose are the resources, in a group and version, of the objects that tests put
// into the cluster. They can be read in JSON.
func (s *Server) loose(version schema.GroupVersion) []*resource {
	var found []*resource

	for _, key := range s.cluster.KindsServed() {
		cut := strings.LastIndexByte(key, '/')
		apiVersion, kind := key[:cut], key[cut+1:]

		if apiVersion != version.String() || slices.ContainsFunc(s.resources, func(r *resource) bool {
			return r.version == version && r.kind == kind
		}) {
			continue
		}

		objects := func() ([]object, error) { return s.looseObjects(apiVersion, kind) }

		found = append(found, &resource{
			version: version, name: plural(kind), kind: kind, namespaced: s.namespaced(apiVersion, kind), objects: objects,
			list: func() runtime.Object {
				list := &unstructured.UnstructuredList{}
				list.SetAPIVersion(apiVersion)
				list.SetKind(kind + "List")

				return list
			},
		})
	}

	return found
}

func (s *Server) looseObjects(apiVersion, kind string) ([]object, error) {
	contents, err := s.cluster.ObjectsOf(apiVersion, kind)
	if err != nil {
		return nil, err
	}

	objects := make([]object, 0, len(contents))
	for _, content := range contents {
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}

	return objects, nil
}

// namespaced tells whether objects of a kind are in namespaces; where there are
// none, they would be.
func (s *Server) namespaced(apiVersion, kind string) bool {
	objects, err := s.looseObjects(apiVersion, kind)

	return err == nil && !slices.ContainsFunc(objects, func(one object) bool { return one.GetNamespace() == "" })
}

// plural is the name of the resource of a kind.
func plural(kind string) string {
	name := strings.ToLower(kind)

	switch {
	case strings.HasSuffix(name, "s"):
		return name + "es"
	case strings.HasSuffix(name, "y"):
		return strings.TrimSuffix(name, "y") + "ies"
	default:
		return name + "s"
	}
}

// discovered lists the resources of a group and version.
func (s *Server) discovered(version schema.GroupVersion) (answer, error) {
	list := &metav1.APIResourceList{GroupVersion: version.String()}

	for _, one := range slices.Concat(s.loose(version), s.resources) {
		if one.version == version {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: one.name, SingularName: strings.ToLower(one.kind), Kind: one.kind, Namespaced: one.namespaced, Verbs: one.verbs(),
			})
		}
	}

	if len(list.APIResources) == 0 {
		return answer{}, notServed()
	}

	return answer{http.StatusOK, corev1.SchemeGroupVersion, list}, nil
}

func (r *resource) verbs() []string {
	verbs := []string{verbGet, verbList}
	if r.name == resourceNodes {
		verbs = append(verbs, verbWatch)
	}

	for verb, allowed := range map[string]bool{
		verbCreate: r.create != nil, verbUpdate: r.update != nil, verbPatch: r.update != nil, verbDelete: r.remove != nil,
	} {
		if allowed {
			verbs = append(verbs, verb)
		}
	}

	slices.Sort(verbs)

	return verbs
}

// table lists what is served.
func (s *Server) table() []*resource {
	core, apps, batch := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion

	return []*resource{
		{
			version: core, name: "namespaces", kind: "Namespace", objects: s.namespaces,
			list: func() runtime.Object { return &corev1.NamespaceList{} },
		},
		{
			version: core, name: resourceNodes, kind: "Node", objects: s.nodes, update: s.updateNode,
			list: func() runtime.Object { return &corev1.NodeList{} }, empty: func() object { return &corev1.Node{} },
		},
		{
			version: core, name: resourcePods, kind: "Pod", namespaced: true, objects: s.pods, remove: s.removePod,
			list: func() runtime.Object { return &corev1.PodList{} },
		},
		{
			version: core, name: resourceConfigMaps, kind: "ConfigMap", namespaced: true, objects: s.configMaps,
			create: s.createConfigMap, update: s.updateConfigMap, remove: s.removeConfigMap,
			list: func() runtime.Object { return &corev1.ConfigMapList{} }, empty: func() object { return &corev1.ConfigMap{} },
		},
		{
			version: coordinationv1.SchemeGroupVersion, name: resourceLeases, kind: "Lease", namespaced: true, objects: s.leases,
			create: s.createLease, update: s.updateLease, remove: s.removeLease,
			list: func() runtime.Object { return &coordinationv1.LeaseList{} }, empty: func() object { return &coordinationv1.Lease{} },
		},
		{
			version: policyv1.SchemeGroupVersion, name: "poddisruptionbudgets", kind: "PodDisruptionBudget", namespaced: true, objects: s.budgets,
			list: func() runtime.Object { return &policyv1.PodDisruptionBudgetList{} },
		},
		{
			version: apps, name: "replicasets", kind: "ReplicaSet", namespaced: true, objects: s.replicaSets,
			list: func() runtime.Object { return &appsv1.ReplicaSetList{} },
		},
		{
			version: apps, name: "daemonsets", kind: "DaemonSet", namespaced: true, objects: s.daemonSets,
			list: func() runtime.Object { return &appsv1.DaemonSetList{} },
		},
		{
			version: apps, name: "statefulsets", kind: "StatefulSet", namespaced: true, objects: none,
			list: func() runtime.Object { return &appsv1.StatefulSetList{} },
		},
		{
			version: batch, name: "jobs", kind: "Job", namespaced: true, objects: none,
			list: func() runtime.Object { return &batchv1.JobList{} },
		},
		{
			version: core, name: "replicationcontrollers", kind: "ReplicationController", namespaced: true, objects: none,
			list: func() runtime.Object { return &corev1.ReplicationControllerList{} },
		},
		{
			version: core, name: "persistentvolumeclaims", kind: "PersistentVolumeClaim", namespaced: true, objects: none,
			list: func() runtime.Object { return &corev1.PersistentVolumeClaimList{} },
		},
		{
			version: core, name: "persistentvolumes", kind: "PersistentVolume", objects: none,
			list: func() runtime.Object { return &corev1.PersistentVolumeList{} },
		},
	}
}

func none() ([]object, error) { return nil, nil }

// codec speaks JSON and protobuf.
type codec struct {
	codecs serializer.CodecFactory
}

func newCodec() (*codec, error) {
	scheme := runtime.NewScheme()

	err := errors.Join(
		corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), policyv1.AddToScheme(scheme),
		appsv1.AddToScheme(scheme), batchv1.AddToScheme(scheme),
	)

	return &codec{codecs: serializer.NewCodecFactory(scheme)}, err
}

// accepted is the first media type, of those that a client accepts, that there
// is; empty where there is none. Views of objects are none, but for [tableOf].
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

// tableOf is the view of one object that a client prefers which wants nothing of it but
// its version, a table without rows of objects; false where it wants something else.
func tableOf(asked *http.Request, of runtime.Object) (*metav1.Table, bool) {
	wanted, _, _ := strings.Cut(asked.Header.Get("Accept"), ",")
	media, params, err := mime.ParseMediaType(wanted)
	one, isObject := of.(object)

	if err != nil || media != runtime.ContentTypeJSON || params["as"] != "Table" || !isObject ||
		asked.URL.Query().Get("includeObject") != string(metav1.IncludeNone) {
		return nil, false
	}

	return &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: metav1.SchemeGroupVersion.String()},
		ListMeta: metav1.ListMeta{ResourceVersion: one.GetResourceVersion()},
	}, true
}

// encode is an object in a media type; JSON for an object of no known kind.
func (c *codec) encode(media string, version schema.GroupVersion, object runtime.Object) (body []byte, written string, err error) {
	switch object.(type) {
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

// stream writes the events of a watch to a client, in a media type.
func (c *codec) stream(
	media string, version schema.GroupVersion, w http.ResponseWriter,
) (write func(watch.EventType, runtime.Object) error, err error) {
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
		embedded, _, err := c.encode(media, version, object.DeepCopyObject())
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

// decode reads what a client sent. Its errors are answers.
func (c *codec) decode(header http.Header, body []byte, into runtime.Object) error {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != runtime.ContentTypeJSON && media != runtime.ContentTypeProtobuf {
		return unsupportedMedia(header.Get("Content-Type"))
	}

	if _, _, err := c.codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}

	return nil
}

func unsupportedMedia(given string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
		fmt.Sprintf("the body of the request was in an unknown format %q", given), 0, true)
}

// patched is a copy of an object with a JSON merge patch applied. Its errors are
// answers.
func patched(header http.Header, current object, patch []byte) (object, error) {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || types.PatchType(media) != types.MergePatchType {
		return nil, unsupportedMedia(header.Get("Content-Type"))
	}

	text, err := json.Marshal(current)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	var before, change any

	if err := errors.Join(decodeNumbers(text, &before), decodeNumbers(patch, &change)); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	text, err = json.Marshal(merged(before, change))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}

	after := emptyLike(current)

	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()

	if err := decoder.Decode(after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}

	return after, nil
}

func decodeNumbers(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()

	return decoder.Decode(into)
}

// merged applies a JSON merge patch (RFC 7386).
func merged(current, patch any) any {
	changes, isMap := patch.(map[string]any)
	if !isMap {
		return patch
	}

	result := map[string]any{}

	if standing, isMap := current.(map[string]any); isMap {
		for key, value := range standing {
			result[key] = value
		}
	}

	for key, change := range changes {
		if change == nil {
			delete(result, key)
		} else {
			result[key] = merged(result[key], change)
		}
	}

	return result
}

// emptyLike is a new object of the same type.
func emptyLike(of object) object {
	switch of.(type) {
	case *corev1.Node:
		return &corev1.Node{}
	case *corev1.ConfigMap:
		return &corev1.ConfigMap{}
	case *coordinationv1.Lease:
		return &coordinationv1.Lease{}
	default:
		return &unstructured.Unstructured{}
	}
}
