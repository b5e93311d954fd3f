// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
)

// leftovers are the objects that may remain in the cluster if a destroy cannot reach it.
const leftovers = "ConfigMap kube-system/talosupgrade, Lease kube-system/talosupgrade and ConfigMap kube-system/talosupgrade-journal"

// Delete implements [resource.Resource]. It removes what the provider left in the cluster and changes no node.
func (r *clusterResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.State.Get(ctx, &model)...)

	limit, diagnostics := model.Timeouts.Delete(ctx, defaultDeleteTimeout)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	reached, release, err := r.clusters.Connect(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.DisplayName(model.Context, model.ID)))

		return
	}

	defer release()

	id := model.ID.ValueString()

	// Unless the cluster is identified, nothing in it may be deleted.
	found, err := connection.ClusterID(bounded, reached)
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.DisplayName(model.Context, model.ID)))

		return
	}

	if id = cmp.Or(id, found); found != id {
		resp.Diagnostics.Append(connection.WrongClusterProblem(id, found, reached.Name))

		return
	}

	reached.Identify(id)

	claimant, diagnostics := connection.ClaimantIn(ctx, req.Private)
	resp.Diagnostics.Append(diagnostics...)

	// If another resource has the cluster, the objects are the other one's.
	if r.clusters.Claims.Release(cmp.Or(id, reached.Name), claimant) {
		return
	}

	kept, err := reached.Kubernetes.Forget(bounded, id)
	if err != nil {
		resp.Diagnostics.Append(r.undeletable(err, r.clusters.DisplayName(model.Context, model.ID)))
	}

	if len(kept) > 0 {
		resp.Diagnostics.AddWarning(diagnostic.About("Objects were left in the cluster", reached.Name),
			"Removed from state, but kept in cluster "+id+":\n\n- "+strings.Join(kept, "\n- ")+
				"\n\nA later apply of the same cluster continues from them, and nothing has to be done. If there will be none and no run is at work: drain and reboot the nodes that the journal names, one after the other, "+
				"because a system may be installed there that has not booted yet, uncordon each of them when it is Ready again, and run kubectl -n kube-system delete configmap talosupgrade-journal.")
	}
}

// undeletable returns the diagnostic of a destroy that could not clean up. It is a warning, because a cluster that
// may be gone for good must not keep its resource in state, and an error if the user can resolve it. name is the
// display name of the cluster.
func (r *clusterResource) undeletable(err error, name string) diag.Diagnostic {
	found := connection.Problem("remove the provider's objects from the cluster", r.clusters.Access, err)

	for _, curable := range []error{connection.ErrCredentialsUnknown, connection.ErrCredentialsMissing, connection.ErrCredentialsUnusable, cluster.ErrCredentials, cluster.ErrDenied, context.Canceled} {
		if errors.Is(err, curable) {
			return diagnostic.WithDetail(found, found.Detail()+
				"\n\nThe resource stays in state. If the cluster is gone for good, terraform state rm takes it out without asking the cluster.")
		}
	}

	return diagnostic.AsWarning(found, diagnostic.About("Unable to reach the cluster during destroy", name),
		"The resource was removed from state. If the cluster still exists it may hold "+leftovers+
			". Look into the journal before deleting it: a node with an entry may have an upgrade installed that its next reboot starts. A later apply continues from it.")
}
