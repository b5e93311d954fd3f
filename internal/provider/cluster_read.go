// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Read implements [resource.Resource]. A cluster that cannot be looked at keeps
// what the state says: it is not gone because it is away.
func (r *clusterResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.State.Get(ctx, &model)...)

	limit, diagnostics := model.Timeouts.Read(ctx, defaultReadTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	seen, err := r.clusters.observe(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(unreadable(r.clusters.access, err, r.clusters.called(model)))

		return
	}

	if seen.ID == "" {
		resp.Diagnostics.AddWarning(about(summaryUnobserved, seen.name), "Neither discovery nor Kubernetes tells which cluster this is, so the state keeps what it says.\n\n"+
			"Look at why discovery (talosctl get members) and the namespace kube-system say nothing; an apply looks first.")

		return
	}

	if model.ID.ValueString() != "" && seen.ID != model.ID.ValueString() {
		resp.Diagnostics.Append(wrongCluster(model.ID.ValueString(), seen.ID, seen.name))

		return
	}

	resp.Diagnostics.Append(model.observe(ctx, seen.Observation)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// unreadable is the diagnostic of a refresh that could not look. Credentials
// that were never usable are an error; everything else keeps the state. The
// name is what people call the cluster.
func unreadable(access credentials, err error, name string) diag.Diagnostic {
	found := problem("read the cluster", access, err)
	if errors.Is(err, errMissing) || errors.Is(err, errUnusable) {
		return found
	}

	return warning(found, about(summaryUnobserved, name), "The state keeps its values until the cluster can be read again; an apply reads it first.")
}

// observe writes what was observed into the computed attributes and leaves
// everything that is the user's alone.
func (m *clusterModel) observe(ctx context.Context, observed cluster.Observation) diag.Diagnostics {
	return m.record(ctx, observed, statusOf(observed, *m))
}

// record is observe with a status that knows more than the observation does.
func (m *clusterModel) record(ctx context.Context, observed cluster.Observation, current status) diag.Diagnostics {
	nodes, diagnostics := nodesValue(ctx, observed, m.Nodes)

	m.Nodes = nodes
	m.Status = current.since(m.Status)
	m.Snapshot = snapshotValue(observed.Journal, m.Snapshot)

	if observed.ID != "" {
		m.ID = types.StringValue(observed.ID)
	}

	return diagnostics
}

// deleteTimeout bounds a destroy. Finding out whether the holder of a lease is
// alive takes up to a minute.
const deleteTimeout = 3 * time.Minute

// leftovers are the objects that a destroy which cannot reach the cluster may
// leave there.
const leftovers = "ConfigMap kube-system/talosupgrade, Lease kube-system/talosupgrade and ConfigMap kube-system/talosupgrade-journal"

// Delete implements [resource.Resource]. It removes what the provider left in
// the cluster and touches no node.
func (r *clusterResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.State.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()

	reached, release, err := r.clusters.connect(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.called(model)))

		return
	}

	defer release()

	id := model.ID.ValueString()

	// Without knowing which cluster this is nothing of it may be deleted.
	found, err := clusterID(bounded, reached)
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.called(model)))

		return
	}

	if id = cmp.Or(id, found); found != id {
		resp.Diagnostics.Append(wrongCluster(id, found, reached.name))

		return
	}

	reached.identify(id)

	claimant, diagnostics := claimantIn(ctx, req.Private)
	resp.Diagnostics.Append(diagnostics...)
	r.clusters.claims.release(cmp.Or(id, reached.name), claimant)

	kept, err := reached.kubernetes.Forget(bounded, id)
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.called(model)))
	}

	if len(kept) > 0 {
		resp.Diagnostics.AddWarning(about("Objects were left in the cluster", reached.name),
			"Removed from state, but kept in cluster "+id+":\n\n- "+strings.Join(kept, "\n- ")+
				"\n\nA later apply of the same cluster continues from them. To end it by hand, finish each node that they name, uncordon it, "+
				"and then run kubectl -n kube-system delete configmap talosupgrade-journal.")
	}
}

// undeletable is the diagnostic of a destroy that could not clean up. A cluster
// that may be dead for good must not keep its resource alive, so that is a
// warning; what the user can put right is an error. The name is what people call
// the cluster.
func (r *clusterResource) undeletable(err error, name string) diag.Diagnostic {
	found := problem("remove the provider's objects from the cluster", r.clusters.access, err)

	for _, curable := range []error{errUnknown, errMissing, errUnusable, cluster.ErrCredentials, cluster.ErrDenied, context.Canceled} {
		if errors.Is(err, curable) {
			return withDetail(found, found.Detail()+
				"\n\nThe resource stays in state. If the cluster is gone for good, terraform state rm takes it out without asking the cluster.")
		}
	}

	return warning(found, about("Unable to reach the cluster during destroy", name),
		"The resource was removed from state. If the cluster still exists it may hold "+leftovers+
			". Look into the journal before deleting it: a node with an entry may have an upgrade installed that its next reboot starts. A later apply continues from it.")
}

// ImportState implements [resource.ResourceWithImportState]. It accepts a
// cluster ID or "current", either with a context in front: "prod/current".
func (r *clusterResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var wanted string

	id := req.ID
	if index := strings.LastIndex(id, "/"); index >= 0 {
		wanted, id = id[:index], id[index+1:]
	}

	clock, cancel := context.WithTimeout(ctx, defaultReadTimeout)
	defer cancel()

	seen, err := r.clusters.observe(clock, wanted)
	if err != nil {
		resp.Diagnostics.Append(problem("import the cluster", r.clusters.access, err))

		return
	}

	if id != importCurrent && id != seen.ID {
		resp.Diagnostics.AddError("Unable to import another cluster",
			fmt.Sprintf("The import asks for cluster %q, but this provider reaches cluster %q (%s). Import %q, or correct the talosconfig or the context.",
				id, seen.ID, seen.name, seen.ID))

		return
	}

	talos, _ := seen.TalosVersions()
	kubernetes, _ := seen.KubernetesVersions()
	model := newClusterModel(talos, kubernetes)
	model.Context = textValue(wanted)

	resp.Diagnostics.Append(model.observe(ctx, seen.Observation)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}
