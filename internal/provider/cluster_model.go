// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

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
	TalosVersion         types.String   `tfsdk:"talos_version"`
	KubernetesVersion    types.String   `tfsdk:"kubernetes_version"`
	Context              types.String   `tfsdk:"context"`
	Order                types.String   `tfsdk:"order"`
	RebootMode           types.String   `tfsdk:"reboot_mode"`
	NodeTimeout          types.String   `tfsdk:"node_timeout"`
	Drain                types.Object   `tfsdk:"drain"`
	InstallerImage       types.String   `tfsdk:"installer_image"`
	AllowIntermediate    types.Bool     `tfsdk:"allow_intermediate_versions"`
	IntermediateVersions types.List     `tfsdk:"intermediate_versions"`
	AllowUnknown         types.Bool     `tfsdk:"allow_unknown_versions"`
	MaxUnavailable       types.String   `tfsdk:"max_unavailable"`
	Canary               types.List     `tfsdk:"canary"`
	Settle               types.String   `tfsdk:"settle"`
	NodeOverrides        types.Map      `tfsdk:"node_overrides"`
	Kubernetes           types.Object   `tfsdk:"kubernetes"`
	Preflight            types.Object   `tfsdk:"preflight"`
	EtcdSnapshot         types.Object   `tfsdk:"etcd_snapshot"`
	Gates                types.List     `tfsdk:"gates"`
	MaintenanceWindow    types.Object   `tfsdk:"maintenance_window"`
	SyncInstallImage     types.Bool     `tfsdk:"sync_install_image"`
	OnFailure            types.String   `tfsdk:"on_failure"`
	Repeat               types.Object   `tfsdk:"retry"`
	PublishTo            types.Object   `tfsdk:"publish_to"`
	Mode                 types.String   `tfsdk:"mode"`
	ReportPath           types.String   `tfsdk:"report_path"`
	Timeouts             timeouts.Value `tfsdk:"timeouts"`
	ID                   types.String   `tfsdk:"id"`
	Status               types.Object   `tfsdk:"status"`
	Nodes                types.Map      `tfsdk:"nodes"`
	Snapshot             types.Object   `tfsdk:"snapshot"`
}

// drainModel is the drain object.
type drainModel struct {
	Enabled   types.Bool   `tfsdk:"enabled"`
	Timeout   types.String `tfsdk:"timeout"`
	OnTimeout types.String `tfsdk:"on_timeout"`
}

// nodeOverrideModel is one value of node_overrides.
type nodeOverrideModel struct {
	InstallerImage types.String `tfsdk:"installer_image"`
	Hold           types.Bool   `tfsdk:"hold"`
	Retry          types.String `tfsdk:"retry"`
}

func nodeOverrideTypes() map[string]attr.Type {
	return map[string]attr.Type{attrInstallerImage: types.StringType, attrHold: types.BoolType, attrRetry: types.StringType}
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
		TalosVersion:         versionValue(talos),
		KubernetesVersion:    versionValue(kubernetes),
		Context:              types.StringNull(),
		Order:                types.StringValue(string(policy.Order)),
		RebootMode:           types.StringValue(string(policy.RebootMode)),
		NodeTimeout:          types.StringValue(durationText(policy.NodeTimeout)),
		Drain:                drainValue(policy.Drain),
		InstallerImage:       types.StringNull(),
		AllowIntermediate:    types.BoolValue(policy.AllowIntermediate),
		IntermediateVersions: types.ListNull(types.StringType),
		AllowUnknown:         types.BoolValue(policy.AllowUnknown),
		MaxUnavailable:       types.StringValue(policy.MaxUnavailable.String()),
		Canary:               types.ListNull(types.StringType),
		Settle:               types.StringValue(durationText(policy.Settle)),
		NodeOverrides:        types.MapNull(types.ObjectType{AttrTypes: nodeOverrideTypes()}),
		Kubernetes:           kubernetesValue(policy.Kubernetes),
		Preflight:            types.ObjectNull(skipTypes()),
		EtcdSnapshot:         types.ObjectNull(directoryTypes()),
		Gates:                types.ListNull(types.ObjectType{AttrTypes: gateTypes()}),
		MaintenanceWindow:    types.ObjectNull(windowTypes()),
		SyncInstallImage:     types.BoolNull(),
		OnFailure:            types.StringNull(),
		Repeat:               types.ObjectNull(repeatTypes()),
		PublishTo:            types.ObjectNull(publishToTypes()),
		Mode:                 types.StringNull(),
		Snapshot:             types.ObjectNull(snapshotTypes()),
		Timeouts:             timeouts.Value{Object: types.ObjectNull(timeoutTypes())},
	}
}

// chosen are the values that are the user's and decide about the roll.
func (m clusterModel) chosen() []attr.Value {
	return []attr.Value{
		m.TalosVersion, m.KubernetesVersion, m.Context, m.Order, m.RebootMode, m.NodeTimeout, m.Drain, m.InstallerImage,
		m.AllowIntermediate, m.IntermediateVersions, m.AllowUnknown, m.MaxUnavailable, m.Canary, m.Settle, m.NodeOverrides, m.Kubernetes,
		m.Preflight, m.EtcdSnapshot, m.Gates, m.MaintenanceWindow, m.SyncInstallImage, m.OnFailure, m.Repeat, m.PublishTo, m.Mode,
	}
}

// sameAs tells whether both say the same in everything that is the user's.
func (m clusterModel) sameAs(other clusterModel) bool {
	return slices.EqualFunc(m.chosen(), other.chosen(), attr.Value.Equal) &&
		m.Timeouts.Equal(other.Timeouts) && m.ReportPath.Equal(other.ReportPath)
}

// known tells whether everything that decides about the roll is known.
func (m clusterModel) known(ctx context.Context) bool {
	return !slices.ContainsFunc(m.chosen(), func(value attr.Value) bool { return !known(ctx, value) })
}

// known tells whether the value is known, with all that is in it.
func known(ctx context.Context, value attr.Value) bool {
	terraform, err := value.ToTerraformValue(ctx)

	return err == nil && terraform.IsFullyKnown()
}

// target is what the model asks for, with images from the factory where nothing
// names them. It must be known and valid.
func (m clusterModel) target(factory string) (cluster.Target, diag.Diagnostics) {
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
		ImageFactory:   factory,
	}, diagnostics
}

// desires tells whether the version is what the half asks for; a half that is
// not managed asks for nothing.
func desires(value types.String, running version.Version) bool {
	wanted, err := version.Parse(value.ValueString())

	return err == nil && wanted.Equal(running)
}

// versionValue is the version as state holds it: without v, null when unknown.
func versionValue(v version.Version) types.String {
	if v.IsZero() {
		return types.StringNull()
	}

	return types.StringValue(v.String())
}

// textValue is a text that may be a cluster's; null for an empty one.
func textValue(text string) types.String {
	if text == "" {
		return types.StringNull()
	}

	return types.StringValue(cluster.Printable(text))
}
