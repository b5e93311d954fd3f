// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	resourceschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/roll"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ datasource.DataSource                   = (*preflightDataSource)(nil)
	_ datasource.DataSourceWithConfigure      = (*preflightDataSource)(nil)
	_ datasource.DataSourceWithValidateConfig = (*preflightDataSource)(nil)
)

// preflightDataSource is talosupgrade_preflight.
type preflightDataSource struct {
	clusters *connection.Clusters
}

func newPreflightDataSource() datasource.DataSource { return &preflightDataSource{} }

// preflightModel is the data source as read. Its inputs are the options of the resource.
type preflightModel struct {
	optionsModel

	Timeouts types.Object `tfsdk:"timeouts"`
	Passed   types.Bool   `tfsdk:"passed"`
	Summary  types.String `tfsdk:"summary"`
	Checks   []checkModel `tfsdk:"checks"`
	Hops     []hopModel   `tfsdk:"hops"`
	Steps    []stepModel  `tfsdk:"steps"`
	Held     []string     `tfsdk:"held"`
	Estimate types.Int64  `tfsdk:"estimate"`
}

// Metadata implements [datasource.DataSource].
func (d *preflightDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_preflight"
}

// Schema implements [datasource.DataSource].
func (d *preflightDataSource) Schema(ctx context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = preflightSchema(ctx)
}

// Configure implements [datasource.DataSourceWithConfigure].
func (d *preflightDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig implements [datasource.DataSourceWithValidateConfig]. It finds contradictions as in the resource, except
// between versions: those are findings.
func (d *preflightDataSource) ValidateConfig(ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse) {
	var model preflightModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	resp.Diagnostics.Append(model.validate(ctx)...)
}

// validate returns contradictions between options, as in the resource. Versions and timeouts are not among them.
func (m optionsModel) validate(ctx context.Context) diag.Diagnostics {
	asked := m.cluster()

	diagnostics := asked.validateIntermediate()
	diagnostics.Append(asked.validateCanary()...)
	diagnostics.Append(asked.validateKubernetes(ctx)...)
	diagnostics.Append(asked.validateGuards(ctx)...)
	diagnostics.Append(asked.validateOnFailure()...)
	diagnostics.Append(asked.validatePublishing()...)

	return diagnostics
}

// Read implements [datasource.DataSource].
func (d *preflightDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var model preflightModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	limit := defaultReadTimeout
	if read, isText := model.Timeouts.Attributes()[attrname.Read].(types.String); isText {
		limit = duration(path.Root(attrname.Timeouts).AtName(attrname.Read), read, defaultReadTimeout, &resp.Diagnostics)
	}

	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	resp.Diagnostics.Append(d.examine(bounded, &model)...)

	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, model)...)
	}
}

// examine makes the checks and sets the computed attributes.
func (d *preflightDataSource) examine(ctx context.Context, model *preflightModel) diag.Diagnostics {
	found, diagnostics := preflight(ctx, d.clusters, model.optionsModel)
	if diagnostics.HasError() {
		return diagnostics
	}

	model.Hops, model.Steps = newHopModels(found.made), newStepModels(found.made)
	model.Held = append([]string{}, found.made.Held...)
	model.Estimate = types.Int64Value(int64(found.made.Estimate().Seconds()))
	model.Checks = newCheckModels(found.examined)
	model.Summary = types.StringValue(checkSummary(model.Checks, len(found.made.Steps) > 0))
	model.Passed = types.BoolValue(!slices.ContainsFunc(model.Checks, func(check checkModel) bool {
		return check.Severity.ValueString() == severityError
	}))

	return diagnostics
}

// preflighted is a roll with the findings of its checks.
type preflighted struct {
	seen     connection.Observation
	made     plan.Plan
	examined engine.Examination
}

// preflight plans the roll for the options and makes all checks with which an apply begins. Nothing is written.
func preflight(ctx context.Context, c *connection.Clusters, options optionsModel) (preflighted, diag.Diagnostics) {
	const doing = "make the checks of an upgrade"

	if access, undecided := c.Undecided(ctx); undecided {
		return preflighted{}, diag.Diagnostics{connection.Problem(doing, access, connection.ErrCredentialsUnknown)}
	}

	asked := options.planned(ctx)

	// The connection is held, so that the observation and the checks share it.
	reached, release, err := c.Connect(ctx, options.Context.ValueString())
	if err != nil {
		return preflighted{}, diag.Diagnostics{connection.Problem(doing, c.Access, err)}
	}

	defer release()

	request, diagnostics := asked.requestOf(ctx, c, reached.Objects)
	if diagnostics.HasError() {
		return preflighted{}, diagnostics
	}

	seen, err := c.Observe(ctx, options.Context.ValueString())
	if err != nil {
		diagnostics.Append(connection.Problem(doing, c.Access, err))

		return preflighted{}, diagnostics
	}

	made := plan.Make(seen.Observation, request.Target, request.Policy)
	examined := makeChecks(ctx, c, reached, asked.publication(), seen, made, request)

	// The findings of cancelled checks are meaningless.
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		diagnostics.Append(connection.Problem(doing, c.Access, err))
	}

	return preflighted{seen: seen, made: made, examined: examined}, diagnostics
}

// makeChecks makes the checks of the plan. If the operator cannot be asked, that is a finding as well.
func makeChecks(
	ctx context.Context, c *connection.Clusters, reached *connection.Connection, to publication.Publication, seen connection.Observation, made plan.Plan, request engine.Request,
) engine.Examination {
	beside, err := reached.Operator(to)
	examined := engine.New(c.EngineOptions(reached, beside)).Preflight(ctx, seen.Observation, made, request, engine.Applying)

	if err != nil {
		examined.Findings = append(examined.Findings, publication.UnusableManagementFinding(to, err))
	}

	return examined
}

func preflightSchema(ctx context.Context) schema.Schema {
	attributes := map[string]schema.Attribute{
		attrname.Passed: schema.BoolAttribute{
			MarkdownDescription: "Whether an apply would go on at once: no check has the severity `error`. For a closed gate or a suspension, an apply may wait.",
			Computed:            true,
		},
		attrname.Summary: attribute.ComputedText("Result in one line, with the names of the checks that have errors."),
		attrname.Checks:  checksSchema(),
		attrname.Hops:    hopsSchema(),
		attrname.Steps:   stepsSchema(),
		attrname.Held: schema.ListAttribute{
			MarkdownDescription: "Kubernetes node names of the nodes on hold.",
			ElementType:         types.StringType,
			Computed:            true,
		},
		attrname.Estimate: schema.Int64Attribute{
			MarkdownDescription: "Estimated duration of the whole roll in seconds, from typical durations. `0` if nothing is to be done.",
			Computed:            true,
		},
		attrname.Timeouts: readTimeoutSchema(),
	}

	resource := clusterSchema(ctx)

	for _, option := range (clusterModel{}).choices() {
		if option.decides != aboutRun {
			attributes[option.name] = input(resource.Attributes[option.name])
		}
	}

	if directory, isObject := attributes[attrname.EtcdSnapshot].(schema.SingleNestedAttribute); isObject {
		directory.MarkdownDescription = "Where the resource is to save a snapshot of etcd. The data source tests whether it could, and takes none."
		attributes[attrname.EtcdSnapshot] = directory
	}

	return schema.Schema{
		MarkdownDescription: "Plans an upgrade and makes its checks without upgrading anything. It returns the whole roll as data, and all checks with which an apply of `talosupgrade_cluster` begins, " +
			"including whether the pods of every node can be evicted. It takes the options of the resource, and versions that need not be configured yet. It writes nothing to the cluster. " +
			"Findings never fail the data source, whatever their severity; it fails only if the configuration is invalid or the cluster cannot be observed.",
		Attributes: attributes,
	}
}

func readTimeoutSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Time limits of whole operations, such as `\"90s\"`.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			attrname.Read: schema.StringAttribute{
				MarkdownDescription: "Limit for the checks. Default: `1m`. What could not be asked by then has the status `unknown`.",
				Optional:            true,
				Validators:          []validator.String{attribute.Duration()},
			},
		},
	}
}

func checksSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "The checks that were made, in the order of [the guide](../guides/guards.md#all-checks). Each finding is one element, and so is a check " +
			"without findings. A check that the upgrade does not call for is not listed; nor are those that come after a finding that waiting cannot cure.",
		Computed: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name": attribute.ComputedText("Name of the check, such as `etcd-quorum`."),
			"status": attribute.ComputedText("`passed`; `warning`; `failed`; `unknown` (could not be made); or `skipped` " +
				"(did not pass, and `preflight.skip` made that a warning)."),
			"severity": attribute.ComputedText("`none`; `warning`, which stops nothing; or `error`, which stops an apply, and also a plan if waiting cannot fix it."),
			"node":     attribute.ComputedText("Kubernetes node name; null if the whole cluster is concerned."),
			"finding":  attribute.ComputedText("What was found; null if the check passed."),
			"remedy":   attribute.ComputedText("What to do about the finding; null if nothing is known or needed."),
		}},
	}
}

// input returns an attribute of the resource as an attribute of a data source: with the same description and
// validators, and never computed. It is nil for kinds of attributes that the resource does not have.
func input(attribute resourceschema.Attribute) schema.Attribute {
	text, required, optional := attribute.GetMarkdownDescription(), attribute.IsRequired(), !attribute.IsRequired()

	switch a := attribute.(type) {
	case resourceschema.StringAttribute:
		return schema.StringAttribute{MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators}
	case resourceschema.NumberAttribute:
		return schema.NumberAttribute{MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators}
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

// inputs returns the attributes for which [input] returns one.
func inputs(attributes map[string]resourceschema.Attribute) map[string]schema.Attribute {
	taken := map[string]schema.Attribute{}

	for name, attribute := range attributes {
		if made := input(attribute); made != nil {
			taken[name] = made
		}
	}

	return taken
}

// hopModel is one element of hops.
type hopModel struct {
	Product      types.String `tfsdk:"product"`
	From         types.String `tfsdk:"from"`
	To           types.String `tfsdk:"to"`
	ReleaseNotes types.String `tfsdk:"release_notes"`
}

func hopsSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Path from the running to the target versions, one minor version of one product per hop. Empty if nothing is to be upgraded or there is no path, as `checks` explains.",
		Computed:            true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"product":       attribute.ComputedText("`talos` or `kubernetes`."),
			"from":          attribute.ComputedText("Version before the hop."),
			"to":            attribute.ComputedText("Version after the hop; the same as `from` if only images change."),
			"release_notes": attribute.ComputedText("URL of the release notes; null if the version stays."),
		}},
	}
}

// newHopModels returns the hops of the plan in their order; empty, never nil.
func newHopModels(made plan.Plan) []hopModel {
	models := []hopModel{}

	for _, hop := range made.Hops {
		model := hopModel{Product: types.StringValue(string(hop.Product)), From: attribute.VersionValue(hop.From.Talos), To: attribute.VersionValue(hop.To.Talos)}
		if hop.Product == version.Kubernetes {
			model.From, model.To = attribute.VersionValue(hop.From.Kubernetes), attribute.VersionValue(hop.To.Kubernetes)
		}

		model.ReleaseNotes = attribute.TextValue(roll.ReleaseNotesURL(hop))
		models = append(models, model)
	}

	return models
}

// stepModel is one element of steps.
type stepModel struct {
	Hop        types.Int64  `tfsdk:"hop"`
	Node       types.String `tfsdk:"node"`
	Role       types.String `tfsdk:"role"`
	Component  types.String `tfsdk:"component"`
	From       types.String `tfsdk:"from"`
	To         types.String `tfsdk:"to"`
	Image      types.String `tfsdk:"image"`
	Canary     types.Bool   `tfsdk:"canary"`
	Pool       types.String `tfsdk:"pool"`
	Unfinished types.Bool   `tfsdk:"unfinished"`
	Estimate   types.Int64  `tfsdk:"estimate"`
}

func stepsSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "All steps of the roll in the order in which they begin: one per node in each hop of Talos, and before it one for a node that first returns to service, one per component and node in each hop of Kubernetes, " +
			"and one per sync of the bootstrap manifests. Empty if nothing is to be done or there is no path.",
		Computed: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"hop":        schema.Int64Attribute{MarkdownDescription: "Index of the hop in `hops`.", Computed: true},
			"node":       attribute.ComputedText("Kubernetes node name; null for the bootstrap manifests."),
			"role":       attribute.ComputedText("`controlplane` or `worker`; null for the bootstrap manifests."),
			"component":  attribute.ComputedText("Component that is replaced, such as `kubelet`, or `manifests` for the bootstrap manifests; null for a Talos upgrade, which restarts the node."),
			"from":       attribute.ComputedText("Version before the step."),
			"to":         attribute.ComputedText("Version after the step."),
			"image":      attribute.ComputedText("Full image reference, with tag or digest; null for the bootstrap manifests."),
			"canary":     schema.BoolAttribute{MarkdownDescription: "Whether other nodes wait for this node.", Computed: true},
			"pool":       attribute.ComputedText("Name of the worker's pool in `pools`; null if there is none."),
			"unfinished": schema.BoolAttribute{MarkdownDescription: "Whether an earlier run left this step unfinished.", Computed: true},
			"estimate":   schema.Int64Attribute{MarkdownDescription: "Estimated duration in seconds.", Computed: true},
		}},
	}
}

// newStepModels returns the steps of the plan in their order; empty, never nil.
func newStepModels(made plan.Plan) []stepModel {
	models := []stepModel{}

	for _, step := range made.Steps {
		models = append(models, stepModel{
			Hop:        types.Int64Value(int64(step.Hop)),
			Node:       attribute.TextValue(step.Node),
			Role:       attribute.TextValue(string(step.Role)),
			Component:  attribute.TextValue(string(step.Component)),
			From:       attribute.VersionValue(step.From),
			To:         attribute.VersionValue(step.To),
			Image:      attribute.TextValue(step.Image),
			Canary:     types.BoolValue(step.Canary),
			Pool:       attribute.TextValue(step.Pool),
			Unfinished: types.BoolValue(step.Finish),
			Estimate:   types.Int64Value(int64(step.Estimate.Seconds())),
		})
	}

	return models
}

// The values of status in the data source.
const (
	checkPassed  = "passed"
	checkWarning = "warning"
	checkFailed  = "failed"
	checkUnknown = "unknown"
	checkSkipped = "skipped"
)

// The values of severity in the data source.
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

// newCheckModels returns the checks that were made, in the order of the catalogue. Findings of checks that are not
// in it come last.
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
		Node:     attribute.TextValue(finding.Node),
		Finding:  attribute.TextValue(finding.Found),
		Remedy:   attribute.TextValue(finding.Remedy),
	}
}

// checkSummary returns the result in one line, without a full stop. work is true if there is something to upgrade.
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

// counted returns a number with its noun: "1 check", "2 checks".
func counted(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", number, noun)
}
