// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// kubernetesModel is the kubernetes object.
type kubernetesModel struct {
	Images              types.Object `tfsdk:"images"`
	UnavailableKubelets types.String `tfsdk:"max_unavailable_kubelets"`
	Manifests           types.Object `tfsdk:"manifests"`
}

// manifestsModel is the manifests object in it.
type manifestsModel struct {
	Sync    types.Bool   `tfsdk:"sync"`
	Prune   types.Bool   `tfsdk:"prune"`
	Timeout types.String `tfsdk:"timeout"`
	Force   types.Bool   `tfsdk:"force"`
}

func kubernetesTypes() map[string]attr.Type {
	return map[string]attr.Type{
		attrImages:              types.ObjectType{AttrTypes: overrideImageTypes()},
		attrUnavailableKubelets: types.StringType,
		attrManifests:           types.ObjectType{AttrTypes: manifestsTypes()},
	}
}

func manifestsTypes() map[string]attr.Type {
	return map[string]attr.Type{
		attrSync: types.BoolType, attrPrune: types.BoolType, attrTimeout: types.StringType, attrForce: types.BoolType,
	}
}

func overrideImageTypes() map[string]attr.Type {
	attributes := map[string]attr.Type{}
	for _, image := range imageAttributes() {
		attributes[image.name] = types.StringType
	}

	return attributes
}

// kubernetesValue is a policy that overrides no image as an object of the schema.
func kubernetesValue(policy cluster.KubernetesPolicy) types.Object {
	return types.ObjectValueMust(kubernetesTypes(), map[string]attr.Value{
		attrImages:              types.ObjectNull(overrideImageTypes()),
		attrUnavailableKubelets: types.StringValue(policy.MaxUnavailableKubelets.String()),
		attrManifests:           manifestsValue(policy.Manifests),
	})
}

func manifestsValue(policy cluster.ManifestPolicy) types.Object {
	return types.ObjectValueMust(manifestsTypes(), map[string]attr.Value{
		attrSync:    types.BoolValue(policy.Sync),
		attrPrune:   types.BoolValue(policy.Prune),
		attrTimeout: types.StringValue(durationText(policy.Timeout)),
		attrForce:   types.BoolValue(policy.Force),
	})
}

// kubernetes is how the Kubernetes half is to be reached. The model must be
// known; what it does not say is as in the policy that is given.
func (m clusterModel) kubernetes(ctx context.Context, policy cluster.KubernetesPolicy) (cluster.KubernetesPolicy, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		model       kubernetesModel
		manifests   manifestsModel
	)

	if m.Kubernetes.IsNull() {
		return policy, diagnostics
	}

	at := path.Root(attrKubernetes)

	diagnostics.Append(m.Kubernetes.As(ctx, &model, basetypes.ObjectAsOptions{})...)

	policy.Images = model.images()
	policy.MaxUnavailableKubelets = share(at.AtName(attrUnavailableKubelets), model.UnavailableKubelets, policy.MaxUnavailableKubelets, &diagnostics)

	if model.Manifests.IsNull() {
		return policy, diagnostics
	}

	diagnostics.Append(model.Manifests.As(ctx, &manifests, basetypes.ObjectAsOptions{})...)

	if !manifests.Sync.IsNull() {
		policy.Manifests.Sync = manifests.Sync.ValueBool()
	}

	policy.Manifests.Prune, policy.Manifests.Force = manifests.Prune.ValueBool(), manifests.Force.ValueBool()
	policy.Manifests.Timeout = duration(at.AtName(attrManifests).AtName(attrTimeout), manifests.Timeout, policy.Manifests.Timeout, &diagnostics)

	return policy, diagnostics
}

// images are the repositories that the model names; nil where it names none.
func (k kubernetesModel) images() map[cluster.Component]string {
	var images map[cluster.Component]string

	for _, image := range imageAttributes() {
		text, isText := k.Images.Attributes()[image.name].(types.String)
		if !isText || text.ValueString() == "" {
			continue
		}

		if images == nil {
			images = map[cluster.Component]string{}
		}

		images[image.component] = text.ValueString()
	}

	return images
}

// syncs tells whether the model brings the bootstrap manifests up to date, as far
// as that is known.
func (m clusterModel) syncs() bool {
	manifests, isObject := m.Kubernetes.Attributes()[attrManifests].(types.Object)
	if !isObject {
		return true
	}

	sync, isBool := manifests.Attributes()[attrSync].(types.Bool)

	return !isBool || sync.IsNull() || sync.IsUnknown() || sync.ValueBool()
}
