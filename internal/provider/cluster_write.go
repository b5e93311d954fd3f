// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// owner is the text in the lease that says who upgrades the cluster.
const owner = "terraform resource " + attrname.TypeName + "_cluster"

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

	claimant, diagnostics := connection.ClaimantIn(ctx, resp.Private)
	resp.Diagnostics.Append(diagnostics...)

	left := r.clusters.Await(ctx, model.Context.ValueString(), limit)

	observed, warnings, err := r.upgrade(ctx, model, claimant, left)
	resp.Diagnostics.Append(warnings...)

	if err != nil {
		resp.Diagnostics.Append(r.problem(err)...)

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

	claimant, diagnostics := connection.ClaimantIn(ctx, resp.Private)
	resp.Diagnostics.Append(diagnostics...)

	observed, warnings, err := r.upgrade(ctx, planned, claimant, limit)
	resp.Diagnostics.Append(warnings...)

	if err == nil {
		resp.Diagnostics.Append(planned.observe(observed)...)
		resp.Diagnostics.Append(planned.writeIdentity(ctx, resp.Identity)...)
		resp.Diagnostics.Append(resp.State.Set(ctx, planned)...)

		return
	}

	found := r.problem(err)
	resp.Diagnostics.Append(found...)

	if observed.Nodes != nil && len(found) > 0 && !errors.Is(err, say.ErrWrongCluster) {
		resp.Diagnostics.Append(prior.record(observed, stopped(prior, planned, observed, found[0].Summary(), err))...)
	}

	resp.Diagnostics.Append(prior.writeIdentity(ctx, resp.Identity)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, prior)...)
}

// errInvalid is the error of a request whose diagnostics say what is wrong with it.
var errInvalid = errors.New("invalid request")

// problem returns the diagnostic of an upgrade that ended with the error; none if its own diagnostics say it.
func (r *clusterResource) problem(err error) diag.Diagnostics {
	switch {
	case errors.Is(err, errInvalid):
		return nil
	case errors.Is(err, errReport):
		return diag.Diagnostics{undrawable(err)}
	default:
		return diag.Diagnostics{connection.Problem("upgrade the cluster", r.clusters.Access, err)}
	}
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
	case say.NeverBegan(err):
		return current
	case failure.Component != "":
		return current.failed(summary+".", managed)
	default:
		return current.failed(summary+".", afterTalos)
	}
}

// upgrade runs the engine for the claimant and publishes its progress. It returns the last observation, even with an
// error.
func (r *clusterResource) upgrade(ctx context.Context, model clusterModel, claimant string, limit time.Duration) (cluster.Observation, diag.Diagnostics, error) {
	reached, release, err := r.clusters.Connect(ctx, model.Context.ValueString())
	if err != nil {
		return cluster.Observation{}, nil, err
	}

	defer release()

	request, diagnostics := model.requestOf(ctx, r.clusters, reached.Objects)
	if diagnostics.HasError() {
		return cluster.Observation{}, diagnostics, errInvalid
	}

	request.ClusterID, request.Deadline = model.ID.ValueString(), limit

	r.clusters.Forget(model.Context.ValueString())

	// If the ID is unknown, the name is used: the lease in the cluster keeps two writers apart anyway.
	id, err := connection.ClusterID(ctx, reached)
	if err == nil {
		reached.Identify(id)
	}

	// A cluster with another ID than in state is not claimed: the engine refuses it.
	if wanted := request.ClusterID; wanted == "" || wanted == cmp.Or(id, wanted) {
		if err := r.clusters.Claims.Claim(cmp.Or(id, reached.Name), claimant); err != nil {
			return cluster.Observation{}, diagnostics, fmt.Errorf("%s is %w", reached.Name, err)
		}
	}

	to := model.publication()

	beside, err := reached.Operator(to)
	if err == nil && beside == nil && to.Delegated {
		_, why := reached.Kubernetes.UID(ctx)
		err = fmt.Errorf("there is no connection to the Kubernetes API, which holds %s: %w", to, cmp.Or(why, cluster.ErrUnreachable))
	}

	if err != nil {
		return cluster.Observation{}, diagnostics, err
	}

	known, end := r.clusters.Releases.Outlook(ctx, r.clusters.Settings.UserAgent())
	defer end()

	told := &diagnostic.Warnings{}
	options := r.clusters.EngineOptions(reached, beside)
	options.Run, options.Owner = cluster.RunPrefix+rand.Text(), owner

	drawn, err := r.draw(model, claimant, options.Run, reached.Name)
	if err != nil {
		return cluster.Observation{}, diagnostics, err
	}

	out := &publication.Observers{Report: drawn, Trace: publication.StartTrace(ctx, r.clusters.Settings.Version, id, options, request, to)}
	if !to.Delegated {
		out.Publisher, out.Events = reached.Publisher(id, to, known.Next), reached.Events(to)
	}

	options.Observers = append([]cluster.Observer{diagnostic.NewProgress(ctx), told}, out.All()...)
	options.Permitted = diagnostic.NewProgress(ctx).Permitted

	observed, err := carryOut(ctx, options, request)
	if observed.Nodes != nil {
		// The ID may have been unknown in the last observation.
		observed.ID = cmp.Or(observed.ID, id)
	}

	diagnostics.Append(told.Diagnostics(reached.Name)...)
	diagnostics.Append(out.Close(ctx, to, reached.Name, observed, err)...)

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

// errReport is wrapped if a report is wanted but cannot be written.
var errReport = errors.New("no place for the report")

// reportError is the reason why a report cannot be written. Its text is only the reason.
type reportError struct{ error }

// Is reports whether target is [errReport].
func (e reportError) Is(target error) bool { return target == errReport }

// Unwrap returns the reason.
func (e reportError) Unwrap() error { return e.error }

// undrawable returns the error of a report that cannot be written.
func undrawable(err error) diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(path.Root(attrname.ReportPath), "Unable to write the report", diagnostic.Sentence(cluster.Plain(err.Error()))+" Nothing was touched.\n\n"+
		"Let "+attrname.ReportPath+" name a file that can be written on the machine that runs this, one for each resource, or remove it; then run the command again.")
}

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
		return diag.Diagnostics{undrawable(reportError{err})}
	}

	if err := report.Probe(place); err != nil {
		return diag.Diagnostics{diag.NewAttributeWarningDiagnostic(path.Root(attrname.ReportPath), "Unable to write the report", diagnostic.Sentence(err.Error())+
			" An apply on this machine would be refused before it touches anything.\n\nLet "+attrname.ReportPath+" name a file that can be written where the apply runs, or remove it.")}
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
	if !r.clusters.Claims.ClaimFile(place, claimant) {
		return nil, reportError{fmt.Errorf("%s cannot be written: another %s_cluster resource writes its own report there", place, attrname.TypeName)}
	}

	if place, err = report.Check(path); err != nil {
		return nil, reportError{err}
	}

	return report.New(report.Options{Path: place, Cluster: name, Run: run, Version: r.clusters.Settings.Version}), nil
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
