// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ datasource.DataSource = (*compatibilityDataSource)(nil)

// compatibilityDataSource is talosupgrade_compatibility.
type compatibilityDataSource struct{}

func newCompatibilityDataSource() datasource.DataSource { return &compatibilityDataSource{} }

// compatibilityModel is the data source as read.
type compatibilityModel struct {
	TalosVersion      types.String     `tfsdk:"talos_version"`
	KubernetesVersion types.String     `tfsdk:"kubernetes_version"`
	Matrix            []matrixRowModel `tfsdk:"matrix"`
	AsOf              types.String     `tfsdk:"as_of"`
}

// matrixRowModel is what goes with one minor version of Talos.
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
	resp.TypeName = typeName + "_compatibility"
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

	fits := func(compat.Line) bool { return true }

	if !model.TalosVersion.IsNull() {
		wanted := filterMinor(&resp.Diagnostics, attrTalosVersion, model.TalosVersion)
		fits = func(line compat.Line) bool { return line.Talos == wanted }
	}

	if !model.KubernetesVersion.IsNull() {
		wanted, earlier := filterMinor(&resp.Diagnostics, attrKubernetesVersion, model.KubernetesVersion), fits
		fits = func(line compat.Line) bool {
			return earlier(line) && line.KubernetesMin.Compare(wanted) <= 0 && line.KubernetesMax.Compare(wanted) >= 0
		}
	}

	if resp.Diagnostics.HasError() {
		return
	}

	model.AsOf = textValue(compat.ReleasesAsOf())
	model.Matrix = []matrixRowModel{}

	for _, line := range compat.Lines() {
		if fits(line) {
			model.Matrix = append(model.Matrix, newMatrixRowModel(line))
		}
	}

	if len(model.Matrix) == 0 {
		resp.Diagnostics.Append(model.nothing())
	}

	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// filterMinor reads a filter. Values that were not known when the configuration
// was validated were not validated then.
func filterMinor(diagnostics *diag.Diagnostics, attribute string, value types.String) version.Minor {
	minor, ok := parseMinor(value.ValueString())
	if !ok {
		diagnostics.AddAttributeError(path.Root(attribute), "Invalid version",
			attribute+` is "`+value.ValueString()+`": `+minorValidator{}.Description(context.Background())+".")
	}

	return minor
}

func newMatrixRowModel(line compat.Line) matrixRowModel {
	row := matrixRowModel{
		Talos:              types.StringValue(line.Talos.String()),
		KubernetesMin:      types.StringValue(line.KubernetesMin.String()),
		KubernetesMax:      types.StringValue(line.KubernetesMax.String()),
		UpgradeableFromMin: types.StringValue(line.FromMin.String()),
		UpgradeableFromMax: types.StringValue(line.FromMax.String()),
		NewestTalos:        types.StringNull(),
	}

	if newest, known := compat.NewestTalos(line.Talos); known {
		row.NewestTalos = versionValue(newest)
	}

	return row
}

// nothing warns that the filter fits no row: a configuration that takes the
// first row would fail with less to go by.
func (m compatibilityModel) nothing() diag.Diagnostic {
	var asked []string

	attribute := attrKubernetesVersion
	if !m.KubernetesVersion.IsNull() {
		asked = append(asked, "Kubernetes "+m.KubernetesVersion.ValueString())
	}

	if !m.TalosVersion.IsNull() {
		asked = append([]string{"Talos " + m.TalosVersion.ValueString()}, asked...)
		attribute = attrTalosVersion
	}

	oldest, newest := compat.TalosMinors()
	oldestKubernetes, newestKubernetes := compat.KubernetesRange()

	return diag.NewAttributeWarningDiagnostic(path.Root(attribute), "No such row in the support matrix",
		"No row is about "+strings.Join(asked, " with ")+". The matrix of this version of the provider knows Talos "+oldest.String()+" to "+newest.String()+
			" and Kubernetes "+oldestKubernetes.String()+" to "+newestKubernetes.String()+".\n\n"+
			"Choose versions of these release lines, or a newer version of the provider.")
}
