// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ datasource.DataSource              = (*currentVersionsDataSource)(nil)
	_ datasource.DataSourceWithConfigure = (*currentVersionsDataSource)(nil)
)

// currentVersionsDataSource is talosupgrade_current_versions.
type currentVersionsDataSource struct {
	clusters *connection.Clusters
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

// rangeModel is a range of observed versions.
type rangeModel struct {
	Lowest  types.String `tfsdk:"lowest"`
	Highest types.String `tfsdk:"highest"`
}

// currentNodeModel is a node with everything that may change from minute to minute.
type currentNodeModel struct {
	Role              types.String `tfsdk:"role"`
	Address           types.String `tfsdk:"address"`
	Ready             types.Bool   `tfsdk:"ready"`
	Reachable         types.Bool   `tfsdk:"reachable"`
	Schedulable       types.Bool   `tfsdk:"schedulable"`
	TalosVersion      types.String `tfsdk:"talos_version"`
	ComponentVersions types.Object `tfsdk:"component_versions"`
	Images            types.Object `tfsdk:"images"`
	Image             types.String `tfsdk:"install_image"`
	Schematic         types.String `tfsdk:"schematic"`
	Platform          types.String `tfsdk:"platform"`
	BootID            types.String `tfsdk:"boot_id"`
}

// Metadata implements [datasource.DataSource].
func (d *currentVersionsDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_current_versions"
}

// Schema implements [datasource.DataSource].
func (d *currentVersionsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = currentVersionsSchema()
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *currentVersionsDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
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

	seen, err := d.clusters.Observe(bounded, model.Context.ValueString())
	if err != nil {
		resp.Diagnostics.Append(connection.Problem("read the current versions", d.clusters.Access, err))

		return
	}

	model.observe(seen.Observation)
	resp.Diagnostics.Append(imageWarnings(seen)...)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

func (m *currentVersionsModel) observe(observed cluster.Observation) {
	m.ID = attribute.TextValue(observed.ID)
	m.Talos = newRangeModel(observed.TalosVersions())
	m.Kubernetes = newRangeModel(observed.KubernetesVersions())
	m.Images = commonImages(observed).value()
	m.Nodes = map[string]currentNodeModel{}

	for _, node := range observed.Nodes {
		m.Nodes[node.Name] = newCurrentNodeModel(node)
	}
}

func newRangeModel(lowest, highest version.Version) *rangeModel {
	return &rangeModel{Lowest: attribute.VersionValue(lowest), Highest: attribute.VersionValue(highest)}
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
		model.BootID = attribute.TextValue(node.Machine.BootID)
	}

	return model
}

func currentVersionsSchema() schema.Schema {
	components := map[string]schema.Attribute{}
	for _, name := range componentNames() {
		components[name] = attribute.ComputedText("Version of " + name + ".")
	}

	images := map[string]schema.Attribute{attrname.Installer: attribute.ComputedText("`machine.install.image`.")}
	for _, image := range imageAttributes() {
		images[image.name] = attribute.ComputedText("Image of " + string(image.component) + ".")
	}

	return schema.Schema{
		MarkdownDescription: "What the nodes of a cluster run right now. Nodes that do not answer are listed with `reachable = false`; " +
			"if no node answers, that is an error.",
		Attributes: map[string]schema.Attribute{
			attrname.Context: schema.StringAttribute{
				MarkdownDescription: "Context of the talosconfig. Default: the provider's.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			attrname.ID:  attribute.ComputedText("Talos cluster ID. If the cluster has none, the UID of the namespace `kube-system`."),
			"talos":      rangeSchema("Talos"),
			"kubernetes": rangeSchema("Kubernetes"),
			attrname.Images: schema.SingleNestedAttribute{
				MarkdownDescription: "Images with tags on which the machine configurations of all reachable nodes agree, for tools that apply machine configurations. " +
					"An image is null if the nodes disagree, if none sets it, or if the credentials may not read machine configurations.",
				Computed:   true,
				Attributes: images,
			},
			attrname.Nodes: schema.MapNestedAttribute{
				MarkdownDescription: "Nodes by Kubernetes node name.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{
					Attributes: map[string]schema.Attribute{
						"role":    attribute.ComputedText("`controlplane` or `worker`."),
						"address": attribute.ComputedText("Address at which the node is reached."),
						"ready": schema.BoolAttribute{
							MarkdownDescription: "Whether the node is Ready; null if Kubernetes does not report it.",
							Computed:            true,
						},
						"reachable": schema.BoolAttribute{
							MarkdownDescription: "Whether the node answered over the Talos API.",
							Computed:            true,
						},
						"schedulable": schema.BoolAttribute{
							MarkdownDescription: "`false` while the node is cordoned; null if Kubernetes does not report it.",
							Computed:            true,
						},
						"talos_version": attribute.ComputedText("Running Talos version; null if the node did not answer."),
						"component_versions": schema.SingleNestedAttribute{
							MarkdownDescription: "Versions of the Kubernetes components that run on the node.",
							Computed:            true,
							Attributes:          components,
						},
						attrname.Images: schema.SingleNestedAttribute{
							MarkdownDescription: "Images with tags in the machine configuration. An image is null if it is not set or may not be read.",
							Computed:            true,
							Attributes:          images,
						},
						"install_image": attribute.ComputedText("`machine.install.image`; null if the credentials may not read it."),
						"schematic":     attribute.ComputedText("Image Factory schematic of the running system; null if no factory built it."),
						"platform":      attribute.ComputedText("Platform as Talos names it."),
						"boot_id":       attribute.ComputedText("Boot ID, which changes with every start of the kernel; null if the credentials may not read it."),
					},
				},
			},
		},
	}
}

func rangeSchema(name string) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: name + " versions on the nodes.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"lowest":  attribute.ComputedText("Lowest " + name + " version on any node."),
			"highest": attribute.ComputedText("Highest " + name + " version on any node."),
		},
	}
}

// images are references by the names of their attributes. A missing one is null.
type images map[string]string

func imageTypes() map[string]attr.Type {
	attributes := overrideImageTypes()
	attributes[attrname.Installer] = types.StringType

	return attributes
}

// value returns the images as an object of the schema.
func (i images) value() types.Object {
	values := map[string]attr.Value{}
	for name := range imageTypes() {
		values[name] = attribute.TextValue(i[name])
	}

	return types.ObjectValueMust(imageTypes(), values)
}

// nodeImages returns the images in the machine configuration of a node, for the components that it configures.
func nodeImages(node cluster.Node) images {
	found := images{}

	if node.Machine == nil || node.Machine.Config == nil {
		return found
	}

	found[attrname.Installer] = node.Machine.Config.InstallImage

	for _, each := range imageAttributes() {
		if each.component.Configured(node.Role) {
			found[each.name] = node.Machine.Config.Images[each.component]
		}
	}

	return found
}

// readableNodes returns the nodes that answer, and whether the machine configurations of all of them could be read.
func readableNodes(observed cluster.Observation) ([]cluster.Node, bool) {
	nodes := slices.DeleteFunc(observed.Managed(), func(node cluster.Node) bool { return node.Machine == nil })

	return nodes, !slices.ContainsFunc(nodes, func(node cluster.Node) bool { return node.Machine.Config == nil })
}

// commonImages returns the images on which all machine configurations agree.
func commonImages(observed cluster.Observation) images {
	common := images{}

	nodes, all := readableNodes(observed)
	if !all {
		return common
	}

	for name := range imageTypes() {
		if choices := imageChoices(nodes, name); len(choices) == 1 {
			common[name] = choices[0].image
		}
	}

	return common
}

// imageChoice is an image with the nodes whose machine configurations contain it.
type imageChoice struct {
	// image is empty if they contain none.
	image string
	nodes []string
}

// imageChoices returns the images in the named attribute of all nodes whose machine configuration sets it.
func imageChoices(nodes []cluster.Node, name string) []imageChoice {
	var choices []imageChoice

	for _, node := range nodes {
		found, decides := nodeImages(node)[name]
		if !decides {
			continue
		}

		at := slices.IndexFunc(choices, func(c imageChoice) bool { return c.image == found })
		if at < 0 {
			at = len(choices)
			choices = append(choices, imageChoice{image: found})
		}

		choices[at].nodes = append(choices[at].nodes, node.Name)
	}

	return choices
}

// imageWarnings returns warnings about images in machine configurations that may cause problems if someone else
// applies them. Installers may differ from node to node.
func imageWarnings(seen connection.Observation) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	nodes, all := readableNodes(seen.Observation)
	if !all {
		return diagnostics
	}

	var mixed []string

	for _, each := range imageAttributes() {
		choices := imageChoices(nodes, each.name)
		if len(choices) < 2 {
			continue
		}

		parts := make([]string, 0, len(choices))
		for _, choice := range choices {
			parts = append(parts, choice.String())
		}

		mixed = append(mixed, fmt.Sprintf("- %s: %s.", each.component, strings.Join(atMost(parts, readable.MaxNames, "and %d more images"), "; ")))
	}

	if len(mixed) > 0 {
		diagnostics.AddWarning(diagnostic.About("The machine configurations do not agree about images", seen.Name), strings.Join(mixed, "\n")+
			"\n\nimages is null for them, so that nothing takes the image of one node for that of all. Where an upgrade is under way this is over when it is done.\n\n"+
			"Otherwise name the same image in all machine configurations (talosctl patch machineconfig).")
	}

	if apart := apartFromConfig(nodes); len(apart) > 0 {
		diagnostics.AddWarning(diagnostic.About("Not everything runs what its machine configuration names", seen.Name), strings.Join(atMost(apart, diagnostic.MaxLines, "- and %d more differences"), "\n")+
			"\n\nApply a talosupgrade_cluster with kubernetes_version, which brings both together, or look at why it does not come up (talosctl containers --kubernetes).")
	}

	return diagnostics
}

// String returns the choice as text: "kubelet:v1.35.2 on cp-0, cp-1".
func (c imageChoice) String() string {
	named := c.image
	if named == "" {
		named = "nothing"
	}

	return named + " on " + readable.List(c.nodes)
}

// apartFromConfig returns a line for every component whose version differs from the one in the machine configuration
// of its node.
func apartFromConfig(nodes []cluster.Node) []string {
	var lines []string

	for _, node := range nodes {
		for _, each := range imageAttributes() {
			running, runs := node.Versions[each.component]
			named := nodeImages(node)[each.name]

			if !runs || named == "" {
				continue
			}

			if configured := image.Version(named); !configured.IsZero() && !configured.Equal(running) {
				lines = append(lines, fmt.Sprintf("- %s: %s runs %s, and the machine configuration names %s.", node.Name, each.component, running, named))
			}
		}
	}

	return lines
}

// atMost truncates the texts, with a last one that counts the others in the format rest. A single other text is not
// hidden.
func atMost(texts []string, most int, rest string) []string {
	hidden := len(texts) - most
	if hidden <= 1 {
		return texts
	}

	return append(texts[:most:most], fmt.Sprintf(rest, hidden))
}
