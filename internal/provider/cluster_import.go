// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
)

// ImportState implements [resource.ResourceWithImportState]. It accepts a cluster ID or "current", optionally with a
// context in front: "prod/current". With an identity, it imports the cluster from whichever context reaches it.
func (r *clusterResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	var wanted string

	id := req.ID
	if index := strings.LastIndex(id, "/"); index >= 0 {
		wanted, id = id[:index], id[index+1:]
	}

	if req.ID == "" {
		var identity identityModel

		resp.Diagnostics.Append(req.Identity.Get(ctx, &identity)...)
		id = identity.ID.ValueString()

		found, diagnostics := r.clusters.Find(ctx, id)
		resp.Diagnostics.Append(diagnostics...)

		wanted = found.Wanted
	}

	if resp.Diagnostics.HasError() {
		return
	}

	clock, cancel := context.WithTimeout(ctx, defaultReadTimeout)
	defer cancel()

	seen, err := r.clusters.Observe(clock, wanted)
	if err != nil {
		resp.Diagnostics.Append(connection.Problem("import the cluster", r.clusters.Access, err))

		return
	}

	if id != importCurrent && seen.ID == "" {
		resp.Diagnostics.AddError("Unable to import the cluster",
			fmt.Sprintf("The import asks for cluster %q, but neither discovery nor Kubernetes tells which cluster %s is.\n\n"+
				"Look at why discovery (talosctl get members) and the namespace kube-system say nothing, then import again.", id, seen.Name))

		return
	}

	if id != importCurrent && id != seen.ID {
		resp.Diagnostics.AddError("Unable to import another cluster",
			fmt.Sprintf("The import asks for cluster %q, but this provider reaches cluster %q (%s). Import %q, or correct the talosconfig or the context.",
				id, seen.ID, seen.Name, seen.ID))

		return
	}

	model, diagnostics := imported(ctx, seen, wanted)

	resp.Diagnostics.Append(diagnostics...)
	resp.Diagnostics.Append(model.writeIdentity(ctx, resp.Identity)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// imported returns the model of a cluster that has no configuration yet: it wants the running versions. The context
// is named as in a resource.
func imported(ctx context.Context, seen connection.Observation, wanted string) (clusterModel, diag.Diagnostics) {
	talos, _ := seen.TalosVersions()
	kubernetes, _ := seen.KubernetesVersions()
	model := newClusterModel(ctx, talos, kubernetes)
	model.Context = attribute.TextValue(wanted)

	return model, model.observe(seen.Observation)
}
