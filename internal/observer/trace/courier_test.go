// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/trace"
)

// protocols are those of OTLP.
func protocols() []string { return []string{"http/protobuf", "grpc"} }

// TestCourier_HangingCollectorDelaysNobody: the end is bounded by the context, and nothing
// is left of it.
func TestCourier_HangingCollectorDelaysNobody(t *testing.T) {
	const limit = 300 * time.Millisecond

	for _, protocol := range protocols() {
		t.Run(protocol, func(t *testing.T) {
			hangs := listenSilently(t)
			before := goleak.IgnoreCurrent()

			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+hangs.Addr().String())
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			// It hangs long before the end as well.
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")

			told := many()
			tracer := told.start(t, aRun())
			began := time.Now()

			for _, event := range told.events {
				tracer.Observe(event)
			}

			if took := time.Since(began); took > limit {
				t.Errorf("the run was kept waiting for %s", took)
			}

			<-hangs.came

			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()

			began = time.Now()
			err := tracer.Close(ctx, trace.Outcome{})

			if took := time.Since(began); took > 3*limit {
				t.Errorf("the end took %s of %s", took, limit)
			}

			if err == nil || !strings.Contains(err.Error(), "spans of the trace did not arrive") {
				t.Errorf("got %v", err)
			}

			_ = hangs.Close()

			goleak.VerifyNone(t, before)
		})
	}
}

// TestCourier_MissingCollectorIsTriedWhileThereIsTime is tried for as long as there is time.
func TestCourier_MissingCollectorIsTriedWhileThereIsTime(t *testing.T) {
	for _, protocol := range protocols() {
		t.Run(protocol, func(t *testing.T) {
			gone := listenSilently(t)
			address := gone.Addr().String()
			_ = gone.Close()

			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+address)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)

			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()

			err := short().start(t, aRun()).Close(ctx, trace.Outcome{})
			if err == nil || !strings.Contains(err.Error(), "1 of 1 spans of the trace did not arrive") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCourier_NoSecretIsRepeated has a collector refuse with everything that it was sent.
func TestCourier_NoSecretIsRepeated(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Error(w, fmt.Sprint("who is ", req.Header, " ", req.URL, strings.Repeat(" and so on", 1000)), http.StatusUnauthorized)
	}))
	defer server.Close()

	address := server.Listener.Addr().String()
	secret := []string{"t0ken", "k3y", "us3r", "pa55word", "qu3ry"}

	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://us3r:pa55word@"+address+"?key=qu3ry")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken, x-api-key=k3y")

	err := short().start(t, aRun()).Close(bounded(t), trace.Outcome{})
	if err == nil || !strings.Contains(err.Error(), "401") || len(err.Error()) > 700 {
		t.Fatalf("got %v", err)
	}

	for _, one := range secret {
		if strings.Contains(err.Error(), one) {
			t.Errorf("%s shows in %v", one, err)
		}
	}
}

// TestCourier_ClosingAgainAndObservingLateDoNothing: a cancelled run may still say something.
func TestCourier_ClosingAgainAndObservingLateDoNothing(t *testing.T) {
	to := overHTTP(t)
	tracer := short().start(t, aRun())

	for range 2 {
		if err := tracer.Close(bounded(t), trace.Outcome{}); err != nil {
			t.Error(err)
		}

		tracer.Observe(cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-0", Time: time.Now()})
	}

	if len(to.got()) != 1 {
		t.Errorf("%d spans", len(to.got()))
	}
}

// unprinted is the variable that makes the test below trace something.
const unprinted = "TALOSUPGRADE_TRACE_CHILD"

// TestCourier_PrintsNothing: both standard output and standard error belong to the plugin.
func TestCourier_PrintsNothing(t *testing.T) {
	if os.Getenv(unprinted) != "" {
		// TestMain has taken the variables of OpenTelemetry away.
		for pair := range strings.SplitSeq(os.Getenv(unprinted), ";") {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
		}

		if tracer, err := trace.Start(t.Context(), trace.Run{Now: time.Now}); err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_ = tracer.Close(ctx, trace.Outcome{})

			cancel()
		}

		// The testing package would print something.
		os.Exit(0)
	}

	for _, env := range []string{
		"OTEL_TRACES_EXPORTER=console",
		"OTEL_TRACES_EXPORTER=zipkin",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1;OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_EXPORTER_OTLP_ENDPOINT=::bad::;OTEL_EXPORTER_OTLP_HEADERS=pa55word",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1;OTEL_EXPORTER_OTLP_HEADERS=pa55word;OTEL_EXPORTER_OTLP_COMPRESSION=what;OTEL_EXPORTER_OTLP_TIMEOUT=soon",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1;OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere;OTEL_TRACES_SAMPLER=dice;OTEL_RESOURCE_ATTRIBUTES=pa55word",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1;OTEL_BSP_SCHEDULE_DELAY=later;OTEL_SPAN_EVENT_COUNT_LIMIT=few",
	} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCourier_PrintsNothing$") //nolint:gosec // this very binary
		child.Env = append(os.Environ(), unprinted+"="+env)

		if printed, err := child.CombinedOutput(); err != nil || len(printed) > 0 {
			t.Errorf("%s: %v, printed %q", env, err, printed)
		}
	}
}

// many is a run with a hundred upgrades.
func many() story {
	told := short()

	for index := range 100 {
		at := told.begun.Add(time.Duration(index) * time.Second)
		node := fmt.Sprintf("worker-%d", index)
		told.events = append(told.events,
			cluster.Event{Kind: cluster.EventNodeStarted, Node: node, Time: at},
			cluster.Event{Kind: cluster.EventNodeStep, Node: node, Step: cluster.StepDrain, Time: at},
			cluster.Event{Kind: cluster.EventNodeDone, Node: node, Time: at.Add(time.Second)})
	}

	told.end = told.begun.Add(2 * time.Minute)

	return told
}
