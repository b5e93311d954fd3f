// SPDX-License-Identifier: MPL-2.0

package trace_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
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

	var failure *engine.Failure
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
