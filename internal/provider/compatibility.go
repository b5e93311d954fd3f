// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ datasource.DataSourceWithConfigure = (*compatibilityDataSource)(nil)

// compatibilityDataSource is talosupgrade_compatibility.
type compatibilityDataSource struct {
	clusters *connection.Clusters
}

func newCompatibilityDataSource() datasource.DataSource { return &compatibilityDataSource{} }

// compatibilityModel is the data source as read.
type compatibilityModel struct {
	TalosVersion      types.String     `tfsdk:"talos_version"`
	KubernetesVersion types.String     `tfsdk:"kubernetes_version"`
	Matrix            []matrixRowModel `tfsdk:"matrix"`
	AsOf              types.String     `tfsdk:"as_of"`
}

// matrixRowModel is what is compatible with one minor version of Talos.
type matrixRowModel struct {
	Talos              types.String `tfsdk:"talos"`
	KubernetesMin      types.String `tfsdk:"kubernetes_min"`
	KubernetesMax      types.String `tfsdk:"kubernetes_max"`
	UpgradeableFromMin types.String `tfsdk:"upgradeable_from_min"`
	UpgradeableFromMax types.String `tfsdk:"upgradeable_from_max"`
	NewestTalos        types.String `tfsdk:"newest_talos"`
}

// Metadata implements [datasource.DataSource].
func (d *compatibilityDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_compatibility"
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *compatibilityDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
}

// Schema implements [datasource.DataSource].
func (d *compatibilityDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = compatibilitySchema()
}

// Read implements [datasource.DataSource].
func (d *compatibilityDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var model compatibilityModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	fits := func(compat.Row) bool { return true }

	if !model.TalosVersion.IsNull() {
		wanted := filterMinor(&resp.Diagnostics, attrname.TalosVersion, model.TalosVersion)
		fits = func(row compat.Row) bool { return row.Talos == wanted }
	}

	if !model.KubernetesVersion.IsNull() {
		wanted, earlier := filterMinor(&resp.Diagnostics, attrname.KubernetesVersion, model.KubernetesVersion), fits
		fits = func(row compat.Row) bool {
			return earlier(row) && row.KubernetesMin.Compare(wanted) <= 0 && row.KubernetesMax.Compare(wanted) >= 0
		}
	}

	if resp.Diagnostics.HasError() {
		return
	}

	if d.clusters.Releases.TableUnknown(ctx) {
		resp.Diagnostics.AddError("Unable to read the compatibility matrix", "The releases depend on "+attrname.ReleaseSource+" of the provider block, which is known only after an apply.\n\n"+
			"Apply what it comes from first, for example with -target.")

		return
	}

	table := d.clusters.Releases.Known()
	model.AsOf = attribute.TextValue(table.AsOf)
	model.Matrix = []matrixRowModel{}

	for _, row := range compat.Rows() {
		if fits(row) {
			model.Matrix = append(model.Matrix, newMatrixRowModel(row, table))
		}
	}

	if len(model.Matrix) == 0 {
		resp.Diagnostics.Append(model.nothing())
	}

	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// filterMinor parses a filter. Values that were unknown in the validation of the configuration were not validated
// then.
func filterMinor(diagnostics *diag.Diagnostics, name string, value types.String) version.Minor {
	minor, ok := attribute.ParseMinor(value.ValueString())
	if !ok {
		diagnostics.Append(attribute.Minor().Check(path.Root(name), value.ValueString()))
	}

	return minor
}

func newMatrixRowModel(row compat.Row, table *compat.Table) matrixRowModel {
	model := matrixRowModel{
		Talos:              types.StringValue(row.Talos.String()),
		KubernetesMin:      types.StringValue(row.KubernetesMin.String()),
		KubernetesMax:      types.StringValue(row.KubernetesMax.String()),
		UpgradeableFromMin: types.StringValue(row.FromMin.String()),
		UpgradeableFromMax: types.StringValue(row.FromMax.String()),
		NewestTalos:        types.StringNull(),
	}

	if newest, known := table.Newest(version.Talos, row.Talos); known {
		model.NewestTalos = attribute.VersionValue(newest)
	}

	return model
}

// nothing warns that the filter matches no row: a configuration that uses the first row would fail with a less
// helpful error.
func (m compatibilityModel) nothing() diag.Diagnostic {
	var asked []string

	attribute := attrname.KubernetesVersion
	if !m.KubernetesVersion.IsNull() {
		asked = append(asked, "Kubernetes "+m.KubernetesVersion.ValueString())
	}

	if !m.TalosVersion.IsNull() {
		asked = append([]string{"Talos " + m.TalosVersion.ValueString()}, asked...)
		attribute = attrname.TalosVersion
	}

	oldest, newest := compat.TalosMinors()
	oldestKubernetes, newestKubernetes := compat.KubernetesRange()

	return diag.NewAttributeWarningDiagnostic(path.Root(attribute), "No such row in the support matrix",
		"There is no row for "+strings.Join(asked, " with ")+". The matrix of this version of the provider knows Talos "+oldest.String()+" to "+newest.String()+
			" and Kubernetes "+oldestKubernetes.String()+" to "+newestKubernetes.String()+".\n\n"+
			"Choose versions among these, or a newer version of the provider.")
}

func compatibilitySchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The support matrix: for each minor version of Talos, the minor versions of Kubernetes that it supports, and the minor versions of Talos that " +
			"can be upgraded to it. It is built into the provider and needs no cluster or network.",
		Attributes: map[string]schema.Attribute{
			attrname.TalosVersion: schema.StringAttribute{
				MarkdownDescription: "Only the row of this Talos version: a version such as `1.13.4` or a minor version such as `1.13`, with or without `v`.",
				Optional:            true,
				Validators:          []validator.String{attribute.Minor()},
			},
			attrname.KubernetesVersion: schema.StringAttribute{
				MarkdownDescription: "Only the rows that support this Kubernetes version: a version such as `1.35.2` or a minor version such as `1.35`, with " +
					"or without `v`.",
				Optional:   true,
				Validators: []validator.String{attribute.Minor()},
			},
			"matrix": schema.ListNestedAttribute{
				MarkdownDescription: "The rows, newest Talos version last. If none matches, the list is empty, with a warning.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"talos":                attribute.ComputedText("Minor version of Talos, such as `1.13`."),
					"kubernetes_min":       attribute.ComputedText("Oldest supported minor version of Kubernetes."),
					"kubernetes_max":       attribute.ComputedText("Newest supported minor version of Kubernetes."),
					"upgradeable_from_min": attribute.ComputedText("Oldest minor version of Talos that its installer replaces."),
					"upgradeable_from_max": attribute.ComputedText("Newest minor version of Talos that its installer replaces. If it is newer than " +
						"`talos`, that is a downgrade, which `talosupgrade_cluster` refuses."),
					"newest_talos": attribute.ComputedText("Newest release of the minor version that was not withdrawn, in the built-in list and `release_source.table`; null if none is known."),
				}},
			},
			"as_of": attribute.ComputedText("Day up to which `newest_talos` is complete, such as `2026-10-01`."),
		},
	}
}
