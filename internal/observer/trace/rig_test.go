// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/trace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestMain keeps the settings of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") || name == "TRACEPARENT" || name == "TRACESTATE" {
			_ = os.Unsetenv(name)
		}
	}

	m.Run()
}

// story is what a run of the engine told its observers, in virtual time. Sockets do
// not live in there, and spans take their times from the events: so they are made
// outside, afterwards.
type story struct {
	events     []cluster.Event
	begun, end time.Time
	err        error
}

// tell has the engine upgrade a simulated cluster, and cancels it after a while
// unless that is 0.
func tell(t *testing.T, given harness.Setup, request engine.Request, after time.Duration) story {
	t.Helper()

	var told story

	synctest.Test(t, func(t *testing.T) {
		r := harness.New(t, given)
		defer r.Stop()

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		if after > 0 {
			defer time.AfterFunc(after, cancel).Stop()
		}

		w := r.Worker("run-1")
		told.begun = time.Now()
		told.err = w.Apply(ctx, request)
		told.end, told.events = time.Now(), w.Events()
	})

	return told
}

// start begins the trace of the story.
func (s story) start(t testing.TB, of trace.Run) *trace.Tracer {
	t.Helper()

	now := s.begun
	of.Now = func() time.Time {
		given := now
		now = s.end

		return given
	}

	tracer, err := trace.Start(t.Context(), of)
	if err != nil || tracer == nil {
		t.Fatalf("no trace: %v", err)
	}

	return tracer
}

// outcome is how the story ended.
func (s story) outcome() trace.Outcome {
	made := trace.Outcome{Err: s.err, Type: "other"}

	var failure *say.Failure
	if errors.As(s.err, &failure) {
		made.Summary = failure.Summary
	}

	return made
}

// traced makes spans of the story and looks at what the receiver got of them.
func (s story) traced(t testing.TB, to *receiver) *tree {
	t.Helper()

	return s.tracedAs(t, aRun(), to)
}

func (s story) tracedAs(t testing.TB, of trace.Run, to *receiver) *tree {
	t.Helper()

	tracer := s.start(t, of)
	for _, event := range s.events {
		tracer.Observe(event)
	}

	if err := tracer.Close(bounded(t), s.outcome()); err != nil {
		t.Fatal(err)
	}

	root, wrong := grow(to.got())
	if len(wrong) > 0 {
		t.Fatalf("the spans are no tree: %s", strings.Join(wrong, "; "))
	}

	if wrong := judge(root, s.events); len(wrong) > 0 {
		t.Fatalf("the tree is not what happened: %s\n%s", strings.Join(wrong, "; "), root.picture())
	}

	return root
}

func aRun() trace.Run {
	return trace.Run{
		ID: "run-1", ClusterName: "prod", ClusterID: "cluster-a", Version: "1.2.3",
		Target: cluster.Target{Talos: version.MustParse(harness.ToLifecycle)},
	}
}

// bounded is a context for something that takes a moment.
func bounded(t testing.TB) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	t.Cleanup(cancel)

	return ctx
}

// both is a request for Talos and Kubernetes.
func both() engine.Request {
	request := harness.To(harness.ToLifecycle)
	request.Target.Kubernetes = version.MustParse("1.35.2")

	return request
}

// twoAtATime may have two workers unavailable.
func twoAtATime(t testing.TB, request engine.Request) engine.Request {
	t.Helper()

	share, err := cluster.ParseShare("2")
	if err != nil {
		t.Fatal(err)
	}

	request.Policy.MaxUnavailable, request.Policy.Kubernetes.MaxUnavailableKubelets = share, share

	return request
}

// outcomeNone is the end of a run that went well.
func outcomeNone() trace.Outcome { return trace.Outcome{} }

// receiver is a collector on loopback: it takes spans over OTLP and keeps them.
type receiver struct {
	coltracepb.UnimplementedTraceServiceServer

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
	headers  http.Header
}

// overHTTP makes a receiver that speaks http/protobuf, and points the environment
// to it.
func overHTTP(t testing.TB) *receiver {
	t.Helper()

	made := &receiver{}
	server := httptest.NewServer(made)
	t.Cleanup(server.Close)
	set(t, "OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)

	return made
}

// overGRPC does the same with gRPC.
func overGRPC(t testing.TB) *receiver {
	t.Helper()

	made := &receiver{}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, made)

	var config net.ListenConfig

	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	go func() { _ = server.Serve(listener) }()

	t.Cleanup(server.Stop)
	set(t, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	set(t, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")

	return made
}

// set sets a variable for the test.
func set(t testing.TB, name, value string) {
	t.Helper()
	t.Setenv(name, value)
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)

	message := &coltracepb.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(body, message)
	}

	if err != nil || req.URL.Path != "/v1/traces" {
		http.Error(w, "not a trace", http.StatusBadRequest)

		return
	}

	r.take(message)

	r.mu.Lock()
	defer r.mu.Unlock()

	r.headers = req.Header
}

// Export implements [coltracepb.TraceServiceServer].
func (r *receiver) Export(_ context.Context, message *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	r.take(message)

	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (r *receiver) take(message *coltracepb.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, of := range message.GetResourceSpans() {
		r.resource = words(of.GetResource().GetAttributes())

		for _, scope := range of.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
}

// got are the spans so far, by their beginning.
func (r *receiver) got() []*tracepb.Span {
	r.mu.Lock()
	defer r.mu.Unlock()

	return slices.Clone(r.spans)
}

// words are attributes as texts.
func words(of []*commonpb.KeyValue) map[string]string {
	made := map[string]string{}

	for _, one := range of {
		switch value := one.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			made[one.GetKey()] = value.StringValue
		default:
			made[one.GetKey()] = one.GetValue().String()
		}
	}

	return made
}

// tree is a span with those below it.
type tree struct {
	*tracepb.Span

	below []*tree
}

// grow puts spans together. What is wrong with them is returned.
func grow(spans []*tracepb.Span) (*tree, []string) {
	var (
		roots []*tree
		wrong []string
		all   = map[string]*tree{}
	)

	for _, span := range spans {
		all[string(span.GetSpanId())] = &tree{Span: span}
	}

	for _, span := range spans {
		one := all[string(span.GetSpanId())]

		if span.GetStartTimeUnixNano() > span.GetEndTimeUnixNano() {
			wrong = append(wrong, span.GetName()+" ends before it begins")
		}

		parent := all[string(span.GetParentSpanId())]
		if parent == nil {
			roots = append(roots, one)

			continue
		}

		parent.below = append(parent.below, one)

		if span.GetStartTimeUnixNano() < parent.GetStartTimeUnixNano() || span.GetEndTimeUnixNano() > parent.GetEndTimeUnixNano() {
			wrong = append(wrong, span.GetName()+" is not within "+parent.GetName())
		}

		if !bytes.Equal(span.GetTraceId(), parent.GetTraceId()) {
			wrong = append(wrong, span.GetName()+" is in another trace than "+parent.GetName())
		}
	}

	if len(all) != len(spans) {
		wrong = append(wrong, "a span came twice")
	}

	if len(roots) != 1 {
		return nil, append(wrong, fmt.Sprintf("%d roots", len(roots)))
	}

	for _, one := range all {
		slices.SortFunc(one.below, func(a, b *tree) int {
			return cmp.Or(cmp.Compare(a.GetStartTimeUnixNano(), b.GetStartTimeUnixNano()),
				cmp.Compare(a.GetEndTimeUnixNano(), b.GetEndTimeUnixNano()), cmp.Compare(a.GetName(), b.GetName()))
		})
	}

	return roots[0], wrong
}

// judge compares a tree with the events that it was made of.
func judge(root *tree, events []cluster.Event) []string {
	var wrong []string

	upgrades := map[string]int{}
	done := map[string]int{}
	failed := map[string]int{}
	steps := 0

	for _, event := range events {
		switch event.Kind {
		case cluster.EventNodeStarted:
			upgrades[spotOf(event)]++
		case cluster.EventNodeDone:
			done[spotOf(event)]++
		case cluster.EventNodeStopped:
			if event.Err != nil {
				failed[spotOf(event)]++
			}
		case cluster.EventNodeStep:
			steps++
		}
	}

	for _, lane := range root.below {
		attributes := words(lane.GetAttributes())

		for index, step := range lane.below {
			if len(step.below) > 0 {
				wrong = append(wrong, step.GetName()+" has spans below it")
			}

			if index > 0 && step.GetStartTimeUnixNano() < lane.below[index-1].GetEndTimeUnixNano() {
				wrong = append(wrong, fmt.Sprintf("%s: %s begins before %s ends", lane.GetName(), step.GetName(), lane.below[index-1].GetName()))
			}
		}

		component, isTurn := attributes["talosupgrade.component"]
		if !isTurn || lane.GetName() == "etcd-snapshot" {
			continue
		}

		at := attributes["k8s.node.name"] + "/" + component
		upgrades[at]--

		switch code := lane.GetStatus().GetCode(); attributes["talosupgrade.outcome"] {
		case "done":
			done[at]--

			if code != tracepb.Status_STATUS_CODE_OK {
				wrong = append(wrong, at+" is done and its status is "+code.String())
			}
		case "failed":
			failed[at]--

			if code != tracepb.Status_STATUS_CODE_ERROR || lane.GetStatus().GetMessage() == "" {
				wrong = append(wrong, at+" failed and its status is "+lane.GetStatus().String())
			}
		}
	}

	for title, counts := range map[string]map[string]int{"upgrades": upgrades, "upgrades that are done": done, "upgrades that failed": failed} {
		for at, more := range counts {
			if more != 0 {
				wrong = append(wrong, fmt.Sprintf("%s: %s: %d more events than spans", at, title, more))
			}
		}
	}

	if len(root.below) == 0 && steps > 0 {
		wrong = append(wrong, "nothing is below the root")
	}

	return wrong
}

// spotOf is what the event is about, as attributes say it.
func spotOf(event cluster.Event) string {
	return event.Node + "/" + cmp.Or(string(event.Component), "talos")
}

// picture is the tree as text, with times from the beginning of the root.
func (t *tree) picture() string {
	var text strings.Builder

	t.draw(&text, "", t.GetStartTimeUnixNano())

	return text.String()
}

func (t *tree) draw(to *strings.Builder, indent string, zero uint64) {
	status := ""
	if t.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		status = "  ERROR " + t.GetStatus().GetMessage()
	}

	since := func(at uint64) time.Duration { return time.Duration(at - zero).Round(time.Second) }

	fmt.Fprintf(to, "%-40s%9s  %s%s\n", indent+t.GetName(), since(t.GetStartTimeUnixNano()),
		time.Duration(t.GetEndTimeUnixNano()-t.GetStartTimeUnixNano()).Round(time.Second), status)

	for _, event := range t.GetEvents() {
		if event.GetName() == "exception" || event.GetName() == "apply" {
			continue
		}

		fmt.Fprintf(to, "%-40s%9s  %s\n", indent+"  · "+event.GetName(), since(event.GetTimeUnixNano()), words(event.GetAttributes())["talosupgrade.message"])
	}

	for _, one := range t.below {
		one.draw(to, indent+"  ", zero)
	}
}
