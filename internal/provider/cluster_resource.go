// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource"
)

var (
	_ resource.Resource                   = (*clusterResource)(nil)
	_ resource.ResourceWithConfigure      = (*clusterResource)(nil)
	_ resource.ResourceWithImportState    = (*clusterResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*clusterResource)(nil)
	_ resource.ResourceWithValidateConfig = (*clusterResource)(nil)
)

// importCurrent stands for the ID of whatever cluster is connected.
const importCurrent = "current"

// clusterResource is talosupgrade_cluster.
type clusterResource struct {
	clusters *clusters
}

func newClusterResource() resource.Resource { return &clusterResource{} }

// Metadata implements [resource.Resource].
func (r *clusterResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = typeName + "_cluster"
}

// Schema implements [resource.Resource].
func (r *clusterResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = clusterSchema(ctx)
}

// Configure implements [resource.ResourceWithConfigure].
func (r *clusterResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.clusters = configured(req.ProviderData, &resp.Diagnostics)
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

	resp.Diagnostics.Append(model.observe(ctx, seen.Snapshot)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}
