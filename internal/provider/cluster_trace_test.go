// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// collector keeps the spans that it is sent, and points the environment to itself.
type collector struct {
	mutex sync.Mutex
	spans []*tracepb.Span
}

func collecting(t *testing.T) *collector {
	t.Helper()

	made := &collector{}
	server := httptest.NewServer(made)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)

	return made
}

// ServeHTTP implements [http.Handler].
func (c *collector) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()

	message := &coltracepb.ExportTraceServiceRequest{}

	if body, err := io.ReadAll(req.Body); err != nil || proto.Unmarshal(body, message) != nil {
		return
	}

	for _, of := range message.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

// TestRefusedUpgradeIsARootWithAnError, although nothing of it was ever begun.
func TestRefusedUpgradeIsARootWithAnError(t *testing.T) {
	to := collecting(t)
	fake := threeNodes("1.12.6", "1.34.2")
	fake.roles = []string{"os:reader"}

	_, diagnostics := create(t, fake.clusters(t), desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "Terraform stores nothing of this resource"})

	if len(to.spans) != 1 {
		t.Fatalf("%d spans", len(to.spans))
	}

	root := to.spans[0]
	if status := root.GetStatus(); status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || status.GetMessage() != diagnostics.Errors()[0].Summary() {
		t.Errorf("the root says %v", root)
	}

	for _, one := range root.GetAttributes() {
		if one.GetKey() == "error.type" && one.GetValue().GetStringValue() != "blocked" {
			t.Errorf("the error is of type %v", one.GetValue())
		}
	}
}

// TestTraceThatCannotBeHadIsAWarning, and the upgrade goes on without it.
func TestTraceThatCannotBeHadIsAWarning(t *testing.T) {
	for title, test := range map[string]struct{ name, value, says string }{
		"an exporter": {"OTEL_TRACES_EXPORTER", "console", "standard output"},
		"nobody":      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "1 of 1 spans of the trace did not arrive"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Setenv(test.name, test.value)

			got, diagnostics := create(t, threeNodes("1.13.4", "1.34.2").clusters(t), desired("1.13.4", ""))
			check(t, noted(t, diagnostics), outcome{diag.SeverityWarning, test.says})

			if got == nil {
				t.Error("nothing was stored")
			}

			if !strings.HasPrefix(diagnostics[0].Summary(), "Unable to trace the upgrade") || !strings.Contains(diagnostics[0].Detail(), "does not depend on it") {
				t.Errorf("got %v", diagnostics)
			}
		})
	}
}

// TestEndOfATraceHurriesAfterACancel: the collector hangs.
func TestEndOfATraceHurriesAfterACancel(t *testing.T) {
	var config net.ListenConfig

	hangs, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = hangs.Close() }()

	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+hangs.Addr().String())

	fake := threeNodes("1.13.4", "1.34.2").clusters(t)
	ctx, cancel := context.WithCancel(t.Context())
	traced := fake.trace(ctx, "cluster-a", engine.Options{ClusterName: "prod", Run: "run-1"}, engine.Request{}, publication{})

	cancel()

	began := time.Now()
	diagnostics := (&runObservers{trace: traced}).close(ctx, publication{}, "prod", cluster.Observation{}, errors.New("the upgrade was cancelled"))

	if took := time.Since(began); took > hurriedFlush+time.Second {
		t.Errorf("it took %s", took)
	}

	check(t, diagnostics, outcome{diag.SeverityWarning, "did not take them in time"})
}
