// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// policy is how the target is to be reached. The model must be known.
func (m clusterModel) policy(ctx context.Context) (cluster.Policy, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	policy := cluster.DefaultPolicy()
	policy.Order = cluster.Order(m.Order.ValueString())
	policy.RebootMode = cluster.RebootMode(m.RebootMode.ValueString())
	policy.NodeTimeout = duration(path.Root(attrNodeTimeout), m.NodeTimeout, policy.NodeTimeout, &diagnostics)
	policy.Settle = duration(path.Root(attrSettle), m.Settle, policy.Settle, &diagnostics)
	policy.MaxUnavailable = share(path.Root(attrMaxUnavailable), m.MaxUnavailable, policy.MaxUnavailable, &diagnostics)
	policy.AllowIntermediate = m.AllowIntermediate.ValueBool()
	policy.AllowUnknown = m.AllowUnknown.ValueBool()
	policy.SkipChecks = m.skipped()
	policy.SyncInstallImage = m.SyncInstallImage.ValueBool()
	policy.OnFailure = m.onFailure(policy.OnFailure)

	repeat, more := m.repeat(ctx, policy.Repeat)
	diagnostics.Append(more...)

	policy.Repeat = repeat

	diagnostics.Append(m.Canary.ElementsAs(ctx, &policy.Canary, false)...)

	var drain drainModel

	diagnostics.Append(m.Drain.As(ctx, &drain, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true})...)

	if !m.Drain.IsNull() {
		policy.Drain = cluster.DrainPolicy{
			Enabled:   drain.Enabled.ValueBool(),
			Timeout:   duration(path.Root(attrDrain).AtName("timeout"), drain.Timeout, policy.Drain.Timeout, &diagnostics),
			OnTimeout: cluster.DrainFallback(drain.OnTimeout.ValueString()),
		}
	}

	var intermediate []string

	diagnostics.Append(m.IntermediateVersions.ElementsAs(ctx, &intermediate, false)...)

	for index, text := range intermediate {
		parsed, err := version.Parse(text)
		if err != nil {
			at := path.Root(attrIntermediateVersions).AtListIndex(index)
			diagnostics.AddAttributeError(visible(at), "Invalid version", located(at, err))
		}

		policy.Intermediate = append(policy.Intermediate, parsed)
	}

	diagnostics.Append(m.overrides(ctx, &policy)...)

	kubernetes, more := m.kubernetes(ctx, policy.Kubernetes)
	diagnostics.Append(more...)

	policy.Kubernetes = kubernetes

	return policy, diagnostics
}

// overrides adds to the policy what it says about single nodes.
func (m clusterModel) overrides(ctx context.Context, policy *cluster.Policy) diag.Diagnostics {
	overrides := map[string]*nodeOverrideModel{}
	diagnostics := m.NodeOverrides.ElementsAs(ctx, &overrides, false)

	policy.Retry, policy.Hold, policy.Images = map[string]string{}, map[string]bool{}, map[string]string{}

	for node, override := range overrides {
		// Even where it says nothing, an override names a node.
		policy.Hold[node] = false

		if override == nil {
			continue
		}

		if retry := override.Retry.ValueString(); retry != "" {
			policy.Retry[node] = retry
		}

		if repository := override.InstallerImage.ValueString(); repository != "" {
			policy.Images[node] = repository
		}

		policy.Hold[node] = override.Hold.ValueBool()
	}

	return diagnostics
}

// held are the names of the nodes that the model leaves alone, as far as that
// is known.
func (m clusterModel) held() map[string]bool {
	held := map[string]bool{}

	for node, value := range m.NodeOverrides.Elements() {
		object, isObject := value.(types.Object)
		if !isObject {
			continue
		}

		if hold, isBool := object.Attributes()[attrHold].(types.Bool); isBool && hold.ValueBool() {
			held[node] = true
		}
	}

	return held
}

func share(at path.Path, value types.String, fallback cluster.Share, diagnostics *diag.Diagnostics) cluster.Share {
	if value.ValueString() == "" {
		return fallback
	}

	parsed, err := cluster.ParseShare(value.ValueString())
	if err != nil {
		diagnostics.AddAttributeError(visible(at), "Invalid number of workers", at.String()+": "+err.Error()+".")

		return fallback
	}

	return parsed
}

func duration(at path.Path, value types.String, fallback time.Duration, diagnostics *diag.Diagnostics) time.Duration {
	if value.ValueString() == "" {
		return fallback
	}

	parsed, err := time.ParseDuration(value.ValueString())
	if err != nil {
		diagnostics.AddAttributeError(visible(at), "Invalid duration", fmt.Sprintf("%s is %s: value must be a duration such as \"90s\" or \"1h30m\".", at, value))

		return fallback
	}

	return parsed
}
