// SPDX-License-Identifier: MPL-2.0

package kubeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// portCalls returns all methods of the ports, reduced to their errors.
func portCalls(api cluster.Kubernetes) map[string]func(context.Context) error {
	pod := cluster.Pod{Namespace: "default", Name: "web", UID: "1"}

	calls := map[string]func(context.Context) error{
		"UID":           func(ctx context.Context) error { _, err := api.UID(ctx); return err },
		"Nodes":         func(ctx context.Context) error { _, err := api.Nodes(ctx); return err },
		"Node":          func(ctx context.Context) error { _, err := api.Node(ctx, "worker-0"); return err },
		"NodesNow":      func(ctx context.Context) error { _, err := api.NodesNow(ctx, "worker-0"); return err },
		"StaticPods":    func(ctx context.Context) error { _, err := api.StaticPods(ctx, ""); return err },
		"ComponentPods": func(ctx context.Context) error { _, err := api.ComponentPods(ctx); return err },
		"Cordon":        func(ctx context.Context) error { _, err := api.Cordon(ctx, "worker-0", "run"); return err },
		"Uncordon":      func(ctx context.Context) error { return api.Uncordon(ctx, "worker-0") },
		"PodsToEvict":   func(ctx context.Context) error { _, err := api.PodsToEvict(ctx, "worker-0"); return err },
		"Evict":         func(ctx context.Context) error { return api.Evict(ctx, pod) },
		"DeletePod":     func(ctx context.Context) error { return api.DeletePod(ctx, pod) },
		"Lease":         func(ctx context.Context) error { _, err := api.Lease(ctx); return err },
		"WriteLease":    func(ctx context.Context) error { _, err := api.WriteLease(ctx, cluster.Lease{}); return err },
		"WriteSuspension": func(ctx context.Context) error {
			_, err := api.WriteSuspension(ctx, cluster.Lease{}, nil)

			return err
		},
		"Journal":      func(ctx context.Context) error { _, err := api.Journal(ctx); return err },
		"WriteJournal": func(ctx context.Context) error { _, err := api.WriteJournal(ctx, cluster.Journal{}); return err },
		"Forget":       func(ctx context.Context) error { _, err := api.Forget(ctx, "id"); return err },
	}

	if reader, ok := api.(cluster.WorkloadReader); ok {
		calls["Workloads"] = func(ctx context.Context) error { _, err := reader.Workloads(ctx); return err }
	}

	if objects, ok := api.(cluster.ObjectAccess); ok {
		of := cluster.Reference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: "x"}

		calls["Object"] = func(ctx context.Context) error { _, err := objects.Object(ctx, of); return err }
		calls["PatchObject"] = func(ctx context.Context) error { _, err := objects.PatchObject(ctx, of, "", nil); return err }
		calls["HasPart"] = func(ctx context.Context) error { _, err := objects.HasPart(ctx, of, "status"); return err }
	}

	if client, ok := api.(*kubeapi.Client); ok {
		of := cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "x"}

		calls["CreateObject"] = func(ctx context.Context) error { _, err := client.CreateObject(ctx, of, nil); return err }
	}

	if secrets, ok := api.(cluster.SecretAccess); ok {
		read := cluster.Secret{Namespace: "default", Name: "x", ResourceVersion: "1"}

		calls["Secret"] = func(ctx context.Context) error { _, err := secrets.Secret(ctx, "default", "x"); return err }
		calls["Secrets"] = func(ctx context.Context) error { _, err := secrets.Secrets(ctx, "default", "a=b"); return err }
		calls["PatchSecret"] = func(ctx context.Context) error { return secrets.PatchSecret(ctx, read, nil) }
	}

	if objects, ok := api.(cluster.Objects); ok {
		calls["Objects"] = func(ctx context.Context) error {
			_, err := objects.Objects(ctx, cluster.ObjectQuery{APIVersion: "v1", Kind: "Pod"})

			return err
		}
	}

	return calls
}

// connect returns a client of a server that always answers the same way, and the number of requests that the server
// got.
func connect(t testing.TB, handler http.HandlerFunc) (*kubeapi.Client, *atomic.Int32) {
	t.Helper()

	var requests atomic.Int32

	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		requests.Add(1)
		handler(writer, request)
	}))
	t.Cleanup(server.Close)

	return newClient(t, server.URL), &requests
}

func newClient(t testing.TB, url string) *kubeapi.Client {
	t.Helper()

	kubeconfig := fmt.Sprintf("clusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: a, context: {cluster: c}}]\n", url)

	client, err := kubeapi.New([]byte(kubeconfig), "", kubeapi.Options{UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(client.Close)

	return client
}

// status answers with a Status of Kubernetes.
func status(code int, reason, message string, causes ...map[string]string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) {
		writer.Header().Set("Content-Type", "application/json")

		if code == http.StatusTooManyRequests {
			writer.Header().Set("Retry-After", "10")
		}

		writer.WriteHeader(code)

		body := map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
			"details": map[string]any{"causes": causes},
		}

		_ = json.NewEncoder(writer).Encode(body)
	}
}

func TestError_AnswersAreNamedByMeaning(t *testing.T) {
	t.Parallel()

	pod := cluster.Pod{Namespace: "default", Name: "web", UID: "1"}
	budget := map[string]string{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}

	list := func(ctx context.Context, api *kubeapi.Client) error { _, err := api.Nodes(ctx); return err }
	write := func(ctx context.Context, api *kubeapi.Client) error {
		_, err := api.WriteLease(ctx, cluster.Lease{ResourceVersion: "1"})

		return err
	}
	evict := func(ctx context.Context, api *kubeapi.Client) error { return api.Evict(ctx, pod) }
	remove := func(ctx context.Context, api *kubeapi.Client) error { return api.DeletePod(ctx, pod) }

	for name, test := range map[string]struct {
		call    func(context.Context, *kubeapi.Client) error
		answer  http.HandlerFunc
		want    error
		unknown bool
		says    string
	}{
		"unauthorized":              {list, status(401, "Unauthorized", "Unauthorized"), cluster.ErrCredentials, false, ""},
		"forbidden":                 {list, status(403, "Forbidden", "nodes is forbidden"), cluster.ErrDenied, false, "nodes is forbidden"},
		"overloaded read":           {list, status(503, "ServiceUnavailable", "apiserver is shutting down"), cluster.ErrUnreachable, false, ""},
		"broken read":               {list, status(500, "InternalError", "etcdserver: request timed out"), cluster.ErrUnreachable, false, ""},
		"overloaded write":          {write, status(503, "ServiceUnavailable", "apiserver is shutting down"), cluster.ErrUnreachable, false, ""},
		"write without a verdict":   {write, status(500, "InternalError", "etcdserver: request timed out"), cluster.ErrUnreachable, true, ""},
		"write that timed out":      {write, status(504, "Timeout", "request timed out"), cluster.ErrUnreachable, true, ""},
		"write that lost a race":    {write, status(409, "Conflict", "the object has been modified"), cluster.ErrConflict, false, ""},
		"write to a deleted object": {write, status(404, "NotFound", "leases not found"), cluster.ErrConflict, false, ""},
		"invalid write":             {write, status(422, "Invalid", "spec is invalid"), cluster.ErrRefused, false, ""},
		"throttled write":           {write, status(429, "TooManyRequests", "too many requests"), cluster.ErrUnreachable, false, ""},
		"budget exhausted":          {evict, status(429, "TooManyRequests", "Cannot evict pod", budget), cluster.ErrBudget, false, "budget web needs 2"},
		"throttled eviction":        {evict, status(429, "TooManyRequests", "too many requests"), cluster.ErrUnreachable, false, ""},
		"evicted already":           {evict, status(404, "NotFound", "pods not found"), nil, false, ""},
		"name taken over":           {evict, status(409, "Conflict", "Precondition failed: UID in precondition: 1, UID in object meta: 2"), nil, false, ""},
		"budget being written":      {evict, status(409, "Conflict", "Operation cannot be fulfilled on poddisruptionbudgets"), cluster.ErrConflict, false, ""},
		"namespace on its way out":  {evict, status(403, "Forbidden", "being terminated", map[string]string{"reason": "NamespaceTerminating"}), nil, false, ""},
		"two budgets":               {evict, status(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."), cluster.ErrRefused, false, "more than one"},
		"two budgets, told apart":   {evict, status(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."), cluster.ErrOverlap, false, "two"},
		"deleted already":           {remove, status(404, "NotFound", "pods not found"), nil, false, ""},
		"deleted and replaced":      {remove, status(409, "Conflict", "Precondition failed: UID in precondition: 1"), nil, false, ""},
	} {
		api, requests := connect(t, test.answer)
		started := time.Now()
		err := test.call(t.Context(), api)

		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}

		if errors.Is(err, cluster.ErrOutcomeUnknown) != test.unknown {
			t.Errorf("%s: %v, want outcome unknown: %t", name, err, test.unknown)
		}

		if err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, test.says)
		}

		if count := requests.Load(); count > 1 && !strings.Contains(name, "read") {
			t.Errorf("%s: %d requests, want one", name, count)
		}

		// The server asks for a pause of ten seconds, which only the engine makes.
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

func TestError_CordonThatKeepsLosingRacesGivesUp(t *testing.T) {
	t.Parallel()

	var patches atomic.Int32

	api, _ := connect(t, func(writer http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPatch {
			patches.Add(1)
			status(409, "Conflict", "the object has been modified")(writer, request)

			return
		}

		writer.Header().Set("Content-Type", "application/json")
		fmt.Fprint(writer, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker-0","uid":"1","resourceVersion":"7"}}`)
	})

	if ours, err := api.Cordon(t.Context(), "worker-0", "run"); !errors.Is(err, cluster.ErrConflict) || ours {
		t.Errorf("ours %t, %v; want a conflict", ours, err)
	}

	if count := patches.Load(); count != 5 {
		t.Errorf("%d patches, want 5", count)
	}
}

func TestError_LostReplyLeavesAWriteUnknown(t *testing.T) {
	t.Parallel()

	api, requests := connect(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })

	_, err := api.WriteJournal(t.Context(), cluster.Journal{ResourceVersion: "1"})
	if !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("write: %v, want unreachable and outcome unknown", err)
	}

	if count := requests.Load(); count != 1 {
		t.Errorf("the write was sent %d times", count)
	}

	if _, err := api.Nodes(t.Context()); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
		t.Errorf("read: %v, want only unreachable", err)
	}
}

func TestError_RefusedConnectionHasNoEffect(t *testing.T) {
	t.Parallel()

	// Any other port can be taken by a server of another test.
	api := newClient(t, "http://127.0.0.1:1")

	for name, call := range portCalls(api) {
		if err := call(t.Context()); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			t.Errorf("%s: %v, want only unreachable", name, err)
		}
	}
}

func TestError_CallersEndIsNotTheServers(t *testing.T) {
	t.Parallel()

	hanging := make(chan struct{})
	arrived := make(chan struct{}, 2)

	api, _ := connect(t, func(_ http.ResponseWriter, request *http.Request) {
		arrived <- struct{}{}

		select {
		case <-hanging:
		case <-request.Context().Done():
			// A return would be an answer, which a client that gives up may still read.
			panic(http.ErrAbortHandler)
		}
	})

	// This is registered after the clean-up of the server, so it runs before it.
	t.Cleanup(func() { close(hanging) })

	reason := errors.New("the run was stopped")

	for name, test := range map[string]struct {
		call    func(context.Context) error
		unknown bool
	}{
		"read":  {func(ctx context.Context) error { _, err := api.Nodes(ctx); return err }, false},
		"write": {func(ctx context.Context) error { _, err := api.WriteLease(ctx, cluster.Lease{}); return err }, true},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())

		go func() {
			<-arrived
			cancel(reason)
		}()

		err := test.call(ctx)

		if !errors.Is(err, reason) || errors.Is(err, cluster.ErrOutcomeUnknown) != test.unknown {
			t.Errorf("%s: %v, want the reason, and outcome unknown: %t", name, err, test.unknown)
		}
	}
}

// TestError_WordsTheEndOfARequest: the error does not quote Go, whoever ended the request.
func TestError_WordsTheEndOfARequest(t *testing.T) {
	t.Parallel()

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	for want, test := range map[string]struct {
		ctx   context.Context
		ended error
	}{
		"unable to look: it was interrupted": {cancelled, context.Canceled},
		"unable to look: unreachable: 10.5.0.2:6443: no answer in time": {
			t.Context(), &url.Error{Op: "Get", URL: "https://10.5.0.2:6443/api", Err: context.DeadlineExceeded},
		},
		"unable to look: unreachable: no answer in time": {
			t.Context(), errors.New("client rate limiter Wait returned an error: context deadline exceeded"),
		},
	} {
		if got := kubeapi.Explain(test.ctx, "look", false, test.ended); got.Error() != want || !errors.Is(got, test.ended) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestError_ForeignCertificateIsNoReasonToWait(t *testing.T) {
	t.Parallel()

	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)

	api := newClient(t, server.URL)

	if _, err := api.Nodes(t.Context()); !errors.Is(err, cluster.ErrCredentials) {
		t.Errorf("%v, want refused credentials", err)
	}
}

// TestError_RefusalOfWhatWasAllowedBeforeMayHeal: an API server that has just started
// knows nobody's permissions yet.
func TestError_RefusalOfWhatWasAllowedBeforeMayHeal(t *testing.T) {
	for name, test := range map[string]struct {
		message, kind string
		// allowed is true if the request was carried out before.
		allowed bool
		want    error
		heals   bool
	}{
		"just started":           {`nodes is forbidden: User "ops" cannot list resource "nodes"`, "json", true, cluster.ErrUnreachable, true},
		"just started, protobuf": {`nodes is forbidden: User "ops" cannot list resource "nodes"`, "protobuf", true, cluster.ErrUnreachable, true},
		"never allowed":          {`nodes is forbidden: User "ops" cannot list resource "nodes"`, "json", false, cluster.ErrDenied, false},
		"refused by a webhook":   {`admission webhook "w" denied the request`, "json", true, cluster.ErrRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 && test.allowed {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[]}`)

					return
				}

				answerForbidden(t, w, test.kind, test.message)
			}))
			t.Cleanup(server.Close)

			client, err := kubeapi.New([]byte(plainKubeconfig(server.URL)), "", kubeapi.Options{})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(client.Close)

			if _, err := client.Nodes(t.Context()); (err == nil) != test.allowed {
				t.Fatalf("the first request ended with %v", err)
			}

			_, err = client.Nodes(t.Context())
			if !errors.Is(err, test.want) || cluster.Heals(err) != test.heals || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v, want %v, and the reason in it", err, test.want)
			}
		})
	}
}

// TestClient_ReadsAreRepeatedOnItsClock: the pause before a read is repeated goes by the client's clock, whether the
// connection broke or the API server asked for the pause.
func TestClient_ReadsAreRepeatedOnItsClock(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		first http.HandlerFunc
		want  time.Duration
	}{
		"the connection broke": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, time.Second},
		"too many requests": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var asked atomic.Int32

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 1 {
					test.first(w, r)

					return
				}

				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[]}`)
			}))
			t.Cleanup(server.Close)

			var slept []time.Duration

			client, err := kubeapi.New([]byte(plainKubeconfig(server.URL)), "", kubeapi.Options{
				Sleep: func(_ context.Context, duration time.Duration) error {
					slept = append(slept, duration)

					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(client.Close)

			if _, err := client.Nodes(t.Context()); err != nil {
				t.Fatal(err)
			}

			if want := []time.Duration{test.want}; !slices.Equal(slept, want) {
				t.Errorf("the clock of the client was asked for the pauses %v, want %v", slept, want)
			}
		})
	}
}

func answerForbidden(t *testing.T, w http.ResponseWriter, kind, message string) {
	t.Helper()

	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message,
	}

	if kind == "json" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`, message)

		return
	}

	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(http.StatusForbidden)

	if err := protobuf.NewSerializer(nil, nil).Encode(status, w); err != nil {
		t.Error(err)
	}
}

// plainKubeconfig returns a kubeconfig without credentials.
func plainKubeconfig(server string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, server)
}

// catalogued is an answer of an API server to a read and to a write, and what
// each of them means.
type catalogued struct {
	answer http.HandlerFunc
	// unknown is true if the write may have happened.
	unknown bool
	says    string
}

// check fails the test unless both errors may heal, the write was sent once, and the texts say what was asked and
// what came back.
func (c catalogued) check(t *testing.T, name string) {
	t.Helper()

	api, requests := connect(t, c.answer)

	_, err := api.Nodes(t.Context())
	if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) || !cluster.Heals(err) || !strings.Contains(err.Error(), "nodes") || !strings.Contains(err.Error(), c.says) {
		t.Errorf("%s: read: %v, want only unreachable, and %q", name, err, c.says)
	}

	requests.Store(0)

	_, err = api.WriteJournal(t.Context(), cluster.Journal{ResourceVersion: "1"})
	if !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) != c.unknown || !cluster.Heals(err) || !strings.Contains(err.Error(), "journal") {
		t.Errorf("%s: write: %v, want it unreachable, and outcome unknown: %t", name, err, c.unknown)
	}

	if count := requests.Load(); count != 1 {
		t.Errorf("%s: the write was sent %d times", name, count)
	}
}

// If the etcd database has no space, the API server returns an error, after which it is not known whether it has
// written.
func TestCatalogue15_DatabaseWithoutSpace(t *testing.T) {
	t.Parallel()

	catalogued{status(500, "InternalError", "etcdserver: mvcc: database space exceeded"), true, "database space exceeded"}.check(t, "no space")
}

// throttled is the answer of an API server that is overloaded for a second.
func throttled(writer http.ResponseWriter, _ *http.Request) {
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Retry-After", "1")
	writer.WriteHeader(http.StatusTooManyRequests)

	_ = json.NewEncoder(writer).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusTooManyRequests,
		Reason: metav1.StatusReasonTooManyRequests, Message: "too many requests, please try again later",
	})
}

// An API server that comes and goes is waited for. What it did not accept has no effect, and what it may have
// accepted is looked for.
func TestCatalogue35_APIServerFlaps(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]catalogued{
		"shutting down":     {answer: status(503, "ServiceUnavailable", "apiserver is shutting down"), says: "shutting down"},
		"overloaded":        {answer: throttled, says: "too many requests"},
		"cut off":           {answer: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unknown: true, says: "EOF"},
		"behind a proxy":    {answer: status(502, "BadGateway", "bad gateway"), unknown: true, says: "bad gateway"},
		"etcd without lead": {answer: status(500, "InternalError", "etcdserver: leader changed"), unknown: true, says: "leader changed"},
	} {
		test.check(t, name)
	}

	cp0, cp1 := newServer(t, nil), newServer(t, nil)
	f := &front{ways: map[string]string{own: cp0.address()}}
	api := f.client(t, cp0, "", "10.0.0.2:6443")

	if _, err := api.UID(t.Context()); err != nil {
		t.Fatal(err)
	}

	// First it is gone, as while its static pod restarts; then it refuses, then another one answers, then it is
	// back.
	cp0.CloseClientConnections()
	f.leads(own, "")

	if _, err := api.UID(t.Context()); !errors.Is(err, cluster.ErrUnreachable) || !cluster.Heals(err) {
		t.Errorf("refused: %v, want it unreachable", err)
	}

	f.leads("10.0.0.2:6443", cp1.address())

	if _, err := api.UID(t.Context()); err != nil {
		t.Errorf("through another API server: %v", err)
	}

	cp1.CloseClientConnections()
	f.leads(own, cp0.address())
	f.leads("10.0.0.2:6443", "")

	if _, err := api.UID(t.Context()); err != nil && !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("as it comes back: %v", err)
	}

	if _, err := api.UID(t.Context()); err != nil {
		t.Errorf("back: %v", err)
	}
}

// nodeOf returns the Node object of a machine as an API server lists it.
func nodeOf(t *testing.T, status corev1.ConditionStatus, reason string, since time.Time, kubelet string) cluster.KubeNode {
	t.Helper()

	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0"}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: kubelet, BootID: "boot-1"}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}}

	api, _ := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")

		_ = json.NewEncoder(w).Encode(corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, Items: []corev1.Node{node}})
	})

	nodes, err := api.Nodes(t.Context())
	if err != nil || len(nodes) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes), err)
	}

	return nodes[0]
}

// Kubernetes says after 40 s that it knows nothing about a node that went away.
func TestCatalogue18_NodeOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()

	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

	if node := nodeOf(t, corev1.ConditionUnknown, "NodeStatusUnknown", since, "v1.34.2"); node.Ready || node.ReadyReason != "NodeStatusUnknown" || !node.ReadySince.Equal(since) {
		t.Errorf("got %+v, want a node that is not ready since then", node)
	}
}

// A kubelet that is not ready leaves its version as it was.
func TestCatalogue37_KubeletNotReady(t *testing.T) {
	t.Parallel()

	if node := nodeOf(t, corev1.ConditionFalse, "KubeletNotReady", time.Now(), "v1.34.2"); node.Ready || node.ReadyReason != "KubeletNotReady" || node.Kubelet.String() != "1.34.2" || node.BootID != "boot-1" {
		t.Errorf("got %+v, want a node that is not ready, with the old version", node)
	}
}

// A budget that allows no disruption is told apart from an overloaded API server. Neither request is repeated here:
// the engine makes the pause.
func TestCatalogue38_BudgetBlocksAnEviction(t *testing.T) {
	t.Parallel()

	pod := cluster.Pod{Namespace: "default", Name: "web", UID: "1"}

	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   error
		heals  bool
		says   string
	}{
		"exhausted": {
			status(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", map[string]string{
				"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
			}), cluster.ErrBudget, true, "disruption budget web needs 2",
		},
		"throttled": {status(429, "TooManyRequests", "too many requests"), cluster.ErrUnreachable, true, "too many"},
		"two":       {status(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."), cluster.ErrRefused, false, "more than one"},
	} {
		api, requests := connect(t, test.answer)

		err := api.Evict(t.Context(), pod)
		if !errors.Is(err, test.want) || cluster.Heals(err) != test.heals || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "default/web") {
			t.Errorf("%s: %v, want %q, the pod and %q", name, err, test.want, test.says)
		}

		if count := requests.Load(); count != 1 {
			t.Errorf("%s: %d requests", name, count)
		}
	}
}
