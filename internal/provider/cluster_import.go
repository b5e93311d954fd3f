// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource"
)

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
