// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccTraceOfACancelledUpgrade wants the end of the trace to arrive as well, within the time limit.
func TestAccTraceOfACancelledUpgrade(t *testing.T) {
	full(t)

	const (
		slow  = 60
		limit = 15 * time.Second
	)

	to := receiveTraces(t)
	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 2, Speed: slow})
	w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, slow), "OTEL_EXPORTER_OTLP_ENDPOINT="+to.URL)
	w.write(use(s), `talos_version = "1.13.4"`)

	run := w.background("apply", "-json", "-auto-approve", "-input=false")
	s.await("installed", func(e history.Event) bool {
		return e.Kind == history.KindJournal && e.Node == "worker-0" && e.Detail["phase"] == "installed"
	})

	began := time.Now()

	run.signal(syscall.SIGINT)
	run.wait().interrupted().mustFail("cancelled")

	if took := time.Since(began); took > limit {
		t.Errorf("it took %s to stop", took)
	}

	spans := to.take()
	index := slices.IndexFunc(spans, func(span *tracepb.Span) bool { return span.GetName() == "upgrade" })

	if index < 0 || spans[index].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Fatalf("the root is not among %d spans, or says something else", len(spans))
	}

	turn := below(spans, spans[index], "Talos on worker-0")
	if len(turn) != 1 || turn[0].GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the turn that was cancelled is %v", turn)
	}
}
