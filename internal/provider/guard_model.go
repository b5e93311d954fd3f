// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/snapshot"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// gateModel is one element of gates.
type gateModel struct {
	Preset     types.String `tfsdk:"preset"`
	APIVersion types.String `tfsdk:"api_version"`
	Kind       types.String `tfsdk:"kind"`
	Namespace  types.String `tfsdk:"namespace"`
	Name       types.String `tfsdk:"name"`
	Selector   types.String `tfsdk:"selector"`
	Expr       types.String `tfsdk:"expr"`
	Timeout    types.String `tfsdk:"timeout"`
}

// windowModel is the maintenance_window object.
type windowModel struct {
	Cron     types.String `tfsdk:"cron"`
	Duration types.String `tfsdk:"duration"`
	TimeZone types.String `tfsdk:"time_zone"`
}

func skipTypes() map[string]attr.Type {
	return map[string]attr.Type{attrSkip: types.SetType{ElemType: types.StringType}}
}

func directoryTypes() map[string]attr.Type {
	return map[string]attr.Type{attrDirectory: types.StringType}
}

func gateTypes() map[string]attr.Type {
	return map[string]attr.Type{
		attrPreset: types.StringType, attrAPIVersion: types.StringType, attrKind: types.StringType, attrNamespace: types.StringType,
		attrName: types.StringType, attrSelector: types.StringType, attrExpr: types.StringType, attrTimeout: types.StringType,
	}
}

func windowTypes() map[string]attr.Type {
	return map[string]attr.Type{attrCron: types.StringType, attrDuration: types.StringType, attrTimeZone: types.StringType}
}

// skipped are the names of the checks whose findings are only warnings; nil where
// there are none.
func (m clusterModel) skipped() map[string]bool {
	set, isSet := m.Preflight.Attributes()[attrSkip].(types.Set)
	if !isSet || len(set.Elements()) == 0 {
		return nil
	}

	names := map[string]bool{}

	for _, element := range set.Elements() {
		if name, isText := element.(types.String); isText {
			names[name.ValueString()] = true
		}
	}

	return names
}

// snapshots is where a snapshot of etcd is saved; nil where none is wanted.
func (m clusterModel) snapshots() cluster.SnapshotStore {
	directory, isText := m.EtcdSnapshot.Attributes()[attrDirectory].(types.String)
	if !isText || directory.ValueString() == "" {
		return nil
	}

	return snapshot.New(directory.ValueString())
}

// rules are the gates that are known, compiled, in their order. One that is not
// fully known yet is left out, but what is known of it is judged: its expression
// may be wrong whatever the rest turns out to be.
func (m clusterModel) rules(ctx context.Context) ([]*gate.Rule, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		rules       []*gate.Rule
	)

	for index, element := range m.Gates.Elements() {
		at := path.Root(attrGates).AtListIndex(index)

		if element.IsNull() {
			diagnostics.Append(missing(at))

			continue
		}

		object, isObject := element.(types.Object)
		if !isObject || object.IsUnknown() {
			continue
		}

		var model gateModel

		more := object.As(ctx, &model, basetypes.ObjectAsOptions{})
		if model.Preset.IsUnknown() {
			continue
		}

		spec := model.spec(ctx, at, &more)
		diagnostics.Append(more...)

		if more.HasError() {
			continue
		}

		rule, err := gate.Compile(spec)
		if err != nil {
			diagnostics.Append(unusable(at, "Invalid gate", err))

			continue
		}

		if known(ctx, object) {
			rules = append(rules, rule)
		}
	}

	return rules, diagnostics
}

// spec is the gate without Terraform's types. What is not known yet and has to be
// there is something that is not wrong.
func (g gateModel) spec(ctx context.Context, at path.Path, diagnostics *diag.Diagnostics) gate.Spec {
	return gate.Spec{
		Label:  at.String(),
		Preset: g.Preset.ValueString(),
		Query: cluster.ObjectQuery{
			APIVersion: supposed(g.APIVersion, "v1"), Kind: supposed(g.Kind, "ConfigMap"),
			Namespace: g.Namespace.ValueString(), Name: g.Name.ValueString(), Selector: g.Selector.ValueString(),
		},
		Expr:    supposed(g.Expr, "has(object.metadata)"),
		Timeout: positive(ctx, at.AtName(attrTimeout), g.Timeout, diagnostics),
	}
}

// window is when nodes may be disturbed; nil is always, and what is not fully
// known yet.
func (m clusterModel) window(ctx context.Context) (cluster.Window, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		model       windowModel
	)

	if m.MaintenanceWindow.IsNull() || m.MaintenanceWindow.IsUnknown() {
		return nil, diagnostics
	}

	at := path.Root(attrMaintenanceWindow)

	diagnostics.Append(m.MaintenanceWindow.As(ctx, &model, basetypes.ObjectAsOptions{})...)

	spec := gate.WindowSpec{
		Cron: supposed(model.Cron, "0 0 * * *"), TimeZone: model.TimeZone.ValueString(),
		Duration: positive(ctx, at.AtName(attrDuration), model.Duration, &diagnostics),
	}

	if model.Duration.IsUnknown() {
		spec.Duration = time.Hour
	}

	if diagnostics.HasError() {
		return nil, diagnostics
	}

	window, err := gate.NewWindow(spec)
	if err != nil {
		diagnostics.Append(unusable(at, "Invalid maintenance window", err))

		return nil, diagnostics
	}

	if !known(ctx, m.MaintenanceWindow) {
		return nil, diagnostics
	}

	return window, diagnostics
}

// unusable is the error of a gate or a window below the path.
func unusable(at path.Path, summary string, err error) diag.Diagnostic {
	var problem *gate.Error
	if !errors.As(err, &problem) {
		return errorAt(at, summary, located(at, err))
	}

	if problem.Field != "" {
		at = at.AtName(problem.Field)
	}

	detail := paragraph(problem.Found, problem.Field)
	if problem.Remedy != "" {
		detail += "\n\n" + problem.Remedy
	}

	return errorAt(at, summary, detail)
}

// supposed is the text, or one in its place while it is not known yet.
func supposed(value types.String, meanwhile string) string {
	if value.IsUnknown() {
		return meanwhile
	}

	return value.ValueString()
}

// positive is the duration, 0 where there is none. What is wrong with it is said
// in the words of the validator, so that it is said once.
func positive(ctx context.Context, at path.Path, value types.String, diagnostics *diag.Diagnostics) time.Duration {
	var resp validator.StringResponse

	durationValidator{}.ValidateString(ctx, validator.StringRequest{Path: at, ConfigValue: value}, &resp)
	diagnostics.Append(resp.Diagnostics...)

	if value.IsNull() || resp.Diagnostics.HasError() {
		return 0
	}

	return duration(at, value, 0, diagnostics)
}

// paragraph is the text as it is where it has several lines, such as the message
// of a compiler with its mark below the source, and a sentence otherwise, in which
// the names stay as they are.
func paragraph(text string, names ...string) string {
	if strings.Contains(text, "\n") {
		return text
	}

	return sentence(text, names...)
}
