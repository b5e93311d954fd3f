// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
)

// otlpReceiver is a collector on loopback that keeps the spans of the provider.
type otlpReceiver struct {
	*httptest.Server

	mutex sync.Mutex
	spans []*tracepb.Span
}

func receiveTraces(t *testing.T) *otlpReceiver {
	t.Helper()

	made := &otlpReceiver{}
	made.Server = httptest.NewServer(made)
	t.Cleanup(made.Close)

	return made
}

// ServeHTTP implements [http.Handler].
func (r *otlpReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	message := &coltracepb.ExportTraceServiceRequest{}

	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = proto.Unmarshal(body, message)
	}

	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	r.mutex.Lock()
	defer r.mutex.Unlock()

	for _, of := range message.GetResourceSpans() {
		for _, one := range of.GetResource().GetAttributes() {
			// Terraform has a tracer of its own.
			if one.GetKey() != "service.name" || one.GetValue().GetStringValue() != "terraform-provider-talosupgrade" {
				continue
			}

			for _, scope := range of.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
	}
}

// take returns the spans since the last call.
func (r *otlpReceiver) take() []*tracepb.Span {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	taken := r.spans
	r.spans = nil

	return taken
}

// TestAccTraceOfAnUpgrade wants an apply in a pipeline that is traced to be part of its trace, node by node and step
// by step. A plan, and an apply that is not configured for it, must not be part of any.
func TestAccTraceOfAnUpgrade(t *testing.T) {
	smoke(t)

	const pipeline = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

	to := receiveTraces(t)
	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 2})
	w := newWorkspace(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+to.URL, "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "TRACEPARENT="+pipeline)
	w.write(use(s), `talos_version = "1.13.4"`+guarded)

	w.plan().mustSucceed(2)

	if spans := to.take(); len(spans) > 0 {
		t.Errorf("a plan made %d spans", len(spans))
	}

	w.apply().mustSucceed(0)
	s.wantUpgraded(talosTarget, once(1, 1))

	spans := to.take()
	index := slices.IndexFunc(spans, func(span *tracepb.Span) bool { return span.GetName() == "upgrade" })

	if index < 0 {
		t.Fatalf("no root among %d spans", len(spans))
	}

	root := spans[index]
	if !strings.Contains(pipeline, hex.EncodeToString(root.GetTraceId())) || !strings.Contains(pipeline, hex.EncodeToString(root.GetParentSpanId())) {
		t.Errorf("the root is not below the pipeline: %v", root)
	}

	if root.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_OK {
		t.Errorf("the root says %v", root.GetStatus())
	}

	for _, node := range []string{"worker-0", "cp-0"} {
		turn := below(spans, root, "Talos on "+node)
		if len(turn) != 1 || turn[0].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_OK {
			t.Fatalf("%s has the turns %v", node, turn)
		}

		steps := []string{"cordon", "install", "reboot", "return", "ready", "uncordon"}
		if node == "worker-0" {
			// The control plane may have pulled before its turn.
			steps = append(steps, "pull")
		}

		for _, step := range steps {
			if found := below(spans, turn[0], step); len(found) != 1 {
				t.Errorf("%s has %d steps %s", node, len(found), step)
			}
		}
	}

	for _, span := range spans {
		if span.GetStartTimeUnixNano() < root.GetStartTimeUnixNano() || span.GetEndTimeUnixNano() > root.GetEndTimeUnixNano() {
			t.Errorf("%s is not within the run", span.GetName())
		}
	}

	w.env = slices.DeleteFunc(w.env, func(pair string) bool { return strings.HasPrefix(pair, "OTEL_") })
	w.write(use(s), `talos_version = "1.13.3"`+guarded)
	w.apply().mustFail()

	if spans := to.take(); len(spans) > 0 {
		t.Errorf("without the variables there were %d spans", len(spans))
	}
}

// below returns the spans of a name whose parent is the given one.
func below(spans []*tracepb.Span, parent *tracepb.Span, name string) []*tracepb.Span {
	var found []*tracepb.Span

	for _, span := range spans {
		if span.GetName() == name && bytes.Equal(span.GetParentSpanId(), parent.GetSpanId()) {
			found = append(found, span)
		}
	}

	return found
}
