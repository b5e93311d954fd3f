// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ datasource.DataSource                   = (*preflightDataSource)(nil)
	_ datasource.DataSourceWithConfigure      = (*preflightDataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*preflightDataSource)(nil)
)

// preflightDataSource is talosupgrade_preflight.
type preflightDataSource struct {
	clusters *clusters
}

func newPreflightDataSource() datasource.DataSource { return &preflightDataSource{} }

// preflightModel is the data source as read. Its inputs are those of the
// resource.
type preflightModel struct {
	Context              types.String `tfsdk:"context"`
	TalosVersion         types.String `tfsdk:"talos_version"`
	KubernetesVersion    types.String `tfsdk:"kubernetes_version"`
	InstallerImage       types.String `tfsdk:"installer_image"`
	AllowIntermediate    types.Bool   `tfsdk:"allow_intermediate_versions"`
	IntermediateVersions types.List   `tfsdk:"intermediate_versions"`
	AllowUnknown         types.Bool   `tfsdk:"allow_unknown_versions"`
	MaxUnavailable       types.String `tfsdk:"max_unavailable"`
	Canary               types.List   `tfsdk:"canary"`
	NodeOverrides        types.Map    `tfsdk:"node_overrides"`
	Drain                types.Object `tfsdk:"drain"`
	Kubernetes           types.Object `tfsdk:"kubernetes"`
	Preflight            types.Object `tfsdk:"preflight"`
	EtcdSnapshot         types.Object `tfsdk:"etcd_snapshot"`
	Gates                types.List   `tfsdk:"gates"`
	MaintenanceWindow    types.Object `tfsdk:"maintenance_window"`
	Timeouts             types.Object `tfsdk:"timeouts"`
	Passed               types.Bool   `tfsdk:"passed"`
	Summary              types.String `tfsdk:"summary"`
	Checks               []checkModel `tfsdk:"checks"`
}

// Metadata implements [datasource.DataSource].
func (d *preflightDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = typeName + "_preflight"
}

// Schema implements [datasource.DataSource].
func (d *preflightDataSource) Schema(ctx context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = preflightSchema(ctx)
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *preflightDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = configured(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig implements [datasource.DataSourceWithValidateConfig]: what
// contradicts itself in the resource does so here.
func (d *preflightDataSource) ValidateConfig(ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse) {
	var model preflightModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	asked := model.cluster(ctx, nil)

	resp.Diagnostics.Append(asked.validateIntermediate()...)
	resp.Diagnostics.Append(asked.validateCanary()...)
	resp.Diagnostics.Append(asked.validateKubernetes(ctx)...)
	resp.Diagnostics.Append(asked.validateGuards(ctx)...)
}

// Read implements [datasource.DataSource].
func (d *preflightDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var model preflightModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	limit := defaultReadTimeout
	if read, isText := model.Timeouts.Attributes()[attrRead].(types.String); isText {
		limit = duration(path.Root(attrTimeouts).AtName(attrRead), read, defaultReadTimeout, &resp.Diagnostics)
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	resp.Diagnostics.Append(d.examine(bounded, &model)...)

	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
	}
}

// cluster is the resource that is asked about, with defaults from its
// attributes; without any where those are nil.
func (m preflightModel) cluster(ctx context.Context, attributes map[string]schema.Attribute) clusterModel {
	made := newClusterModel(version.Version{}, version.Version{})

	made.Context = m.Context
	made.TalosVersion = m.TalosVersion
	made.KubernetesVersion = m.KubernetesVersion
	made.InstallerImage = m.InstallerImage
	made.IntermediateVersions = m.IntermediateVersions
	made.Canary = m.Canary
	made.NodeOverrides = m.NodeOverrides
	made.AllowIntermediate = filled(ctx, attributes[attrAllowIntermediate], m.AllowIntermediate)
	made.AllowUnknown = filled(ctx, attributes[attrAllowUnknown], m.AllowUnknown)
	made.MaxUnavailable = filled(ctx, attributes[attrMaxUnavailable], m.MaxUnavailable)
	made.Drain = filled(ctx, attributes[attrDrain], m.Drain)
	made.Kubernetes = filled(ctx, attributes[attrKubernetes], m.Kubernetes)
	made.Preflight = filled(ctx, attributes[attrPreflight], m.Preflight)
	made.EtcdSnapshot = filled(ctx, attributes[attrEtcdSnapshot], m.EtcdSnapshot)
	made.Gates = filled(ctx, attributes[attrGates], m.Gates)
	made.MaintenanceWindow = filled(ctx, attributes[attrMaintenanceWindow], m.MaintenanceWindow)

	return made
}

// examine makes the checks and fills in what is computed.
func (d *preflightDataSource) examine(ctx context.Context, model *preflightModel) diag.Diagnostics {
	const doing = "make the checks of an upgrade"

	if access, undecided := d.clusters.undecided(); undecided {
		return diag.Diagnostics{problem(doing, access, errUnknown)}
	}

	asked := model.cluster(ctx, clusterSchema(ctx).Attributes)

	// Held, so that the look and the checks share one connection.
	reached, release, err := d.clusters.connect(ctx, model.Context.ValueString())
	if err != nil {
		return diag.Diagnostics{problem(doing, d.clusters.access, err)}
	}

	defer release()

	request, diagnostics := asked.request(ctx, d.clusters.releases.imageFactory(), reached.objects)
	if diagnostics.HasError() {
		return diagnostics
	}

	seen, err := d.clusters.observe(ctx, model.Context.ValueString())
	if err != nil {
		diagnostics.Append(problem(doing, d.clusters.access, err))

		return diagnostics
	}

	made := plan.Make(seen.Snapshot, request.Target, request.Policy)
	examined := engine.New(d.clusters.engine(reached, nil)).Preflight(ctx, seen.Snapshot, made, request, engine.Applying)

	// Interrupted checks found out nothing.
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		diagnostics.Append(problem(doing, d.clusters.access, err))

		return diagnostics
	}

	model.Checks = newCheckModels(examined)
	model.Summary = types.StringValue(checkSummary(model.Checks, len(made.Steps) > 0))
	model.Passed = types.BoolValue(!slices.ContainsFunc(model.Checks, func(check checkModel) bool {
		return check.Severity.ValueString() == severityError
	}))

	return diagnostics
}
