// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// ModifyPlan implements [resource.ResourceWithModifyPlan]. It runs at plan and
// again at apply, while the cluster moves on in between, so it plans nothing
// but unknown values and diagnostics.
func (r *clusterResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		var gone clusterModel

		resp.Diagnostics.Append(req.State.Get(ctx, &gone)...)
		resp.Diagnostics.AddWarning(about("Destroying changes nothing on the nodes", r.clusters.called(gone)),
			"The nodes keep the versions they run. Only the objects of this provider are removed from the cluster ("+leftovers+"); an unfinished journal is kept."+
				r.clusters.kept(gone.publication()))

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

	if resp.Diagnostics.HasError() {
		return
	}

	work, diagnostics := r.preview(ctx, planned, prior)
	resp.Diagnostics.Append(diagnostics...)

	switch {
	case prior == nil:
	case work || !planned.sameAs(*prior):
		planned.Status, planned.Nodes = types.ObjectUnknown(statusTypes()), types.MapUnknown(types.ObjectType{AttrTypes: nodeTypes()})
		planned.Snapshot = types.ObjectUnknown(snapshotTypes())
		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	default:
		// The framework took the computed values for unknown because a version
		// was spelled differently; nothing changes after all.
		planned.Status, planned.Nodes, planned.Snapshot = prior.Status, prior.Nodes, prior.Snapshot
		resp.Diagnostics.Append(resp.Plan.Set(ctx, planned)...)
	}
}

// preview says what an apply would do, and whether it would do anything at all,
// or at least has to look: nothing is applied to a resource whose plan changes
// nothing. Prior is nil for a resource that does not exist yet.
func (r *clusterResource) preview(ctx context.Context, planned clusterModel, prior *clusterModel) (bool, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	if access, undecided := r.clusters.undecided(); undecided {
		diagnostics.Append(warning(problem("look at the cluster", access, errUnknown),
			about("Looked at during apply", r.clusters.called(planned)), "What the upgrade does is not known before that."))

		return true, diagnostics
	}

	if !planned.known(ctx) {
		return false, diagnostics
	}

	request, more := planned.request(ctx, r.clusters.releases.imageFactory(), nil)
	diagnostics.Append(more...)

	limit, more := planned.Timeouts.Read(ctx, defaultReadTimeout)
	diagnostics.Append(more...)

	if diagnostics.HasError() {
		return false, diagnostics
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	seen, err := r.clusters.recent(bounded, planned.Context.ValueString())
	if err != nil {
		diagnostics.Append(unplannable(r.clusters.access, err, r.clusters.called(planned)))

		return true, diagnostics
	}

	if prior != nil && seen.ID != "" && prior.ID.ValueString() != "" && prior.ID.ValueString() != seen.ID {
		diagnostics.Append(wrongCluster(prior.ID.ValueString(), seen.ID, seen.name))

		return false, diagnostics
	}

	made := plan.Make(seen.Snapshot, request.Target, request.Policy)
	examined := r.clusters.examine(bounded, planned, seen, made)
	work := len(made.Steps) > 0

	var object objectView

	absent := []string(nil)
	if prior != nil {
		absent = unseenNodes(seen.Snapshot, prior.Nodes)
	}

	if len(absent) > 0 {
		examined.Findings = append(examined.Findings, unseenFinding(absent, seen.Snapshot))
	}

	if work {
		examined.Findings = append(examined.Findings, r.clusters.claims.twin(seen.ID, seen.name)...)
	} else {
		object = r.clusters.viewObject(bounded, planned, prior, request.Target)
		examined.Findings = append(examined.Findings, object.findings...)
	}

	diagnostics.Append(planFindings(examined.Findings, work, seen)...)

	if diagnostics.HasError() {
		return work, diagnostics
	}

	if work {
		diagnostics.Append(delegatedWarning(rollWarning(made, seen.name, examined.Manifests), planned.publication()))
		diagnostics.Append(planned.limitWarnings(ctx, seen, made.Estimate(), prior == nil)...)
	}

	if len(object.left) > 0 {
		diagnostics.Append(leftWarning(object.left, seen.name))
	}

	return work || len(object.left) > 0 || len(absent) > 0, diagnostics
}

// unplannable is the diagnostic of a plan that could not look at the cluster.
// What may heal until the apply is a warning. The name is what people call the
// cluster.
func unplannable(access credentials, err error, name string) diag.Diagnostic {
	found := problem("plan the upgrade", access, err)

	if errors.Is(err, errMissing) || errors.Is(err, errUnusable) || !cluster.Heals(err) {
		return found
	}

	return warning(found, about(summaryUnobserved, name), "Whether anything has to be upgraded is found out by apply.")
}
