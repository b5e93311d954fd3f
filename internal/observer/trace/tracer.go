// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var _ cluster.Observer = (*Tracer)(nil)

// name is the name of the instrumentation, and that of the service unless the environment sets another one.
const name = "terraform-provider-talosupgrade"

// closePatience bounds [Tracer.Close] for callers without a deadline.
const closePatience = 15 * time.Second

// Run describes the run that is traced.
type Run struct {
	// ID is the ID of the run, as in the lease.
	ID string
	// ClusterName is what people call the cluster. ClusterID may be empty.
	ClusterName, ClusterID string
	Target                 cluster.Target
	// Delegated is true if an operator carries out the upgrade.
	Delegated bool
	// Version is the version of the provider.
	Version string
	// Now is the clock of the engine, which also stamps the events.
	Now func() time.Time
}

// Outcome is how a run ended.
type Outcome struct {
	// Err is nil if the run succeeded.
	Err error
	// Summary is the error in one line, Type its kind in one word.
	Summary, Type string
}

// Tracer makes the spans of one run.
type Tracer struct {
	provider *sdktrace.TracerProvider
	courier  *courier
	spans    oteltrace.Tracer
	now      func() time.Time
	// complaint is the error about settings in the environment that could not be used.
	complaint error

	mutex sync.Mutex
	root  *span
	lanes map[spot]*lane
	// plan holds the planned upgrades. For two with the same destination, it holds the first one.
	plan map[destination]cluster.PlannedUpgrade
	// begun counts the spans that will be exported.
	begun int
	// last is the latest time of any event: no span ends before it begins.
	last   time.Time
	closed bool
}

// Start begins the trace of a run, below the span that TRACEPARENT names. It returns nil without an error if the
// environment does not ask for a trace, and nil with an error if it asks for one that cannot be made. Nothing is
// sent before the first span has ended. The caller must call [Tracer.Close].
func Start(ctx context.Context, of Run) (*Tracer, error) {
	if asked, err := wanted(); err != nil || !asked {
		return nil, err
	}

	// Close returns their errors. Standard error belongs to the plugin, and settings that cannot be parsed may
	// contain passwords.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
	otel.SetLogger(logr.Discard())

	hide := knownSecrets().hide

	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, errors.New(hide(err.Error()))
	}

	made := &Tracer{courier: newCourier(exporter, hide), now: of.Now, lanes: map[spot]*lane{}}

	described, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(name), semconv.ServiceVersion(of.Version)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		made.complaint = fmt.Errorf("%s could not be read in full: it has to be a list like key=value,key=value", envResource)
	}

	made.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(made.courier), sdktrace.WithResource(described))
	made.spans = made.provider.Tracer(name, oteltrace.WithInstrumentationVersion(of.Version), oteltrace.WithSchemaURL(semconv.SchemaURL))
	made.begin(of)

	return made, nil
}

// begin begins the root span.
func (t *Tracer) begin(of Run) {
	parent := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{
		"traceparent": setting(envParent), "tracestate": setting(envState),
	})

	mode := "direct"
	if of.Delegated {
		mode = "delegate"
	}

	attributes := []attribute.KeyValue{semconv.K8SClusterName(of.ClusterName), keyRun.String(of.ID), keyMode.String(mode)}
	attributes = append(attributes, versioned(keyTargetTalos, of.Target.Talos)...)
	attributes = append(attributes, versioned(keyTargetKubernetes, of.Target.Kubernetes)...)

	if of.ClusterID != "" {
		attributes = append(attributes, keyClusterID.String(of.ClusterID))
	}

	t.last = t.now()
	t.root = t.start(parent, "upgrade", t.last, attributes)
}

// start begins a span below the span of the context.
func (t *Tracer) start(parent context.Context, title string, at time.Time, attributes []attribute.KeyValue) *span {
	_, made := t.spans.Start(parent, title, oteltrace.WithTimestamp(at), oteltrace.WithAttributes(attributes...))
	if made.SpanContext().IsSampled() {
		t.begun++
	}

	return &span{Span: made}
}

// below begins a span below another one.
func (t *Tracer) below(parent *span, title string, at time.Time, attributes []attribute.KeyValue) *span {
	return t.start(oteltrace.ContextWithSpan(context.Background(), parent.Span), title, at, attributes)
}

// moment returns the time, or the latest time of any event if that is later.
func (t *Tracer) moment(at time.Time) time.Time {
	if at.After(t.last) {
		t.last = at
	}

	return t.last
}

// Close ends the trace with the outcome of the run. It returns once the collector has the spans or the context
// ends; without a deadline it waits for 15 seconds at most. The error says which part of the trace is missing and
// does not concern the run.
func (t *Tracer) Close(ctx context.Context, outcome Outcome) error {
	if !t.conclude(outcome) {
		return nil
	}

	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, closePatience)
		defer cancel()
	}

	// Without it the exporters would finish what they have begun, and retry.
	defer t.courier.give()
	defer context.AfterFunc(ctx, t.courier.give)()

	// Spans that do not arrive are counted.
	_ = t.provider.Shutdown(ctx)

	return errors.Join(t.courier.missing(t.begun), t.complaint)
}

// conclude ends all spans. It returns false if they were ended before.
func (t *Tracer) conclude(outcome Outcome) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if t.closed {
		return false
	}

	t.closed = true
	at := t.moment(t.now())

	t.cutOff(at)

	if outcome.Err == nil {
		t.root.SetStatus(codes.Ok, "")
	} else {
		t.root.SetStatus(codes.Error, shortened(outcome.Summary, textMost))
		t.root.SetAttributes(semconv.ErrorTypeKey.String(outcome.Type))
		t.root.AddEvent(semconv.ExceptionEventName, oteltrace.WithTimestamp(at), oteltrace.WithAttributes(
			semconv.ExceptionType(outcome.Type), semconv.ExceptionMessage(shortened(outcome.Err.Error(), failureMost))))
	}

	t.root.end(at)

	return true
}
