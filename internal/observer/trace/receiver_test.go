// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

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
