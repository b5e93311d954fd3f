// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
)

// Read implements [resource.Resource]. If the cluster cannot be observed, the state is kept: an unreachable cluster
// still exists.
func (r *clusterResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.State.Get(ctx, &model)...)

	limit, diagnostics := model.Timeouts.Read(ctx, defaultReadTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	// An earlier version stored no identity, and no value of an attribute that this one added.
	model = model.complete(ctx)

	resp.Diagnostics.Append(model.writeIdentity(ctx, resp.Identity)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	seen, err := r.clusters.Observe(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(r.unreadable(err, model))

		return
	}

	if seen.ID == "" {
		resp.Diagnostics.AddWarning(diagnostic.About(connection.SummaryUnobserved, seen.Name), "Neither discovery nor Kubernetes tells which cluster this is, so the state keeps what it says.\n\n"+
			"Look at why discovery (talosctl get members) and the namespace kube-system say nothing; an apply looks first.")

		return
	}

	if model.ID.ValueString() != "" && seen.ID != model.ID.ValueString() {
		// The configuration may name another context by now; if it does not, the plan is an error.
		resp.Diagnostics.Append(diagnostic.AsWarning(connection.WrongClusterProblem(model.ID.ValueString(), seen.ID, seen.Name),
			diagnostic.About("Wrong cluster", seen.Name), "The state keeps its values. A plan goes by the context in the configuration, which may be another one."))

		return
	}

	resp.Diagnostics.Append(model.observe(seen.Observation)...)
	resp.Diagnostics.Append(model.writeIdentity(ctx, resp.Identity)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// unreadable returns the diagnostic of a refresh that could not observe the cluster in state. Missing and unusable
// credentials are an error. Anything else keeps the state, including a context that was renamed: the plan uses the
// context in the configuration, and fails if that is the same.
func (r *clusterResource) unreadable(err error, state clusterModel) diag.Diagnostic {
	found, summary := connection.Problem("read the cluster", r.clusters.Access, err), diagnostic.About(connection.SummaryUnobserved, r.clusters.DisplayName(state.Context, state.ID))

	switch {
	case connection.IsAbsentContext(err) && !state.Context.IsNull():
		return diag.NewWarningDiagnostic(summary, diagnostic.Sentence(err.Error())+
			"\n\nIf it was renamed, give the configuration the new name: the apply stores it, and until then the state keeps its values.")
	case errors.Is(err, connection.ErrCredentialsMissing), errors.Is(err, connection.ErrCredentialsUnusable):
		return found
	default:
		return diagnostic.AsWarning(found, summary, "The state keeps its values until the cluster can be read again; an apply reads it first.")
	}
}

// observe writes what was observed into the computed attributes. It does not change the attributes that the user
// sets.
func (m *clusterModel) observe(observed cluster.Observation) diag.Diagnostics {
	return m.record(observed, statusOf(observed, *m))
}

// record is observe with a status that contains more than the observation.
func (m *clusterModel) record(observed cluster.Observation, current status) diag.Diagnostics {
	nodes, diagnostics := nodesValue(observed, m.Nodes)

	m.Nodes = nodes
	m.Status = current.since(m.Status)
	m.Snapshot = snapshotValue(observed.Journal, m.Snapshot)

	if observed.ID != "" {
		m.ID = types.StringValue(observed.ID)
	}

	return diagnostics
}
