// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ datasource.DataSource              = (*currentVersionsDataSource)(nil)
	_ datasource.DataSourceWithConfigure = (*currentVersionsDataSource)(nil)
)

// currentVersionsDataSource is talosupgrade_current_versions.
type currentVersionsDataSource struct {
	clusters *clusters
}

func newCurrentVersionsDataSource() datasource.DataSource { return &currentVersionsDataSource{} }

// currentVersionsModel is the data source as read.
type currentVersionsModel struct {
	Context    types.String                `tfsdk:"context"`
	ID         types.String                `tfsdk:"id"`
	Talos      *rangeModel                 `tfsdk:"talos"`
	Kubernetes *rangeModel                 `tfsdk:"kubernetes"`
	Images     types.Object                `tfsdk:"images"`
	Nodes      map[string]currentNodeModel `tfsdk:"nodes"`
}

// rangeModel is what versions were seen.
type rangeModel struct {
	Lowest  types.String `tfsdk:"lowest"`
	Highest types.String `tfsdk:"highest"`
}

// currentNodeModel is a node with everything that changes from minute to
// minute.
type currentNodeModel struct {
	Role              types.String `tfsdk:"role"`
	Address           types.String `tfsdk:"address"`
	Ready             types.Bool   `tfsdk:"ready"`
	Reachable         types.Bool   `tfsdk:"reachable"`
	Schedulable       types.Bool   `tfsdk:"schedulable"`
	TalosVersion      types.String `tfsdk:"talos_version"`
	ComponentVersions types.Object `tfsdk:"component_versions"`
	Images            types.Object `tfsdk:"images"`
	Image             types.String `tfsdk:"image"`
	Schematic         types.String `tfsdk:"schematic"`
	Platform          types.String `tfsdk:"platform"`
	BootID            types.String `tfsdk:"boot_id"`
}

// Metadata implements [datasource.DataSource].
func (d *currentVersionsDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = typeName + "_current_versions"
}

// Schema implements [datasource.DataSource].
func (d *currentVersionsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = currentVersionsSchema()
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *currentVersionsDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = configured(req.ProviderData, &resp.Diagnostics)
}

// Read implements [datasource.DataSource].
func (d *currentVersionsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var model currentVersionsModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, defaultReadTimeout)
	defer cancel()

	seen, err := d.clusters.observe(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(problem("read the current versions", d.clusters.access, err))

		return
	}

	model.observe(seen.Snapshot)
	resp.Diagnostics.Append(imageWarnings(seen)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

func (m *currentVersionsModel) observe(snapshot cluster.Snapshot) {
	m.ID = textValue(snapshot.ID)
	m.Talos = newRangeModel(snapshot.TalosVersions())
	m.Kubernetes = newRangeModel(snapshot.KubernetesVersions())
	m.Images = commonImages(snapshot).value()
	m.Nodes = map[string]currentNodeModel{}

	for _, node := range snapshot.Nodes {
		m.Nodes[node.Name] = newCurrentNodeModel(node)
	}
}

func newRangeModel(lowest, highest version.Version) *rangeModel {
	return &rangeModel{Lowest: versionValue(lowest), Highest: versionValue(highest)}
}

func newCurrentNodeModel(node cluster.Node) currentNodeModel {
	lasting := newNodeModel(node)
	model := currentNodeModel{
		Role:              lasting.Role,
		Address:           lasting.Address,
		Ready:             types.BoolNull(),
		Reachable:         types.BoolValue(node.Machine != nil),
		Schedulable:       types.BoolNull(),
		TalosVersion:      lasting.TalosVersion,
		ComponentVersions: lasting.ComponentVersions,
		Images:            nodeImages(node).value(),
		Image:             lasting.Image,
		Schematic:         lasting.Schematic,
		Platform:          lasting.Platform,
	}

	if node.Kube != nil {
		model.Ready = types.BoolValue(node.Kube.Ready)
		model.Schedulable = types.BoolValue(!node.Kube.Unschedulable)
	}

	if node.Machine != nil {
		model.BootID = textValue(node.Machine.BootID)
	}

	return model
}
