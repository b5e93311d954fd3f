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

// name is that of the service where the environment gives no other, and of the
// instrumentation.
const name = "terraform-provider-talosupgrade"

// closePatience bounds [Tracer.Close] for callers without a deadline.
const closePatience = 15 * time.Second

// Run is what the root of a trace says of a run.
type Run struct {
	// ID is that of the run, as in the lease.
	ID string
	// ClusterName is what people call the cluster. ClusterID may be empty.
	ClusterName, ClusterID string
	Target                 cluster.Target
	// Delegated tells that an operator acts.
	Delegated bool
	// Version is that of the provider.
	Version string
	// Now is the clock of the engine, from which the times of the events come.
	Now func() time.Time
}

// Outcome is how a run ended.
type Outcome struct {
	// Err is nil where all went well.
	Err error
	// Summary is the error in one line, Type its kind in a word.
	Summary, Type string
}

// Tracer makes the spans of one run.
type Tracer struct {
	provider *sdktrace.TracerProvider
	courier  *courier
	spans    oteltrace.Tracer
	now      func() time.Time
	// complaint is what of the environment could not be made use of.
	complaint error

	mutex sync.Mutex
	root  *span
	lanes map[spot]*lane
	// plan is where each upgrade was to come from; what is planned twice is there as it
	// is planned first.
	plan map[destination]cluster.PlannedUpgrade
	// begun counts the spans that are to be exported.
	begun int
	// last is the latest moment that was heard of: no span ends before it begins.
	last   time.Time
	closed bool
}

// Start begins the trace of a run, below the span that TRACEPARENT names. It is nil
// without an error where the environment does not ask for one, and nil with an error
// where it asks for what cannot be had. Nobody is contacted before the first span
// has ended. [Tracer.Close] must be called in the end.
func Start(ctx context.Context, of Run) (*Tracer, error) {
	if asked, err := wanted(); err != nil || !asked {
		return nil, err
	}

	// What they have to say is in the error of Close; standard error belongs to the
	// plugin, and settings that cannot be read may hold passwords.
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

// begin begins the root.
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

// start begins a span below the one of the context.
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

// moment is the time, but not before what was heard of already.
func (t *Tracer) moment(at time.Time) time.Time {
	if at.After(t.last) {
		t.last = at
	}

	return t.last
}

// Close ends the trace of a run that ended so, and returns when its spans are with
// the collector, or when the context ends; that is after 15 seconds where it has no
// deadline. The error says what of the trace is missing; it does not concern the run.
func (t *Tracer) Close(ctx context.Context, outcome Outcome) error {
	if !t.conclude(outcome) {
		return nil
	}

	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, closePatience)
		defer cancel()
	}

	// The exporters would finish what they have begun, and try again.
	defer t.courier.give()
	defer context.AfterFunc(ctx, t.courier.give)()

	// What does not arrive is counted.
	_ = t.provider.Shutdown(ctx)

	return errors.Join(t.courier.missing(t.begun), t.complaint)
}

// conclude ends all spans. It is false where that was done before.
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
