// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/roll"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// ModifyPlan implements [resource.ResourceWithModifyPlan]. It runs at plan and again at apply, and the cluster may
// change in between, so it plans only unknown values and diagnostics.
func (r *clusterResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		var gone clusterModel

		resp.Diagnostics.Append(req.State.Get(ctx, &gone)...)
		resp.Diagnostics.AddWarning(diagnostic.About("Destroying changes nothing on the nodes", r.clusters.DisplayName(gone.Context, gone.ID)),
			"The nodes keep the versions they run. Only the objects of this provider are removed from the cluster ("+leftovers+"); an unfinished journal is kept."+
				r.clusters.Kept(gone.publication()))

		return
	}

	if r.clusters == nil {
		return
	}

	var planned clusterModel

	resp.Diagnostics.Append(req.Plan.Get(ctx, &planned)...)

	var prior *clusterModel
	if !req.State.Raw.IsNull() {
		prior = &clusterModel{}
		resp.Diagnostics.Append(req.State.Get(ctx, prior)...)
	}

	claimant, diagnostics := connection.ClaimantOf(ctx, req.Private)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	work, diagnostics := r.preview(ctx, claimant, planned, prior)
	resp.Diagnostics.Append(diagnostics...)

	switch {
	case prior == nil:
	case work || !planned.sameAs(*prior):
		planned.Status, planned.Nodes = types.ObjectUnknown(statusTypes()), types.MapUnknown(types.ObjectType{AttrTypes: nodeTypes()})
		planned.Snapshot = types.ObjectUnknown(snapshotTypes())

		// The cluster may report its ID this time.
		if planned.ID.IsNull() {
			planned.ID = types.StringUnknown()
		}

		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	case planned.Nodes.IsUnknown():
		// The framework made the computed values unknown because a version was spelled differently, but nothing
		// changes.
		planned.Status, planned.Nodes, planned.Snapshot = prior.Status, prior.Nodes, prior.Snapshot
		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	}
}

// preview describes what an apply would do. It returns whether there is anything to do or to find out: an apply
// skips a resource whose plan changes nothing. claimant is the name of the resource among claims; empty if it has none.
// prior is nil for a resource that does not exist yet.
func (r *clusterResource) preview(ctx context.Context, claimant string, planned clusterModel, prior *clusterModel) (bool, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	if access, undecided := r.clusters.Undecided(ctx); undecided {
		diagnostics.Append(diagnostic.AsWarning(connection.Problem("look at the cluster", access, connection.ErrCredentialsUnknown),
			diagnostic.About("Looked at during apply", r.clusters.DisplayName(planned.Context, planned.ID)), "What the upgrade does is not known before that."))

		return true, diagnostics
	}

	if !planned.known(ctx) {
		return false, diagnostics
	}

	request, more := planned.requestOf(ctx, r.clusters, nil)
	diagnostics.Append(more...)

	limit, more := planned.Timeouts.Read(ctx, defaultReadTimeout)
	diagnostics.Append(more...)

	if diagnostics.HasError() {
		return false, diagnostics
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	seen, err := r.clusters.Recent(bounded, planned.Context.ValueString())
	if err != nil {
		diagnostics.Append(unplannable(r.clusters.Access, err, r.clusters.DisplayName(planned.Context, planned.ID)))

		return true, diagnostics
	}

	if prior != nil && seen.ID != "" && prior.ID.ValueString() != "" && prior.ID.ValueString() != seen.ID {
		diagnostics.Append(connection.WrongClusterProblem(prior.ID.ValueString(), seen.ID, seen.Name))

		return false, diagnostics
	}

	made := plan.Make(seen.Observation, request.Target, request.Policy)
	examined := examine(bounded, r.clusters, planned, seen, made)
	work := len(made.Steps) > 0

	var object objectView

	absent := prior.unseenIn(seen.Observation)
	if len(absent) > 0 {
		examined.Findings = append(examined.Findings, unseenFinding(absent, seen.Observation))
	}

	examined.Findings = append(examined.Findings, r.clusters.Claims.RecordPlan(seen.ID, claimant, seen.Name, request.Target, work)...)

	if !work {
		object = viewObject(bounded, r.clusters, planned, prior, request.Target)
	}

	// An apply without steps is refused, too, if checks find something.
	applies := work || prior == nil || !planned.sameAs(*prior) || len(absent)+len(object.left) > 0
	if applies {
		diagnostics.Append(r.unwritable(planned)...)
	}

	diagnostics.Append(diagnostic.OfFindings(examined.Findings, work, applies, seen.Name, seen.Nodes)...)
	// An object that cannot be read refuses no apply.
	diagnostics.Append(diagnostic.OfFindings(object.findings, work, false, seen.Name, seen.Nodes)...)

	if diagnostics.HasError() {
		return work, diagnostics
	}

	if work {
		diagnostics.Append(publication.DelegatedWarning(roll.Warning(made, seen.Name, examined.Manifests, planned.unsynced()), planned.publication()))
		diagnostics.Append(planned.limitWarnings(ctx, seen, made.Estimate(), prior == nil)...)
	}

	if len(object.left) > 0 {
		diagnostics.Append(publication.LeftWarning(object.left, seen.Name))
	}

	return work || len(object.left) > 0 || len(absent) > 0, diagnostics
}

// unseenIn is [unseenNodes] of the nodes in the model, which is nil for a resource that does not exist yet.
func (m *clusterModel) unseenIn(observed cluster.Observation) []string {
	if m == nil {
		return nil
	}

	return unseenNodes(observed, m.Nodes)
}

// unplannable returns the diagnostic of a plan that could not observe the cluster: a warning if that may be resolved
// before the apply. name is the display name of the cluster.
func unplannable(access connection.Credentials, err error, name string) diag.Diagnostic {
	found := connection.Problem("plan the upgrade", access, err)

	if !connection.WaitingHelps(err) {
		return found
	}

	return diagnostic.AsWarning(found, diagnostic.About(connection.SummaryUnobserved, name), "The apply finds out whether anything has to be upgraded.")
}

// examine makes the checks of a plan and changes nothing. If the plan has nothing to do, or is refused whatever the
// state of the cluster, only its findings are returned.
func examine(ctx context.Context, c *connection.Clusters, planned clusterModel, seen connection.Observation, made plan.Plan) engine.Examination {
	refused := slices.ContainsFunc(made.Findings, func(finding cluster.Finding) bool { return finding.Severity == cluster.Permanent })

	if len(made.Steps) == 0 || refused {
		return engine.Examination{Findings: made.Findings}
	}

	reached, release, err := c.Connect(ctx, planned.Context.ValueString())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), cluster.Finding{
			Check: cluster.CheckTalosAPI, Severity: cluster.Observed, Err: err, Unknown: true,
			Found:  fmt.Sprintf("the cluster could not be asked what stands in the way: %v", err),
			Remedy: cmp.Or(connection.Remedy(err), "Run the plan again; an apply asks before it touches anything."),
		})}
	}

	defer release()

	// Errors in the request were reported before the cluster was asked.
	request, _ := planned.requestOf(ctx, c, reached.Objects)

	beside, err := reached.Operator(planned.publication())
	if err != nil {
		return engine.Examination{Findings: append(slices.Clip(made.Findings), publication.UnusableManagementFinding(planned.publication(), err))}
	}

	return engine.New(c.EngineOptions(reached, beside)).Preflight(ctx, seen.Observation, made, request, engine.Planning)
}

// unchangedTimeout bounds reading an object that was named before. A plan that does not change it waits no longer
// for a management cluster that does not answer.
const unchangedTimeout = 10 * time.Second

// objectView is what a plan without an upgrade reports about the object to which progress is published.
type objectView struct {
	// findings are what keeps an apply from publishing to the object.
	findings []cluster.Finding
	// left is what an earlier apply left on the object, and the next one removes.
	left []string
}

// viewObject reads the object of the model. If the object was named before, failing to read it is not reported.
func viewObject(ctx context.Context, c *connection.Clusters, planned clusterModel, prior *clusterModel, target cluster.Target) objectView {
	of := planned.publication()
	if of.To == nil {
		return objectView{}
	}

	unchanged := prior != nil && prior.PublishTo.Equal(planned.PublishTo)
	if unchanged {
		var cancel context.CancelFunc

		ctx, cancel = context.WithTimeout(ctx, unchangedTimeout)
		defer cancel()
	}

	reached, release, err := c.Connect(ctx, planned.Context.ValueString())
	if err != nil {
		return objectView{} // The observation has reported it already.
	}

	defer release()

	var report cluster.OperatorReport

	beside, err := reached.Operator(of)

	switch {
	case err != nil && unchanged, err == nil && beside == nil:
		return objectView{}
	case err != nil:
		return objectView{findings: []cluster.Finding{publication.UnusableManagementFinding(of, err)}}
	}

	report, err = beside.Report(ctx)

	switch {
	case err == nil:
		return objectView{left: of.Left(report, target)}
	case unchanged:
		return objectView{}
	default:
		return objectView{findings: []cluster.Finding{publication.UnreadableObjectFinding(of, err)}}
	}
}

// unsynced says why this provider does not sync the bootstrap manifests at the end of a roll; empty if it does, or
// if an operator upgrades the cluster.
func (m clusterModel) unsynced() string {
	sync := path.Root(attrname.Kubernetes).AtName(attrname.Manifests).AtName(attrname.Sync).String()

	switch {
	case m.publication().Delegated || m.syncs():
		return ""
	case m.KubernetesVersion.IsNull():
		return "The bootstrap manifests stay as they are, because " + attrname.KubernetesVersion + " is unset; " + sync + " = true brings them up to date."
	default:
		return "The bootstrap manifests stay as they are, because " + sync + " is false."
	}
}

// limitWarnings warns of a roll that probably takes longer than its timeout, or than the client certificate is
// valid. first is true if the resource does not exist yet.
func (m clusterModel) limitWarnings(ctx context.Context, seen connection.Observation, estimate time.Duration, first bool) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if estimate <= 0 {
		return diagnostics
	}

	if known(ctx, m.Timeouts) {
		name, limit, more := m.writeLimit(ctx, first)
		diagnostics.Append(more...)

		if estimate > limit {
			diagnostics.AddAttributeWarning(path.Root(attrname.Timeouts), diagnostic.About("The upgrade may not fit into its limit", seen.Name),
				fmt.Sprintf("The upgrade takes %s, and timeouts.%s is %s. When the limit is reached, nodes in progress are finished and the run stops; "+
					"the next apply continues.\n\nRaise timeouts.%s to have it done in one apply.", roll.EstimateText(estimate), name, readable.Duration(limit), name))
		}
	}

	if !seen.Expires.IsZero() && seen.Taken.Add(estimate).After(seen.Expires) {
		diagnostics.AddWarning(diagnostic.About("The client certificate may expire during the upgrade", seen.Name),
			fmt.Sprintf("The client certificate of %s expires on %s, and the upgrade takes %s. A run whose certificate expires stops in the middle of it.\n\n"+
				"Renew the certificate before the apply (talosctl config new, or a refresh of the data source that it comes from).",
				seen.Name, seen.Expires.UTC().Format(time.RFC3339), roll.EstimateText(estimate)))
	}

	return diagnostics
}

// writeLimit returns the timeout of an apply, with the name of the attribute.
func (m clusterModel) writeLimit(ctx context.Context, first bool) (string, time.Duration, diag.Diagnostics) {
	if first {
		limit, diagnostics := m.Timeouts.Create(ctx, defaultWriteTimeout)

		return "create", limit, diagnostics
	}

	limit, diagnostics := m.Timeouts.Update(ctx, defaultWriteTimeout)

	return "update", limit, diagnostics
}
