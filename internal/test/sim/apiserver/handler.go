// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
