// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/trace"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// owner is the text in the lease that says who upgrades the cluster.
const owner = "terraform resource " + typeName + "_cluster"

// Create implements [resource.Resource]. If the upgrade stops, the state stays null: a stored resource would be
// tainted, and the next apply would replace it.
func (r *clusterResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.Plan.Get(ctx, &model)...)

	limit, diagnostics := model.Timeouts.Create(ctx, defaultWriteTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	claimant, diagnostics := claimantIn(ctx, resp.Private)
	resp.Diagnostics.Append(diagnostics...)

	left := r.clusters.await(ctx, model.Context.ValueString(), limit)

	observed, warnings, err := r.upgrade(ctx, model, claimant, left)
	resp.Diagnostics.Append(warnings...)

	if err != nil {
		resp.Diagnostics.Append(problem("upgrade the cluster", r.clusters.access, err))

		return
	}

	model.ID, model.Nodes, model.Snapshot = types.StringNull(), types.MapNull(model.Nodes.ElementType(ctx)), types.ObjectNull(snapshotTypes())
	resp.Diagnostics.Append(model.observe(observed)...)
	resp.Diagnostics.Append(model.writeIdentity(ctx, resp.Identity)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// Update implements [resource.Resource]. If the upgrade stops, the state keeps its versions, so that the next plan
// still sees what is left to do, and stores what was observed.
func (r *clusterResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var planned, prior clusterModel

	resp.Diagnostics.Append(req.Plan.Get(ctx, &planned)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &prior)...)

	limit, diagnostics := planned.Timeouts.Update(ctx, defaultWriteTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	planned.ID, planned.Nodes, planned.Snapshot = prior.ID, prior.Nodes, prior.Snapshot

	claimant, diagnostics := claimantIn(ctx, resp.Private)
	resp.Diagnostics.Append(diagnostics...)

	observed, warnings, err := r.upgrade(ctx, planned, claimant, limit)
	resp.Diagnostics.Append(warnings...)

	if err == nil {
		resp.Diagnostics.Append(planned.observe(observed)...)
		resp.Diagnostics.Append(planned.writeIdentity(ctx, resp.Identity)...)
		resp.Diagnostics.Append(resp.State.Set(ctx, planned)...)

		return
	}

	found := problem("upgrade the cluster", r.clusters.access, err)
	resp.Diagnostics.Append(found)

	if observed.Nodes != nil && !errors.Is(err, say.ErrWrongCluster) {
		resp.Diagnostics.Append(prior.record(observed, stopped(prior, planned, observed, found.Summary(), err))...)
	}

	resp.Diagnostics.Append(prior.writeIdentity(ctx, resp.Identity)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, prior)...)
}

// stopped returns the status after an upgrade that did not complete. If it stopped before anything was changed, or
// requested of an operator, that is the status of the observation.
func stopped(prior, planned clusterModel, observed cluster.Observation, summary string, err error) status {
	current, reached := statusOf(observed, prior), statusOf(observed, planned)
	managed := reached.Kubernetes.Status != protocol.StatusIdle
	afterTalos := managed && reached.Talos.arrived()

	failure := &say.Failure{}
	errors.As(err, &failure)

	var delegated *delegationError

	switch {
	case errors.As(err, &delegated) && delegated.asked == "":
		return current
	case delegated != nil:
		return current.failed(summary+".", delegated.asked == version.Kubernetes || afterTalos)
	case neverBegan(err):
		return current
	case failure.Component != "":
		return current.failed(summary+".", managed)
	default:
		return current.failed(summary+".", afterTalos)
	}
}

// neverBegan reports whether the upgrade stopped before anything was disrupted.
func neverBegan(err error) bool {
	return errors.Is(err, say.ErrBlocked) || errors.Is(err, say.ErrLocked) || errors.Is(err, say.ErrNotBegun)
}

// upgrade runs the engine for the claimant and publishes its progress. It returns the last observation, even with an
// error.
func (r *clusterResource) upgrade(ctx context.Context, model clusterModel, claimant string, limit time.Duration) (cluster.Observation, diag.Diagnostics, error) {
	reached, release, err := r.clusters.connect(ctx, model.Context.ValueString())
	if err != nil {
		return cluster.Observation{}, nil, err
	}

	defer release()

	request, diagnostics := r.clusters.request(ctx, model, reached.objects)
	if diagnostics.HasError() {
		return cluster.Observation{}, diagnostics, errUnusable
	}

	request.ClusterID, request.Deadline = model.ID.ValueString(), limit

	r.clusters.remember(model.Context.ValueString(), nil)

	// If the ID is unknown, the name is used: the lease in the cluster keeps two writers apart anyway.
	id, err := clusterID(ctx, reached)
	if err == nil {
		reached.identify(id)
	}

	// A cluster with another ID than in state is not claimed: the engine refuses it.
	if wanted := request.ClusterID; wanted == "" || wanted == cmp.Or(id, wanted) {
		if err := r.clusters.claims.claim(cmp.Or(id, reached.name), claimant); err != nil {
			return cluster.Observation{}, diagnostics, fmt.Errorf("%s is %w", reached.name, err)
		}
	}

	to := model.publication()

	beside, err := reached.operator(to)
	if err == nil && beside == nil && to.delegated {
		_, why := reached.kubernetes.UID(ctx)
		err = fmt.Errorf("there is no connection to the Kubernetes API, which holds %s: %w", to, cmp.Or(why, cluster.ErrUnreachable))
	}

	if err != nil {
		return cluster.Observation{}, diagnostics, err
	}

	known, end := r.clusters.releases.outlook(ctx, r.clusters.settings.userAgent())
	defer end()

	told := &diagnostic.Warnings{}
	options := r.clusters.engine(reached, beside)
	options.Run, options.Owner = cluster.RunPrefix+rand.Text(), owner

	drawn, err := r.draw(model, claimant, options.Run, reached.name)
	if err != nil {
		return cluster.Observation{}, diagnostics, err
	}

	out := &runObservers{report: drawn, trace: r.clusters.trace(ctx, id, options, request, to)}
	if !to.delegated {
		out.publisher, out.events = reached.publisher(id, to, known.next), reached.events(to)
	}

	options.Observers = append([]cluster.Observer{diagnostic.NewProgress(ctx), told}, out.observers()...)
	options.Permitted = diagnostic.NewProgress(ctx).Permitted

	observed, err := carryOut(ctx, options, request)
	if observed.Nodes != nil {
		// The ID may have been unknown in the last observation.
		observed.ID = cmp.Or(observed.ID, id)
	}

	diagnostics.Append(told.Diagnostics(reached.name)...)
	diagnostics.Append(out.close(ctx, to, reached.name, observed, err)...)

	return observed, diagnostics, err
}

// carryOut upgrades the cluster through the engine, or through the operator.
func carryOut(ctx context.Context, options engine.Options, request engine.Request) (cluster.Observation, error) {
	if !request.Delegated {
		return engine.New(options).Upgrade(ctx, request)
	}

	asked := &requestRecorder{Operator: options.Operator}
	options.Operator = asked

	observed, err := engine.New(options).Delegate(ctx, request)

	return observed, asked.failed(err)
}

// flushTimeout bounds how long the end of an upgrade waits for its last annotations. hurriedFlush does so after a
// cancel, when everything together has 15 seconds.
const (
	flushTimeout = 5 * time.Second
	hurriedFlush = 2 * time.Second
)

// runObservers publish what an upgrade does. Each is nil if it is not used.
type runObservers struct {
	publisher *publish.Publisher
	events    *publish.Events
	report    *report.Report
	trace     *runTrace
}

// observers returns the observers in use.
func (o *runObservers) observers() []cluster.Observer {
	var observers []cluster.Observer

	if o.publisher != nil {
		observers = append(observers, o.publisher)
	}

	if o.events != nil {
		observers = append(observers, o.events)
	}

	if o.report != nil {
		observers = append(observers, o.report)
	}

	return append(observers, o.trace.observers()...)
}

// close completes what was published about the named cluster, even after a cancel, and returns warnings about what
// failed. The observation and the error are those with which the run ended.
func (o *runObservers) close(ctx context.Context, to publication, name string, observed cluster.Observation, ended error) diag.Diagnostics {
	limit := flushTimeout
	if ctx.Err() != nil {
		limit = hurriedFlush
	}

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()

	untraced := o.trace.end(bounded, ended)
	undrawn := o.undrawn(bounded, endingOf(observed, ended))

	var (
		published, told error
		notes           []string
	)

	if o.publisher != nil {
		published, notes = o.publisher.Close(bounded), o.publisher.Notes()
	}

	if o.events != nil {
		told = o.events.Close(bounded)
	}

	diagnostics := unsaid(published, told, to, name)
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
		return "Create it, or correct " + attrPublishTo + "; the next apply writes all of it."
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

// unsaid returns one warning for progress and Events that could not be written: often both have the same cause, such
// as a missing object.
func unsaid(published, told error, to publication, name string) diag.Diagnostics {
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
func (o *runObservers) undrawn(ctx context.Context, ending report.Ending) func(name string) diag.Diagnostics {
	missing := make(chan error, 1)

	go func() {
		if o.report == nil {
			missing <- nil

			return
		}

		missing <- o.report.Close(ctx, ending)
	}()

	return func(name string) diag.Diagnostics {
		var diagnostics diag.Diagnostics

		if err := <-missing; err != nil {
			diagnostics.AddWarning(diagnostic.About("Unable to write the report", name),
				diagnostic.Sentence(err.Error())+" It may be out of date. Make room for it, or name another file with "+attrReportPath+"; the next apply that has something to do draws its own.\n\nThe upgrade itself does not depend on it.")
		}

		return diagnostics
	}
}

// errReport is wrapped if a report is wanted but cannot be written.
var errReport = errors.New("no place for the report")

// reportError is the reason why a report cannot be written. Its text is only the reason.
type reportError struct{ error }

// Is reports whether target is [errReport].
func (e reportError) Is(target error) bool { return target == errReport }

// Unwrap returns the reason.
func (e reportError) Unwrap() error { return e.error }

// unwritable returns the diagnostics of a report that could not be written. An invalid path is an error. A file that
// cannot be written now is only a warning: until the apply, the directory may be created, and the apply may run on
// another machine.
func (r *clusterResource) unwritable(planned clusterModel) diag.Diagnostics {
	file, given := attribute.PlainText(planned.ReportPath)
	if !given {
		return nil
	}

	place, err := report.Find(file)
	if err != nil {
		return diag.Diagnostics{problem("plan the upgrade", r.clusters.access, reportError{err})}
	}

	if err := report.Probe(place); err != nil {
		return diag.Diagnostics{diag.NewAttributeWarningDiagnostic(path.Root(attrReportPath), "Unable to write the report", diagnostic.Sentence(err.Error())+
			" An apply on this machine would be refused before it touches anything.\n\nLet "+attrReportPath+" name a file that can be written where the apply runs, or remove it.")}
	}

	return nil
}

// draw creates the report of the claimant's run; nil if the model wants none. The error is an [errReport].
func (r *clusterResource) draw(model clusterModel, claimant, run, name string) (*report.Report, error) {
	path := model.ReportPath.ValueString()
	if path == "" {
		return nil, nil //nolint:nilnil // none is wanted
	}

	place, err := report.Find(path)
	if err != nil {
		return nil, reportError{err}
	}

	// The file is claimed before anything is written beside it.
	if !r.clusters.claims.write(place, claimant) {
		return nil, reportError{fmt.Errorf("%s cannot be written: another %s_cluster resource writes its own report there", place, typeName)}
	}

	if place, err = report.Check(path); err != nil {
		return nil, reportError{err}
	}

	return report.New(report.Options{Path: place, Cluster: name, Run: run, Version: r.clusters.settings.version}), nil
}

// endingOf returns how a run ended, for its report.
func endingOf(observed cluster.Observation, err error) report.Ending {
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
	case neverBegan(err):
		return report.Refused
	case errors.Is(err, say.ErrSuspended):
		return report.Stopped
	default:
		return report.Failed
	}
}

// runTrace is the trace of one run; empty if the environment requests none.
type runTrace struct {
	tracer *trace.Tracer
	// err is why there is no trace although the environment requests one.
	err error
}

// trace starts the trace of the run with the options and the request, in the cluster with the ID.
func (c *clusters) trace(ctx context.Context, id string, options engine.Options, request engine.Request, to publication) *runTrace {
	clock := options.Clock
	if clock == nil {
		clock = engine.RealClock()
	}

	made := &runTrace{}
	made.tracer, made.err = trace.Start(ctx, trace.Run{
		ID: options.Run, ClusterName: options.ClusterName, ClusterID: id, Target: request.Target,
		Delegated: to.delegated, Version: c.settings.version, Now: clock.Now,
	})

	return made
}

// observers returns the tracer, if there is one.
func (r *runTrace) observers() []cluster.Observer {
	if r == nil || r.tracer == nil {
		return nil
	}

	return []cluster.Observer{r.tracer}
}

// end starts to complete the trace of a run that ended with the error, which may be nil. The returned function waits
// until that is done, and returns a warning about the named cluster if something is missing.
func (r *runTrace) end(ctx context.Context, ended error) func(name string) diag.Diagnostics {
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

// requestRecorder is an operator that records its last request.
type requestRecorder struct {
	cluster.Operator

	// last is the product of the last request; empty if there was none.
	last version.Product
}

// Ask implements [cluster.Operator]. A request that fails is recorded as well, because it may have taken effect.
func (p *requestRecorder) Ask(ctx context.Context, product version.Product, to version.Version) error {
	p.last = product

	return p.Operator.Ask(ctx, product, to)
}

// failed wraps the error of an upgrade through the operator; nil stays nil.
func (p *requestRecorder) failed(err error) error {
	if err == nil {
		return nil
	}

	return &delegationError{error: err, asked: p.last}
}

// delegationError is why an upgrade through an operator ended.
type delegationError struct {
	error

	// asked is the product of the last request to the operator; empty if there was none.
	asked version.Product
}

// Unwrap returns the error of the engine.
func (e *delegationError) Unwrap() error { return e.error }
