// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	resourceschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	preset "github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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
func (m preflightModel) cluster(ctx context.Context, attributes map[string]resourceschema.Attribute) clusterModel {
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

	made := plan.Make(seen.Observation, request.Target, request.Policy)
	examined := engine.New(d.clusters.engine(reached, nil)).Preflight(ctx, seen.Observation, made, request, engine.Applying)

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

// Names of the data source's attributes that code refers to.
const (
	attrPassed  = "passed"
	attrSummary = "summary"
	attrChecks  = "checks"
	attrRead    = "read"
)

// preflightInputs are the attributes that mean what they mean in the resource.
func preflightInputs() []string {
	return []string{
		attrContext, attrTalosVersion, attrKubernetesVersion, attrInstallerImage, attrAllowIntermediate, attrIntermediateVersions, attrAllowUnknown,
		attrMaxUnavailable, attrCanary, attrNodeOverrides, attrDrain, attrKubernetes, attrPreflight, attrEtcdSnapshot, attrGates, attrMaintenanceWindow,
	}
}

func preflightSchema(ctx context.Context) schema.Schema {
	attributes := map[string]schema.Attribute{
		attrPassed: schema.BoolAttribute{
			MarkdownDescription: "Whether nothing would keep an apply from going on: no check has the severity `error`.",
			Computed:            true,
		},
		attrSummary:  computedText("The result in one line, which names the checks with errors."),
		attrChecks:   checksSchema(),
		attrTimeouts: readTimeoutSchema(),
	}

	resource := clusterSchema(ctx)

	for _, name := range preflightInputs() {
		if attribute, there := resource.Attributes[name]; there {
			attributes[name] = input(attribute)
		}
	}

	if directory, isObject := attributes[attrEtcdSnapshot].(schema.SingleNestedAttribute); isObject {
		directory.MarkdownDescription = "Where the resource is to save a snapshot of etcd. Whether it could is tried out; none is taken."
		attributes[attrEtcdSnapshot] = directory
	}

	return schema.Schema{
		MarkdownDescription: "Makes the checks of an upgrade without upgrading anything: all of those that an apply of `talosupgrade_cluster` begins with, " +
			"the workloads included, for versions that need not be in any configuration yet. It writes nothing to the cluster. What it finds is listed and fails nothing by itself, " +
			"whatever the severity; it is an error only when there is no cluster to look at.",
		Attributes: attributes,
	}
}

func readTimeoutSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Limits of whole operations, such as `\"90s\"`.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			attrRead: schema.StringAttribute{
				MarkdownDescription: "How long the checks may take, default `1m`. What could not be asked by then has the status `unknown`.",
				Optional:            true,
				Validators:          []validator.String{durationValidator{}},
			},
		},
	}
}

func checksSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "The checks that were made, in the order of [the guide](../guides/guards.md): one element for a check that found nothing, and one for each thing that was " +
			"found otherwise. A check that was not made, because nothing that is to be upgraded calls for it, is not listed.",
		Computed: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name": computedText("Name of the check, such as `etcd-quorum`."),
			"status": computedText("`passed`; `warning` (worth knowing); `failed`; `unknown` (it could not be made, which counts as failed); or `skipped` " +
				"(it did not pass, and `preflight.skip` made that a warning)."),
			"severity": computedText("`none`; `warning`, which stops nothing; or `error`, which stops an apply. A problem that waiting cannot fix stops a plan as well."),
			"node":     computedText("Kubernetes node name; null for what concerns the whole cluster."),
			"finding":  computedText("What was found; null where the check passed."),
			"remedy":   computedText("What to do about it; null where nothing is known, or needed."),
		}},
	}
}

// input is an attribute of the resource as a data source takes it: with the
// same text and validators, and never computed. It is nil for kinds of attributes
// that the resource has none of.
func input(attribute resourceschema.Attribute) schema.Attribute {
	text, required, optional := attribute.GetMarkdownDescription(), attribute.IsRequired(), !attribute.IsRequired()

	switch a := attribute.(type) {
	case resourceschema.StringAttribute:
		return schema.StringAttribute{MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators}
	case resourceschema.BoolAttribute:
		return schema.BoolAttribute{MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators}
	case resourceschema.ListAttribute:
		return schema.ListAttribute{MarkdownDescription: text, Required: required, Optional: optional, ElementType: a.ElementType, Validators: a.Validators}
	case resourceschema.SetAttribute:
		return schema.SetAttribute{MarkdownDescription: text, Required: required, Optional: optional, ElementType: a.ElementType, Validators: a.Validators}
	case resourceschema.SingleNestedAttribute:
		return schema.SingleNestedAttribute{MarkdownDescription: text, Required: required, Optional: optional, Attributes: inputs(a.Attributes), Validators: a.Validators}
	case resourceschema.ListNestedAttribute:
		return schema.ListNestedAttribute{
			MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators,
			NestedObject: schema.NestedAttributeObject{Attributes: inputs(a.NestedObject.Attributes), Validators: a.NestedObject.Validators},
		}
	case resourceschema.MapNestedAttribute:
		return schema.MapNestedAttribute{
			MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators,
			NestedObject: schema.NestedAttributeObject{Attributes: inputs(a.NestedObject.Attributes), Validators: a.NestedObject.Validators},
		}
	default:
		return nil
	}
}

// inputs are the attributes that can be taken.
func inputs(attributes map[string]resourceschema.Attribute) map[string]schema.Attribute {
	taken := map[string]schema.Attribute{}

	for name, attribute := range attributes {
		if made := input(attribute); made != nil {
			taken[name] = made
		}
	}

	return taken
}

// filled is the value with the defaults of the resource's attribute in place of
// what it leaves out, which Terraform puts there for resources alone.
func filled[V attr.Value](ctx context.Context, attribute resourceschema.Attribute, value V) V {
	if full, same := withDefaults(ctx, attribute, value).(V); same {
		return full
	}

	return value
}

func withDefaults(ctx context.Context, attribute resourceschema.Attribute, value attr.Value) attr.Value {
	switch a := attribute.(type) {
	case resourceschema.StringAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.StringResponse

			a.Default.DefaultString(ctx, preset.StringRequest{}, &resp)

			return resp.PlanValue
		}
	case resourceschema.BoolAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.BoolResponse

			a.Default.DefaultBool(ctx, preset.BoolRequest{}, &resp)

			return resp.PlanValue
		}
	case resourceschema.SingleNestedAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.ObjectResponse

			a.Default.DefaultObject(ctx, preset.ObjectRequest{}, &resp)

			return resp.PlanValue
		}

		return objectWithDefaults(ctx, a.Attributes, value)
	case resourceschema.ListNestedAttribute:
		return listWithDefaults(ctx, a.NestedObject.Attributes, value)
	}

	return value
}

func objectWithDefaults(ctx context.Context, attributes map[string]resourceschema.Attribute, value attr.Value) attr.Value {
	object, isObject := value.(types.Object)
	if !isObject || object.IsNull() || object.IsUnknown() {
		return value
	}

	full := maps.Clone(object.Attributes())
	for name, nested := range full {
		full[name] = withDefaults(ctx, attributes[name], nested)
	}

	made, diagnostics := types.ObjectValue(object.AttributeTypes(ctx), full)
	if diagnostics.HasError() {
		return value
	}

	return made
}

func listWithDefaults(ctx context.Context, attributes map[string]resourceschema.Attribute, value attr.Value) attr.Value {
	list, isList := value.(types.List)
	if !isList || list.IsNull() || list.IsUnknown() {
		return value
	}

	full := list.Elements()
	for index, element := range full {
		full[index] = objectWithDefaults(ctx, attributes, element)
	}

	made, diagnostics := types.ListValue(list.ElementType(ctx), full)
	if diagnostics.HasError() {
		return value
	}

	return made
}

// How a check ended, as the data source says it.
const (
	checkPassed  = "passed"
	checkWarning = "warning"
	checkFailed  = "failed"
	checkUnknown = "unknown"
	checkSkipped = "skipped"
)

// How much that matters, as the data source says it.
const (
	severityNone    = "none"
	severityWarning = "warning"
	severityError   = "error"
)

// checkModel is one element of checks.
type checkModel struct {
	Name     types.String `tfsdk:"name"`
	Status   types.String `tfsdk:"status"`
	Severity types.String `tfsdk:"severity"`
	Node     types.String `tfsdk:"node"`
	Finding  types.String `tfsdk:"finding"`
	Remedy   types.String `tfsdk:"remedy"`
}

// newCheckModels are the checks that were made in the order of the catalogue.
// Findings under a name that is not in it come last.
func newCheckModels(examined engine.Examination) []checkModel {
	models := []checkModel{}
	byCheck := map[string][]cluster.Finding{}

	var names []string
	for _, check := range cluster.Checks() {
		names = append(names, check.Name)
	}

	for _, finding := range examined.Findings {
		byCheck[finding.Check] = append(byCheck[finding.Check], finding)

		if !slices.Contains(names, finding.Check) {
			names = append(names, finding.Check)
		}
	}

	for _, name := range names {
		for _, finding := range byCheck[name] {
			models = append(models, newCheckModel(finding))
		}

		if len(byCheck[name]) == 0 && slices.Contains(examined.Made, name) {
			models = append(models, checkModel{
				Name: types.StringValue(name), Status: types.StringValue(checkPassed), Severity: types.StringValue(severityNone),
			})
		}
	}

	return models
}

func newCheckModel(finding cluster.Finding) checkModel {
	status, severity := checkFailed, severityError

	switch {
	case finding.Skipped:
		status = checkSkipped
	case finding.Unknown:
		status = checkUnknown
	case finding.Severity == cluster.Advice:
		status = checkWarning
	}

	if finding.Severity == cluster.Advice {
		severity = severityWarning
	}

	return checkModel{
		Name:     types.StringValue(finding.Check),
		Status:   types.StringValue(status),
		Severity: types.StringValue(severity),
		Node:     textValue(finding.Node),
		Finding:  textValue(finding.Found),
		Remedy:   textValue(finding.Remedy),
	}
}

// checkSummary is the result in one line, without a full stop. Work tells that
// there is something to upgrade.
func checkSummary(models []checkModel, work bool) string {
	var failed, all []string

	warnings := 0

	for _, model := range models {
		name := model.Name.ValueString()
		if !slices.Contains(all, name) {
			all = append(all, name)
		}

		switch model.Severity.ValueString() {
		case severityWarning:
			warnings++
		case severityError:
			if !slices.Contains(failed, name) {
				failed = append(failed, name)
			}
		}
	}

	text := fmt.Sprintf("All %s passed", counted(len(all), "check"))
	if len(failed) > 0 {
		text = fmt.Sprintf("%d of %s would stop an apply: %s", len(failed), counted(len(all), "check"), strings.Join(failed, ", "))
	} else if warnings > 0 {
		text = fmt.Sprintf("None of %s would stop an apply", counted(len(all), "check"))
	}

	if warnings > 0 {
		text += ", with " + counted(warnings, "warning")
	}

	if !work && len(failed) == 0 {
		text += "; nothing is to be upgraded"
	}

	return text
}

// counted is a number with its noun: "1 check", "2 checks".
func counted(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", number, noun)
}

// How much of the bootstrap manifests a plan shows: so many objects, so many
// lines of each, and so many in all.
const (
	maxChanges   = 20
	maxDiffLines = 20
	diffLinesAll = 80
)

// inventoryAnnotation marks what the first sync of a cluster takes over.
const inventoryAnnotation = "config.k8s.io/owning-inventory"

// adopts tells whether the change only marks an object as one that was synced.
func adopts(change cluster.ManifestChange) bool {
	marked := false

	for _, line := range strings.Split(change.Diff, "\n") {
		if heading(line) || !strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "-") {
			continue
		}

		switch key, _, _ := strings.Cut(strings.TrimSpace(line[1:]), ":"); {
		case strings.HasPrefix(line, "+") && key == inventoryAnnotation:
			marked = true
		case strings.HasPrefix(line, "+") && key == "annotations", key == "generation":
		default:
			return false
		}
	}

	return marked && change.Action == cluster.ManifestConfigured
}

// heading tells whether the line of a diff names what is compared.
func heading(line string) bool {
	return strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")
}

// diffLines are the lines of a diff, indented, and no more than that many. Its
// heading only repeats the name of the object.
func diffLines(diff string, most int) []string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimRight(diff, "\n"), "\n"), heading)
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return nil
	}

	hidden := len(lines) - most

	// Hiding a single line would save nothing.
	if hidden > 1 {
		lines = append(lines[:most:most], fmt.Sprintf("... %d more lines", hidden))
	}

	for index, line := range lines {
		lines[index] = strings.TrimRight("      "+line, " ")
	}

	return lines
}
