// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ datasource.DataSource                   = (*availableVersionsDataSource)(nil)
	_ datasource.DataSourceWithConfigure      = (*availableVersionsDataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*availableVersionsDataSource)(nil)
)

// availableVersionsDataSource is talosupgrade_available_versions.
type availableVersionsDataSource struct {
	clusters *connection.Clusters
}

func newAvailableVersionsDataSource() datasource.DataSource { return &availableVersionsDataSource{} }

// availableVersionsModel is the data source as read.
type availableVersionsModel struct {
	Context            types.String          `tfsdk:"context"`
	TalosVersion       types.String          `tfsdk:"talos_version"`
	KubernetesVersion  types.String          `tfsdk:"kubernetes_version"`
	IncludePreReleases types.Bool            `tfsdk:"include_prereleases"`
	ReleaseSource      *releases.SourceModel `tfsdk:"release_source"`
	TalosVersions      types.List            `tfsdk:"talos_versions"`
	KubernetesVersions types.List            `tfsdk:"kubernetes_versions"`
	Next               *productVersionsModel `tfsdk:"next"`
	Eventual           *productVersionsModel `tfsdk:"eventual"`
	LatestTalos        types.String          `tfsdk:"latest_talos"`
	LatestKubernetes   types.String          `tfsdk:"latest_kubernetes"`
	Source             *productTextsModel    `tfsdk:"source"`
	AsOf               *productTextsModel    `tfsdk:"as_of"`
}

// productVersionsModel are versions of both products.
type productVersionsModel struct {
	Talos      types.List `tfsdk:"talos"`
	Kubernetes types.List `tfsdk:"kubernetes"`
}

// productTextsModel is a text about each product.
type productTextsModel struct {
	Talos      types.String `tfsdk:"talos"`
	Kubernetes types.String `tfsdk:"kubernetes"`
}

// Metadata implements [datasource.DataSource].
func (d *availableVersionsDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_available_versions"
}

// Schema implements [datasource.DataSource].
func (d *availableVersionsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = availableVersionsSchema()
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *availableVersionsDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig implements [datasource.DataSourceWithValidateConfig].
func (d *availableVersionsDataSource) ValidateConfig(ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse) {
	var contextName, talos, kubernetes types.String

	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrname.Context), &contextName)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrname.TalosVersion), &talos)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrname.KubernetesVersion), &kubernetes)...)

	if resp.Diagnostics.HasError() {
		return
	}

	// While a configuration is validated, every input variable is unknown, and may turn out to be null.
	if talos.IsNull() && attribute.Stated(kubernetes) {
		resp.Diagnostics.AddAttributeError(path.Root(attrname.KubernetesVersion), "Incomplete versions",
			attrname.KubernetesVersion+" is set without "+attrname.TalosVersion+". Which Kubernetes releases can be reached depends on Talos: set both, "+
				"or neither to look at the cluster.")
	}

	if attribute.Stated(talos) && attribute.Stated(contextName) {
		resp.Diagnostics.AddAttributeError(path.Root(attrname.Context), "Contradictory attributes",
			attrname.Context+" names a cluster to look at, but "+attrname.TalosVersion+" says what to start from instead. Remove one of the two.")
	}
}

// Read implements [datasource.DataSource].
func (d *availableVersionsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var model availableVersionsModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	bounded, cancel := context.WithTimeout(ctx, defaultReadTimeout)
	defer cancel()

	question := releases.Question{
		Own: model.ReleaseSource, PreReleases: model.IncludePreReleases.ValueBool(), UserAgent: d.clusters.Settings.UserAgent(),
	}

	talos, diagnostics := d.clusters.Releases.List(bounded, version.Talos, question)
	resp.Diagnostics.Append(diagnostics...)

	kubernetes, diagnostics := d.clusters.Releases.List(bounded, version.Kubernetes, question)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	from, diagnostics := d.standing(bounded, model)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	model.answer(from, talos, kubernetes, d.clusters.Releases.Known().IsWithdrawn)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// standing returns the versions in the configuration, or else what the cluster runs.
func (d *availableVersionsDataSource) standing(ctx context.Context, model availableVersionsModel) (releases.RunningVersions, diag.Diagnostics) {
	if !model.TalosVersion.IsNull() {
		return model.given()
	}

	var diagnostics diag.Diagnostics

	seen, err := d.clusters.Observe(ctx, model.Context.ValueString())
	if err != nil {
		unseen := connection.Problem("find out what the cluster runs", d.clusters.Access, err)
		diagnostics.Append(diagnostic.WithDetail(unseen, unseen.Detail()+"\n\nNo cluster is needed where "+attrname.TalosVersion+" and "+attrname.KubernetesVersion+
			" say what to start from."))

		return releases.RunningVersions{}, diagnostics
	}

	var from releases.RunningVersions

	from.Lowest.Talos, from.Highest.Talos = seen.TalosVersions()
	from.Lowest.Kubernetes, from.Highest.Kubernetes = seen.KubernetesVersions()

	if from.Lowest.Kubernetes.IsZero() {
		diagnostics.AddWarning(diagnostic.About("Kubernetes version not known", seen.Name),
			"The cluster does not report which version of Kubernetes it runs. Nothing is said about Kubernetes releases, and Talos releases are not checked against it.\n\n"+
				"Make the Kubernetes API answer, or set "+attrname.TalosVersion+" and "+attrname.KubernetesVersion+", which needs no cluster.")
	}

	warnOfUnsupported(&diagnostics, from, seen.Name)

	return from, diagnostics
}

// given returns the versions in the configuration.
func (m availableVersionsModel) given() (releases.RunningVersions, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		from        releases.RunningVersions
		err         error
	)

	// Values that were unknown in the validation of the configuration were not validated then.
	if from.Lowest.Talos, err = version.Parse(m.TalosVersion.ValueString()); err != nil {
		diagnostics.AddAttributeError(path.Root(attrname.TalosVersion), "Invalid version", diagnostic.Sentence(err.Error()))
	}

	if !m.KubernetesVersion.IsNull() {
		if from.Lowest.Kubernetes, err = version.Parse(m.KubernetesVersion.ValueString()); err != nil {
			diagnostics.AddAttributeError(path.Root(attrname.KubernetesVersion), "Invalid version", diagnostic.Sentence(err.Error()))
		}
	}

	from.Highest = from.Lowest
	warnOfUnsupported(&diagnostics, from, "")

	return from, diagnostics
}

// warnOfUnsupported warns that the versions to start from are not supported. There may be a path from them to a
// supported pair, unless they are too new. name is the display name of the cluster, if one was observed.
func warnOfUnsupported(diagnostics *diag.Diagnostics, from releases.RunningVersions, name string) {
	if _, newest := compat.TalosMinors(); !diagnostics.HasError() && from.Lowest.Talos.Minor().Compare(newest) > 0 {
		diagnostics.AddAttributeWarning(path.Root(attrname.TalosVersion), diagnostic.About("Unsupported versions to start from", name),
			fmt.Sprintf("Talos %s is newer than Talos %s, the newest that this release of the provider knows, so nothing is offered.\n\nUse a newer release of the provider.", from.Lowest.Talos, newest))

		return
	}

	if diagnostics.HasError() || from.Lowest.Talos.IsZero() || from.Lowest.Kubernetes.IsZero() {
		return
	}

	if err := compat.Supports(from.Lowest.Talos, from.Lowest.Kubernetes); err != nil {
		diagnostics.AddAttributeWarning(path.Root(attrname.TalosVersion), diagnostic.About("Unsupported versions to start from", name),
			diagnostic.Sentence(err.Error())+" The versions listed as next and eventual lead back to a supported pair; the lists are empty where none does.\n\nChoose one of them, and set "+attrname.KubernetesVersion+" or "+attrname.TalosVersion+" of the cluster to that first.")
	}
}

// answer sets the computed attributes. Withdrawn releases of Talos that the user listed are listed, and not recommended.
func (m *availableVersionsModel) answer(from releases.RunningVersions, talos, kubernetes release.List, withdrawn func(version.Version) bool) {
	if m.TalosVersion.IsNull() {
		m.TalosVersion = attribute.VersionValue(from.Lowest.Talos)
		m.KubernetesVersion = attribute.VersionValue(from.Lowest.Kubernetes)
	}

	m.TalosVersions, m.KubernetesVersions = versionsValue(talos.Versions), versionsValue(kubernetes.Versions)
	m.Source = &productTextsModel{attribute.TextValue(talos.Source), attribute.TextValue(kubernetes.Source)}
	m.AsOf = &productTextsModel{attribute.TextValue(talos.AsOf), attribute.TextValue(kubernetes.AsOf)}

	ahead := releases.NewReachable(from, slices.DeleteFunc(slices.Clone(talos.Versions), withdrawn), kubernetes.Versions)

	nextTalos, nextKubernetes := ahead.Next()
	m.Next = &productVersionsModel{versionsValue(nextTalos), versionsValue(nextKubernetes)}

	eventualTalos, eventualKubernetes := ahead.Eventual()
	m.Eventual = &productVersionsModel{versionsValue(eventualTalos), versionsValue(eventualKubernetes)}

	m.LatestTalos = latestValue(from.Highest, eventualTalos, func(s plan.State) version.Version { return s.Talos })
	m.LatestKubernetes = latestValue(from.Highest, eventualKubernetes, func(s plan.State) version.Version { return s.Kubernetes })
}

// latestValue returns the newest of the versions ahead, or else what runs.
func latestValue(highest plan.State, ahead []version.Version, half func(plan.State) version.Version) types.String {
	return attribute.VersionValue(version.Highest(append([]version.Version{half(highest)}, ahead...)...))
}

// versionsValue returns the versions as a Terraform list; null if they are nil.
func versionsValue(versions []version.Version) types.List {
	if versions == nil {
		return types.ListNull(types.StringType)
	}

	elements := make([]attr.Value, 0, len(versions))
	for _, v := range versions {
		elements = append(elements, attribute.VersionValue(v))
	}

	return types.ListValueMust(types.StringType, elements)
}

func availableVersionsSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Releases of Talos and Kubernetes, and which of them a cluster can reach in one step or " +
			"step by step. If the versions to start from are given, no cluster is needed.",
		Attributes: map[string]schema.Attribute{
			attrname.Context: schema.StringAttribute{
				MarkdownDescription: "Context of the talosconfig. Default: the provider's. Cannot be combined with `talos_version`.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			attrname.TalosVersion: schema.StringAttribute{
				MarkdownDescription: "Talos version to start from, with or without `v`. Default: the lowest version that a node runs.",
				Optional:            true,
				Computed:            true,
				Validators:          []validator.String{attribute.Version()},
			},
			attrname.KubernetesVersion: schema.StringAttribute{
				MarkdownDescription: "Kubernetes version to start from, with or without `v`. Requires `talos_version`. Default: the lowest version that a node runs. " +
					"If only `talos_version` is set, it is null: Kubernetes releases are not evaluated, and Talos releases are not " +
					"checked against it.",
				Optional:   true,
				Computed:   true,
				Validators: []validator.String{attribute.Version()},
			},
			attrname.IncludePreReleases: schema.BoolAttribute{
				MarkdownDescription: "Whether to include alphas, betas and release candidates. Default: `false`. The built-in list has none.",
				Optional:            true,
			},
			attrname.ReleaseSource:      releases.SourceSchema(),
			attrname.TalosVersions:      computedVersions("Talos releases of the source, the newest last. Withdrawn ones are left out, unless `release_source` lists them by `talos_versions`."),
			attrname.KubernetesVersions: computedVersions("Kubernetes releases of the source, the newest last."),
			"next": productsSchema("Releases that one step reaches while the other product stays as it is: patches of the running minor version, and "+
				"the next minor version if the other product allows it. The newest last.", func(name string) schema.Attribute {
				return computedVersions("Next " + name + " releases.")
			}),
			"eventual": productsSchema("Releases that listed releases lead to, step by step, with the other product upgraded if "+
				"necessary. A minor version without a listed release is not passed. `talosupgrade_cluster` goes the same way, with patches that it knows or `intermediate_versions` names, with "+
				"`allow_intermediate_versions`, from Talos 1.8 on. The newest last.", func(name string) schema.Attribute {
				return computedVersions("Reachable " + name + " releases.")
			}),
			"latest_talos":      attribute.ComputedText("Newest reachable Talos release; if there is none, the highest running version."),
			"latest_kubernetes": attribute.ComputedText("Newest reachable Kubernetes release; if there is none, the highest running version."),
			"source": productsSchema("Sources of the lists of releases.", func(name string) schema.Attribute {
				return attribute.ComputedText("Source of the " + name + " releases.")
			}),
			"as_of": productsSchema("Days up to which the lists of releases are complete.", func(name string) schema.Attribute {
				return attribute.ComputedText("Day up to which the " + name + " releases are complete, such as `2026-10-01`; null if the source was asked just now or the list was given.")
			}),
		},
	}
}

func computedVersions(description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
}

// productsSchema returns an object with the same attribute for Talos and Kubernetes.
func productsSchema(description string, half func(name string) schema.Attribute) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: description,
		Computed:            true,
		Attributes:          map[string]schema.Attribute{attrname.Talos: half("Talos"), attrname.Kubernetes: half("Kubernetes")},
	}
}
