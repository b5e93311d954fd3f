// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Defaults of timeouts, as the documentation promises them.
const (
	defaultWriteTimeout = 4 * time.Hour
	defaultReadTimeout  = time.Minute
)

// clusterModel is the resource in configuration, plan and state.
type clusterModel struct {
	TalosVersion      types.String   `tfsdk:"talos_version"`
	KubernetesVersion types.String   `tfsdk:"kubernetes_version"`
	Context           types.String   `tfsdk:"context"`
	Order             types.String   `tfsdk:"order"`
	RebootMode        types.String   `tfsdk:"reboot_mode"`
	NodeTimeout       types.String   `tfsdk:"node_timeout"`
	Drain             types.Object   `tfsdk:"drain"`
	InstallerImage    types.String   `tfsdk:"installer_image"`
	NodeOverrides     types.Map      `tfsdk:"node_overrides"`
	Timeouts          timeouts.Value `tfsdk:"timeouts"`
	ID                types.String   `tfsdk:"id"`
	Status            types.Object   `tfsdk:"status"`
	Nodes             types.Map      `tfsdk:"nodes"`
}

// drainModel is the drain object.
type drainModel struct {
	Enabled   types.Bool   `tfsdk:"enabled"`
	Timeout   types.String `tfsdk:"timeout"`
	OnTimeout types.String `tfsdk:"on_timeout"`
}

// nodeOverrideModel is one value of node_overrides.
type nodeOverrideModel struct {
	Retry types.String `tfsdk:"retry"`
}

func nodeOverrideTypes() map[string]attr.Type {
	return map[string]attr.Type{"retry": types.StringType}
}

func drainTypes() map[string]attr.Type {
	return map[string]attr.Type{"enabled": types.BoolType, "timeout": types.StringType, "on_timeout": types.StringType}
}

func timeoutTypes() map[string]attr.Type {
	return map[string]attr.Type{"create": types.StringType, "update": types.StringType, "read": types.StringType}
}

// drainValue is the policy as an object of the schema.
func drainValue(policy cluster.DrainPolicy) types.Object {
	return types.ObjectValueMust(drainTypes(), map[string]attr.Value{
		"enabled":    types.BoolValue(policy.Enabled),
		"timeout":    types.StringValue(durationText(policy.Timeout)),
		"on_timeout": types.StringValue(string(policy.OnTimeout)),
	})
}

// newClusterModel is the model of a configuration that says nothing but the
// versions: what an import stores.
func newClusterModel(talos, kubernetes version.Version) clusterModel {
	policy := cluster.DefaultPolicy()

	return clusterModel{
		TalosVersion:      versionValue(talos),
		KubernetesVersion: versionValue(kubernetes),
		Context:           types.StringNull(),
		Order:             types.StringValue(string(policy.Order)),
		RebootMode:        types.StringValue(string(policy.RebootMode)),
		NodeTimeout:       types.StringValue(durationText(policy.NodeTimeout)),
		Drain:             drainValue(policy.Drain),
		InstallerImage:    types.StringNull(),
		NodeOverrides:     types.MapNull(types.ObjectType{AttrTypes: nodeOverrideTypes()}),
		Timeouts:          timeouts.Value{Object: types.ObjectNull(timeoutTypes())},
	}
}

// known tells whether everything that decides about the roll is known.
func (m clusterModel) known(ctx context.Context) bool {
	for _, value := range []attr.Value{
		m.TalosVersion, m.KubernetesVersion, m.Context, m.Order, m.RebootMode, m.NodeTimeout, m.InstallerImage, m.Drain, m.NodeOverrides,
	} {
		if value.IsUnknown() {
			return false
		}

		terraform, err := value.ToTerraformValue(ctx)
		if err != nil || !terraform.IsFullyKnown() {
			return false
		}
	}

	return true
}

// target is what the model asks for. It must be known and valid.
func (m clusterModel) target() (cluster.Target, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	parse := func(name string, value types.String) version.Version {
		if value.ValueString() == "" {
			return version.Version{}
		}

		parsed, err := version.Parse(value.ValueString())
		if err != nil {
			diagnostics.AddAttributeError(path.Root(name), "Invalid version", sentence(err.Error()))
		}

		return parsed
	}

	return cluster.Target{
		Talos:          parse(attrTalosVersion, m.TalosVersion),
		Kubernetes:     parse(attrKubernetesVersion, m.KubernetesVersion),
		InstallerImage: m.InstallerImage.ValueString(),
	}, diagnostics
}

// policy is how the model wants the target to be reached. It must be known.
func (m clusterModel) policy(ctx context.Context) (cluster.Policy, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	policy := cluster.DefaultPolicy()
	policy.Order = cluster.Order(m.Order.ValueString())
	policy.RebootMode = cluster.RebootMode(m.RebootMode.ValueString())
	policy.NodeTimeout = duration(path.Root("node_timeout"), m.NodeTimeout, policy.NodeTimeout, &diagnostics)

	var drain drainModel

	diagnostics.Append(m.Drain.As(ctx, &drain, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true})...)

	if !m.Drain.IsNull() {
		policy.Drain = cluster.DrainPolicy{
			Enabled:   drain.Enabled.ValueBool(),
			Timeout:   duration(path.Root("drain").AtName("timeout"), drain.Timeout, policy.Drain.Timeout, &diagnostics),
			OnTimeout: cluster.DrainFallback(drain.OnTimeout.ValueString()),
		}
	}

	overrides := map[string]nodeOverrideModel{}
	diagnostics.Append(m.NodeOverrides.ElementsAs(ctx, &overrides, false)...)

	policy.Retry = map[string]string{}
	for node, override := range overrides {
		if retry := override.Retry.ValueString(); retry != "" {
			policy.Retry[node] = retry
		}
	}

	return policy, diagnostics
}

// desires tells whether the version is what the half asks for; a half that is
// not managed asks for nothing.
func desires(value types.String, running version.Version) bool {
	wanted, err := version.Parse(value.ValueString())

	return err == nil && wanted.Equal(running)
}

func duration(at path.Path, value types.String, fallback time.Duration, diagnostics *diag.Diagnostics) time.Duration {
	if value.ValueString() == "" {
		return fallback
	}

	parsed, err := time.ParseDuration(value.ValueString())
	if err != nil {
		diagnostics.AddAttributeError(at, "Invalid duration", fmt.Sprintf("%s is no duration such as \"90s\" or \"1h30m\".", value))

		return fallback
	}

	return parsed
}

// versionValue is the version as state holds it: without v, null when unknown.
func versionValue(v version.Version) types.String {
	if v.IsZero() {
		return types.StringNull()
	}

	return types.StringValue(v.String())
}

// textValue is null for an empty text.
func textValue(text string) types.String {
	if text == "" {
		return types.StringNull()
	}

	return types.StringValue(text)
}
