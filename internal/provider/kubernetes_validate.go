// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// validateKubernetes wants options that have an effect. It looks at what the
// configuration says, without the defaults.
func (m clusterModel) validateKubernetes(ctx context.Context) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		model       kubernetesModel
	)

	if m.Kubernetes.IsNull() || m.Kubernetes.IsUnknown() {
		return diagnostics
	}

	diagnostics.Append(m.Kubernetes.As(ctx, &model, basetypes.ObjectAsOptions{})...)
	diagnostics.Append(model.validateManifests(ctx)...)

	if m.KubernetesVersion.IsNull() {
		diagnostics.Append(model.validateUnmanaged()...)
	}

	return diagnostics
}

// validateManifests refuses options of a sync that does not take place.
func (k kubernetesModel) validateManifests(ctx context.Context) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		manifests   manifestsModel
		idle        []string
	)

	if k.Manifests.IsNull() || k.Manifests.IsUnknown() {
		return diagnostics
	}

	diagnostics.Append(k.Manifests.As(ctx, &manifests, basetypes.ObjectAsOptions{})...)

	if manifests.Sync.IsNull() || manifests.Sync.IsUnknown() || manifests.Sync.ValueBool() {
		return diagnostics
	}

	if manifests.Prune.ValueBool() {
		idle = append(idle, attrPrune+" = true")
	}

	if manifests.Force.ValueBool() {
		idle = append(idle, attrForce+" = true")
	}

	if stated(manifests.Timeout) {
		idle = append(idle, attrTimeout)
	}

	if len(idle) > 0 {
		at := path.Root(attrKubernetes).AtName(attrManifests)
		diagnostics.Append(errorAt(at, "Options of manifests that contradict each other",
			at.String()+" says sync = false, so that nothing is applied, and "+strings.Join(idle, " and ")+", which says how.\n\n"+
				"Remove sync = false, or remove "+strings.Join(idle, " and ")+"."))
	}

	return diagnostics
}

// validateUnmanaged refuses what only an upgrade of Kubernetes looks at. Manifests
// follow a roll of Talos as well.
func (k kubernetesModel) validateUnmanaged() diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		idle        []string
	)

	for _, image := range imageAttributes() {
		if stated(k.Images.Attributes()[image.name]) {
			idle = append(idle, path.Root(attrKubernetes).AtName(attrImages).AtName(image.name).String())
		}
	}

	if stated(k.UnavailableKubelets) {
		idle = append(idle, path.Root(attrKubernetes).AtName(attrUnavailableKubelets).String())
	}

	if len(idle) > 0 {
		diagnostics.AddAttributeError(path.Root(attrKubernetes), "Kubernetes options without effect",
			"Without "+attrKubernetesVersion+" Kubernetes is not managed, and nothing looks at "+strings.Join(idle, ", ")+".\n\n"+
				"Set "+attrKubernetesVersion+", to the running version if nothing is to be upgraded, or remove "+strings.Join(idle, ", ")+".")
	}

	return diagnostics
}

// stated tells whether a configuration gives the value; one that is not known yet
// may turn out to be null.
func stated(value attr.Value) bool { return value != nil && !value.IsNull() && !value.IsUnknown() }
