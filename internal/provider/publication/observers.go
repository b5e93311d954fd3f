// SPDX-License-Identifier: MPL-2.0

package publication

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/trace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
)

// flushTimeout bounds how long the end of an upgrade waits for its last annotations. hurriedFlush does so after a
// cancel, when everything together has 15 seconds.
const (
	flushTimeout = 5 * time.Second
	hurriedFlush = 2 * time.Second
)

// Observers publish what an upgrade does. Each is nil if it is not used.
type Observers struct {
	Publisher *publish.Publisher
	Events    *publish.Events
	Report    *report.Report
	Trace     *Trace
}

// All returns the observers in use.
func (o *Observers) All() []cluster.Observer {
	var observers []cluster.Observer

	if o.Publisher != nil {
		observers = append(observers, o.Publisher)
	}

	if o.Events != nil {
		observers = append(observers, o.Events)
	}

	if o.Report != nil {
		observers = append(observers, o.Report)
	}

	return append(observers, o.Trace.observers()...)
}

// Close completes what was published about the named cluster, even after a cancel, and returns warnings about what
// failed. The observation and the error are those with which the run ended.
func (o *Observers) Close(ctx context.Context, to Publication, name string, observed cluster.Observation, ended error) diag.Diagnostics {
	limit := flushTimeout
	if ctx.Err() != nil {
		limit = hurriedFlush
	}

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	untraced := o.Trace.end(bounded, ended)
	undrawn := o.undrawn(bounded, EndingOf(observed, ended))

	var (
		published, told error
		notes           []string
	)

	if o.Publisher != nil {
		published, notes = o.Publisher.Close(bounded), o.Publisher.Notes()
	}

	if o.Events != nil {
		told = o.Events.Close(bounded)
	}

	diagnostics := UnpublishedWarning(published, told, to, name)
	diagnostics.Append(untraced(name)...)
	diagnostics.Append(undrawn(name)...)

	if len(notes) > 0 {
		diagnostics.AddWarning(diagnostic.About("The progress was overwritten by another writer", name),
			strings.Join(notes, "\n\n")+"\n\nThe upgrade itself does not depend on it.")
	}

	return diagnostics
}

// unpublishedRemedy returns what to do about an object that could not be written.
func unpublishedRemedy(err error) string {
	switch {
	case errors.Is(err, cluster.ErrDenied):
		return "Allow the credentials to get and patch it; the next apply writes all of it."
	case errors.Is(err, cluster.ErrNotFound):
		return "Create it, or correct " + attrname.PublishTo + "; the next apply writes all of it."
	default:
		return "Look at why its API does not take that; the next apply writes all of it."
	}
}

// untoldRemedy returns what to do about Events that could not be written.
func untoldRemedy(err error) string {
	if errors.Is(err, cluster.ErrDenied) {
		return "Allow the credentials to create and patch Events there."
	}

	return "Look at why its API does not take Events; those of this run are lost."
}

// UnpublishedWarning returns one warning for progress and Events that could not be written: often both have the same cause, such
// as a missing object.
func UnpublishedWarning(published, told error, to Publication, name string) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		sentences   []string
	)

	summary := "Unable to write Kubernetes Events"

	if published != nil {
		summary = "Unable to publish the progress"
		sentences = append(sentences, diagnostic.Sentence(published.Error())+" The upgrade status in "+to.String()+" may be out of date. "+unpublishedRemedy(published))
	}

	if told != nil {
		sentences = append(sentences, diagnostic.Sentence(told.Error())+" "+untoldRemedy(told))
	}

	if len(sentences) > 0 {
		diagnostics.AddWarning(diagnostic.About(summary, name), strings.Join(sentences, "\n\n")+"\n\nThe upgrade itself does not depend on it.")
	}

	return diagnostics
}

// undrawn starts to complete the report. The returned function waits until that is done, and returns a warning about
// the named cluster if it failed.
func (o *Observers) undrawn(ctx context.Context, ending report.Ending) func(name string) diag.Diagnostics {
	missing := make(chan error, 1)

	go func() {
		if o.Report == nil {
			missing <- nil

			return
		}

		missing <- o.Report.Close(ctx, ending)
	}()

	return func(name string) diag.Diagnostics {
		var diagnostics diag.Diagnostics

		if err := <-missing; err != nil {
			diagnostics.AddWarning(diagnostic.About("Unable to write the report", name),
				diagnostic.Sentence(err.Error())+" It may be out of date. Make room for it, or name another file with "+attrname.ReportPath+"; the next apply that has something to do draws its own.\n\nThe upgrade itself does not depend on it.")
		}

		return diagnostics
	}
}

// EndingOf returns how a run ended, for its report.
func EndingOf(observed cluster.Observation, err error) report.Ending {
	ending := report.Ending{Outcome: report.Completed, Nodes: observed.Nodes}
	if err == nil {
		return ending
	}

	ending.Outcome = drawnOutcome(err)

	if errors.Is(err, say.ErrWrongCluster) {
		// The nodes are those of another cluster.
		ending.Nodes = nil
	}

	var failure *say.Failure
	if !errors.As(err, &failure) {
		ending.Failure = &report.Failure{Summary: "Unable to upgrade the cluster", Seen: diagnostic.Sentence(err.Error())}

		return ending
	}

	ending.Failure = &report.Failure{
		Summary: failure.Summary, Nodes: failure.Nodes(), Seen: failure.Seen, Findings: failure.Findings,
		State: failure.State, Remedy: failure.Remedy,
	}

	for _, excerpt := range failure.Excerpts {
		ending.Failure.Excerpts = append(ending.Failure.Excerpts, report.Excerpt(excerpt))
	}

	return ending
}

// drawnOutcome returns the outcome that the report of a run with that error shows.
func drawnOutcome(err error) report.Outcome {
	var failure *say.Failure

	switch {
	case errors.Is(err, say.ErrLeaseLost):
		return report.Lost
	case errors.As(err, &failure) && len(failure.Nodes()) > 0:
		// Failed nodes take precedence over whatever else happened.
		return report.Failed
	case errors.Is(err, context.Canceled), errors.Is(err, say.ErrDeadline), errors.Is(err, say.ErrWindow):
		return report.Stopped
	case say.NeverBegan(err):
		return report.Refused
	case errors.Is(err, say.ErrSuspended):
		return report.Stopped
	default:
		return report.Failed
	}
}

// Trace is the trace of one run; empty if the environment requests none.
type Trace struct {
	tracer *trace.Tracer
	// err is why there is no trace although the environment requests one.
	err error
}

// StartTrace starts the trace of the run with the options and the request, in the cluster with the ID.
func StartTrace(ctx context.Context, version, id string, options engine.Options, request engine.Request, to Publication) *Trace {
	clock := options.Clock
	if clock == nil {
		clock = engine.RealClock()
	}

	made := &Trace{}
	made.tracer, made.err = trace.Start(ctx, trace.Run{
		ID: options.Run, ClusterName: options.ClusterName, ClusterID: id, Target: request.Target,
		Delegated: to.Delegated, Version: version, Now: clock.Now,
	})

	return made
}

// observers returns the tracer, if there is one.
func (r *Trace) observers() []cluster.Observer {
	if r == nil || r.tracer == nil {
		return nil
	}

	return []cluster.Observer{r.tracer}
}

// end starts to complete the trace of a run that ended with the error, which may be nil. The returned function waits
// until that is done, and returns a warning about the named cluster if something is missing.
func (r *Trace) end(ctx context.Context, ended error) func(name string) diag.Diagnostics {
	if r == nil {
		return func(string) diag.Diagnostics { return nil }
	}

	missing := make(chan error, 1)

	go func() {
		if r.tracer == nil {
			missing <- nil

			return
		}

		missing <- r.tracer.Close(ctx, outcomeOf(ended))
	}()

	return func(name string) diag.Diagnostics {
		var diagnostics diag.Diagnostics

		if err := errors.Join(<-missing, r.err); err != nil {
			diagnostics.AddWarning(diagnostic.About("Unable to trace the upgrade", name), diagnostic.Sentence(err.Error())+
				" Check the OTEL_* variables of this environment, and that their collector is up and takes traces; unset them to trace nothing.\n\nThe upgrade itself does not depend on it.")
		}

		return diagnostics
	}
}

// outcomeOf returns how a run ended, for its trace.
func outcomeOf(ended error) trace.Outcome {
	if ended == nil {
		return trace.Outcome{}
	}

	made := trace.Outcome{Err: ended, Summary: ended.Error(), Type: "other"}

	var failure *say.Failure
	if errors.As(ended, &failure) {
		made.Summary = failure.Summary
	}

	for _, kind := range failureKinds() {
		if errors.Is(ended, kind.err) {
			made.Type = kind.name

			break
		}
	}

	return made
}

// failureKind is a reason why a run stopped, with a stable name.
type failureKind struct {
	err  error
	name string
}

// failureKinds returns the reasons, the more specific ones first.
func failureKinds() []failureKind {
	return []failureKind{
		{say.ErrWrongCluster, "wrong-cluster"},
		{say.ErrLeaseLost, "lease-lost"},
		{say.ErrLocked, "locked"},
		{say.ErrBlocked, "blocked"},
		{say.ErrRolledBack, "rolled-back"},
		{say.ErrFallback, "fallback"},
		{say.ErrUnhealthy, "unhealthy"},
		{say.ErrInstaller, "installer"},
		{say.ErrNeverReturned, "never-returned"},
		{say.ErrDeparted, "departed"},
		{say.ErrUnconfigured, "unconfigured"},
		{say.ErrRenamed, "renamed"},
		{say.ErrPlatform, "platform"},
		{say.ErrExtensions, "extensions"},
		{say.ErrUncordoned, "uncordoned"},
		{say.ErrDrain, "drain"},
		{say.ErrUnsettled, "unsettled"},
		{say.ErrForeignWriter, "foreign-writer"},
		{say.ErrManifests, "manifests"},
		{say.ErrGate, "gate"},
		{say.ErrSuspended, "suspended"},
		{say.ErrWindow, "window"},
		{say.ErrSnapshot, "snapshot"},
		{say.ErrOperator, "operator"},
		{say.ErrDeadline, "deadline"},
		{say.ErrGuard, "guard"},
		{context.Canceled, "cancelled"},
		{cluster.ErrCredentials, "credentials"},
		{cluster.ErrDenied, "denied"},
		{cluster.ErrUnreachable, "unreachable"},
	}
}
