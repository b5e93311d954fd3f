// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
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
	clusters *clusters
}

func newAvailableVersionsDataSource() datasource.DataSource { return &availableVersionsDataSource{} }

// availableVersionsModel is the data source as read.
type availableVersionsModel struct {
	Context            types.String        `tfsdk:"context"`
	TalosVersion       types.String        `tfsdk:"talos_version"`
	KubernetesVersion  types.String        `tfsdk:"kubernetes_version"`
	IncludePreReleases types.Bool          `tfsdk:"include_prereleases"`
	ReleaseSource      *releaseSourceModel `tfsdk:"release_source"`
	TalosVersions      types.List          `tfsdk:"talos_versions"`
	KubernetesVersions types.List          `tfsdk:"kubernetes_versions"`
	Next               *versionHalvesModel `tfsdk:"next"`
	Eventual           *versionHalvesModel `tfsdk:"eventual"`
	LatestTalos        types.String        `tfsdk:"latest_talos"`
	LatestKubernetes   types.String        `tfsdk:"latest_kubernetes"`
	Source             *textHalvesModel    `tfsdk:"source"`
	AsOf               *textHalvesModel    `tfsdk:"as_of"`
}

// versionHalvesModel are versions of both halves.
type versionHalvesModel struct {
	Talos      types.List `tfsdk:"talos"`
	Kubernetes types.List `tfsdk:"kubernetes"`
}

// textHalvesModel is a text about each half.
type textHalvesModel struct {
	Talos      types.String `tfsdk:"talos"`
	Kubernetes types.String `tfsdk:"kubernetes"`
}

// Metadata implements [datasource.DataSource].
func (d *availableVersionsDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = typeName + "_available_versions"
}

// Schema implements [datasource.DataSource].
func (d *availableVersionsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = availableVersionsSchema()
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *availableVersionsDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = configured(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig implements [datasource.DataSourceWithValidateConfig].
func (d *availableVersionsDataSource) ValidateConfig(ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse) {
	var contextName, talos, kubernetes types.String

	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrContext), &contextName)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrTalosVersion), &talos)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrKubernetesVersion), &kubernetes)...)

	if resp.Diagnostics.HasError() {
		return
	}

	if talos.IsNull() && !kubernetes.IsNull() {
		resp.Diagnostics.AddAttributeError(path.Root(attrKubernetesVersion), "Incomplete versions",
			attrKubernetesVersion+" is set without "+attrTalosVersion+". Which Kubernetes releases can be reached depends on Talos: set both, "+
				"or neither to look at the cluster.")
	}

	if !talos.IsNull() && !contextName.IsNull() {
		resp.Diagnostics.AddAttributeError(path.Root(attrContext), "Contradictory attributes",
			attrContext+" names a cluster to look at, but "+attrTalosVersion+" says what to start from instead. Remove one of the two.")
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

	question := releaseQuestion{
		own: model.ReleaseSource, preReleases: model.IncludePreReleases.ValueBool(), userAgent: d.clusters.settings.userAgent(),
	}

	talos, diagnostics := d.clusters.releases.list(bounded, release.Talos, question)
	resp.Diagnostics.Append(diagnostics...)

	kubernetes, diagnostics := d.clusters.releases.list(bounded, release.Kubernetes, question)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	from, diagnostics := d.standing(bounded, model)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	model.answer(from, talos, kubernetes)
	resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
}

// standing is what the configuration gives, or else what the cluster runs.
func (d *availableVersionsDataSource) standing(ctx context.Context, model availableVersionsModel) (standing, diag.Diagnostics) {
	if !model.TalosVersion.IsNull() {
		return model.given()
	}

	var diagnostics diag.Diagnostics

	seen, err := d.clusters.observe(ctx, model.Context.ValueString())
	if err != nil {
		unseen := problem("find out what the cluster runs", d.clusters.access, err)
		diagnostics.Append(withDetail(unseen, unseen.Detail()+"\n\nNo cluster is needed where "+attrTalosVersion+" and "+attrKubernetesVersion+
			" say what to start from."))

		return standing{}, diagnostics
	}

	var from standing

	from.lowest.Talos, from.highest.Talos = seen.TalosVersions()
	from.lowest.Kubernetes, from.highest.Kubernetes = seen.KubernetesVersions()

	if from.lowest.Kubernetes.IsZero() {
		diagnostics.AddWarning(about("Kubernetes version not known", seen.name),
			"The cluster does not tell which version of Kubernetes it runs. Nothing is said about Kubernetes releases, and Talos releases are not checked against it.\n\n"+
				"Make the Kubernetes API answer, or set "+attrTalosVersion+" and "+attrKubernetesVersion+", for which no cluster is looked at.")
	}

	warnOfUnsupported(&diagnostics, from, seen.name)

	return from, diagnostics
}

// given is what the configuration says.
func (m availableVersionsModel) given() (standing, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		from        standing
		err         error
	)

	// Values that were not known when the configuration was validated were not
	// validated then.
	if from.lowest.Talos, err = version.Parse(m.TalosVersion.ValueString()); err != nil {
		diagnostics.AddAttributeError(path.Root(attrTalosVersion), "Invalid version", sentence(err.Error()))
	}

	if !m.KubernetesVersion.IsNull() {
		if from.lowest.Kubernetes, err = version.Parse(m.KubernetesVersion.ValueString()); err != nil {
			diagnostics.AddAttributeError(path.Root(attrKubernetesVersion), "Invalid version", sentence(err.Error()))
		}
	}

	from.highest = from.lowest
	warnOfUnsupported(&diagnostics, from, "")

	return from, diagnostics
}

// warnOfUnsupported says that the way begins where nothing should be. It may
// lead out of there. The name is what people call the cluster, where one was
// looked at.
func warnOfUnsupported(diagnostics *diag.Diagnostics, from standing, name string) {
	if diagnostics.HasError() || from.lowest.Talos.IsZero() || from.lowest.Kubernetes.IsZero() {
		return
	}

	if err := compat.Supports(from.lowest.Talos, from.lowest.Kubernetes); err != nil {
		diagnostics.AddAttributeWarning(path.Root(attrTalosVersion), about("Unsupported versions to start from", name),
			sentence(err.Error())+" What is listed as next and eventual leads out of there; it is empty where nothing does.\n\nChoose from it, and set "+attrKubernetesVersion+" or "+attrTalosVersion+" of the cluster to that first.")
	}
}

// answer fills in what is computed.
func (m *availableVersionsModel) answer(from standing, talos, kubernetes release.List) {
	if m.TalosVersion.IsNull() {
		m.TalosVersion = versionValue(from.lowest.Talos)
		m.KubernetesVersion = versionValue(from.lowest.Kubernetes)
	}

	m.TalosVersions, m.KubernetesVersions = versionsValue(talos.Versions), versionsValue(kubernetes.Versions)
	m.Source = &textHalvesModel{textValue(talos.Source), textValue(kubernetes.Source)}
	m.AsOf = &textHalvesModel{textValue(talos.AsOf), textValue(kubernetes.AsOf)}

	ahead := newReach(from, talos.Versions, kubernetes.Versions)

	nextTalos, nextKubernetes := ahead.next()
	m.Next = &versionHalvesModel{versionsValue(nextTalos), versionsValue(nextKubernetes)}

	eventualTalos, eventualKubernetes := ahead.eventual()
	m.Eventual = &versionHalvesModel{versionsValue(eventualTalos), versionsValue(eventualKubernetes)}

	m.LatestTalos = latestValue(from.highest, eventualTalos, func(s plan.State) version.Version { return s.Talos })
	m.LatestKubernetes = latestValue(from.highest, eventualKubernetes, func(s plan.State) version.Version { return s.Kubernetes })
}

// latestValue is the newest of the versions ahead, or else what runs.
func latestValue(highest plan.State, ahead []version.Version, half func(plan.State) version.Version) types.String {
	return versionValue(version.Highest(append([]version.Version{half(highest)}, ahead...)...))
}

// versionsValue is a list as Terraform wants it; null when it is nil.
func versionsValue(versions []version.Version) types.List {
	if versions == nil {
		return types.ListNull(types.StringType)
	}

	elements := make([]attr.Value, 0, len(versions))
	for _, v := range versions {
		elements = append(elements, versionValue(v))
	}

	return types.ListValueMust(types.StringType, elements)
}
