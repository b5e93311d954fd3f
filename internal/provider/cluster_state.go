// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var _ resource.ResourceWithUpgradeState = (*clusterResource)(nil)

// stateVersion is the version of the stored resource. Each change of a name, or of the meaning of an unset
// attribute, needs a new version, to which [upgradeState] converts the one before.
const stateVersion = 1

// UpgradeState implements [resource.ResourceWithUpgradeState].
func (r *clusterResource) UpgradeState(ctx context.Context) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{
		0: {StateUpgrader: func(_ context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
			schema := clusterSchema(ctx)

			upgraded, err := upgradeState(req.RawState.JSON)
			stored := *req.RawState
			stored.JSON = upgraded

			state, unread := stored.Unmarshal(schema.Type().TerraformType(ctx))
			if err = cmp.Or(err, unread); err != nil {
				resp.Diagnostics.AddError("Unable to read the state", "An earlier version of the provider stored it, and it is not understood: "+err.Error()+
					".\n\nNothing was touched. Report this, with the version of the provider that wrote the state; or remove the resource from the state (terraform state rm) and import it again.")

				return
			}

			resp.State = tfsdk.State{Schema: schema, Raw: state}
		}},
	}
}

// upgradeState converts a state of version 0, which builds before 0.1.0 stored, to version 1. In version 0,
// components and install images had other names, and attributes that have a default now were null.
func upgradeState(stored []byte) ([]byte, error) {
	var state map[string]any

	if err := json.Unmarshal(stored, &state); err != nil {
		return nil, err
	}

	policy := cluster.DefaultPolicy()
	supply(state, attrname.Mode, modeDirect)
	supply(state, attrname.OnFailure, string(policy.OnFailure))
	supply(state, attrname.OnSuspend, string(policy.OnSuspend))
	supply(state, attrname.SyncInstallImage, policy.SyncInstallImage)
	supply(state, attrname.Retry, map[string]any{attrname.Attempts: policy.Repeat.Attempts, attrname.Backoff: readable.Duration(policy.Repeat.Backoff)})

	if drain := within(state, attrname.Drain); drain != nil {
		supply(drain, attrname.WaitForVolumes, string(policy.Drain.Volumes))
	}

	for _, override := range within(state, attrname.NodeOverrides) {
		if entry, isObject := override.(map[string]any); isObject {
			rename(entry, attrname.Retry, attrname.RetryBootID)
			supply(entry, attrname.Hold, false)
		}
	}

	for _, node := range within(state, attrname.Nodes) {
		if entry, isObject := node.(map[string]any); isObject {
			rename(entry, "image", attrname.InstallImage)
		}
	}

	kubernetes := within(state, attrname.Kubernetes)
	images := within(kubernetes, attrname.Images)

	rename(images, "api_server", attrname.APIServer)
	rename(images, "controller_manager", attrname.ControllerManager)
	rename(images, "scheduler", attrname.Scheduler)
	rename(images, "proxy", attrname.Proxy)

	if manifests := within(kubernetes, attrname.Manifests); manifests != nil && state[attrname.KubernetesVersion] == nil {
		manifests[attrname.Sync] = false
	}

	return json.Marshal(state)
}

// within returns the named nested object; nil if there is none.
func within(object map[string]any, name string) map[string]any {
	nested, _ := object[name].(map[string]any)

	return nested
}

// supply sets the named value if it is missing.
func supply(object map[string]any, name string, value any) {
	if object[name] == nil {
		object[name] = value
	}
}

// rename moves a value to another name.
func rename(object map[string]any, from, to string) {
	if value, there := object[from]; there {
		object[to] = value
		delete(object, from)
	}
}
