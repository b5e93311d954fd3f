// SPDX-License-Identifier: MPL-2.0

// Package releases lists the existing releases, from the source that the configuration names, and says which of them a
// cluster can be upgraded to.
package releases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// SourceModel is the source of the lists of releases.
type SourceModel struct {
	Talos              types.String `tfsdk:"talos"`
	Kubernetes         types.String `tfsdk:"kubernetes"`
	TalosVersions      types.List   `tfsdk:"talos_versions"`
	KubernetesVersions types.List   `tfsdk:"kubernetes_versions"`
}

// providerSourceModel is the source in the provider block, which may name a table as well.
type providerSourceModel struct {
	SourceModel

	Table       types.String `tfsdk:"table"`
	TableSHA256 types.String `tfsdk:"table_sha256"`
}

// productSource is the source of one product's releases in a release_source.
type productSource struct {
	location types.String
	versions types.List
	// where and whereVersions are the names of the attributes of location and versions.
	where, whereVersions string
}

func (m *SourceModel) product(product version.Product) productSource {
	if product == version.Talos {
		return productSource{m.Talos, m.TalosVersions, attrname.Talos, attrname.TalosVersions}
	}

	return productSource{m.Kubernetes, m.KubernetesVersions, attrname.Kubernetes, attrname.KubernetesVersions}
}

func (h productSource) unset() bool { return h.location.IsNull() && h.versions.IsNull() }

func (h productSource) unknown() bool {
	if h.location.IsUnknown() || h.versions.IsUnknown() {
		return true
	}

	for _, element := range h.versions.Elements() {
		if element.IsUnknown() {
			return true
		}
	}

	return false
}

// Defaults is what the provider block says about releases. It may contain values that are not known yet: most
// uses of the provider do not need them.
type Defaults struct {
	FactoryURL types.String
	Source     types.Object
	// Table is what is known about releases without any request; nil for the built-in table.
	Table *compat.Table
}

// Known returns what is known about releases without any request.
func (d Defaults) Known() *compat.Table { return cmp.Or(d.Table, compat.BuiltIn()) }

// ReadTable reads the table of releases in the provider block, if there is one. If it cannot be read, only the
// built-in table is used, with a warning.
func (d Defaults) ReadTable(ctx context.Context, userAgent string) (*compat.Table, diag.Diagnostics) {
	var model providerSourceModel

	if d.Source.IsNull() || d.TableUnknown(ctx) {
		return nil, nil
	}

	diagnostics := d.Source.As(ctx, &model, basetypes.ObjectAsOptions{})
	if diagnostics.HasError() || model.Table.IsNull() {
		return nil, diagnostics
	}

	at, err := model.tableLocation()

	var table *compat.Table
	if err == nil {
		table, err = release.ReadTable(ctx, at, release.Options{UserAgent: userAgent})
	}

	if err == nil {
		return table, diagnostics
	}

	diagnostics.AddWarning("Table of releases not read", "Unable to read "+diagnostic.Sentence(err.Error())+"\n\nWhat is built into the provider is used alone, which is as of "+compat.BuiltIn().AsOf+
		": versions that only that table withdraws are not refused. An upgrade through several minor versions is refused unless intermediate_versions names the versions to walk through, which would be chosen with that table.\n\n"+
		"Check "+attrname.ReleaseSource+"."+attrname.Table+" of the provider block.")

	return compat.BuiltIn().Without(err.Error()), diagnostics
}

// TableUnknown reports whether the table in the provider block is known only after an apply. Until then, nothing can
// be planned, because the plan could differ with the table.
func (d Defaults) TableUnknown(ctx context.Context) bool {
	var model providerSourceModel

	if d.Source.IsNull() || d.Source.IsUnknown() || d.Source.As(ctx, &model, basetypes.ObjectAsOptions{}).HasError() {
		return d.Source.IsUnknown()
	}

	return model.Table.IsUnknown() || model.TableSHA256.IsUnknown()
}

// tableLocation returns where the table is. A path may begin with the home directory.
func (m providerSourceModel) tableLocation() (release.TableLocation, error) {
	location, err := attribute.ExpandHome(m.Table.ValueString())

	return release.TableLocation{Location: location, SHA256: m.TableSHA256.ValueString()}, err
}

// ImageFactory returns the prefix of the factory's image names; empty for the public factory.
func (d Defaults) ImageFactory() string {
	return factoryName(d.FactoryURL.ValueString())
}

// factoryName returns the prefix of the image names of the factory at the URL.
func factoryName(url string) string {
	_, name, _ := strings.Cut(url, "://")

	return strings.TrimRight(name, "/")
}

// Question is a request for releases by a data source.
type Question struct {
	// Own overrides the provider block, for each product separately. It may be nil.
	Own         *SourceModel
	PreReleases bool
	UserAgent   string
}

// List requests the releases of one product from its source.
func (d Defaults) List(ctx context.Context, product version.Product, question Question) (release.List, diag.Diagnostics) {
	source, diagnostics := d.open(ctx, product, question)
	if diagnostics.HasError() {
		return release.List{}, diagnostics
	}

	list, err := source.Versions(ctx)
	if err != nil {
		diagnostics.Append(question.locate(product, Unlisted(product, err)))
	}

	return list, diagnostics
}

// locate makes the diagnostic point at the attribute, if it is in the data source itself.
func (q Question) locate(product version.Product, problem diag.Diagnostic) diag.Diagnostic {
	if q.Own == nil || q.Own.product(product).unset() {
		return problem
	}

	half := q.Own.product(product)

	attribute := half.where
	if half.location.IsNull() {
		attribute = half.whereVersions
	}

	return diag.NewAttributeErrorDiagnostic(path.Root(attrname.ReleaseSource).AtName(attribute), problem.Summary(), problem.Detail())
}

// open returns the source in the data source, or else the one in the provider block.
func (d Defaults) open(ctx context.Context, product version.Product, question Question) (release.Source, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	options := release.Options{
		PreReleases: question.PreReleases, UserAgent: question.UserAgent, FactoryURL: d.FactoryURL.ValueString(), Table: d.Known(),
	}

	if d.TableUnknown(ctx) && !d.Source.IsUnknown() {
		return nil, undecidedReleases(product, attrname.ReleaseSource+"."+attrname.Table)
	}

	if question.Own != nil && !question.Own.product(product).unset() {
		return d.openProduct(ctx, product, question.Own.product(product), options)
	}

	if d.Source.IsUnknown() {
		return nil, undecidedReleases(product, attrname.ReleaseSource)
	}

	var model providerSourceModel

	if !d.Source.IsNull() {
		diagnostics.Append(d.Source.As(ctx, &model, basetypes.ObjectAsOptions{})...)

		if diagnostics.HasError() {
			return nil, diagnostics
		}
	}

	return d.openProduct(ctx, product, model.product(product), options)
}

func (d Defaults) openProduct(ctx context.Context, product version.Product, half productSource, options release.Options) (release.Source, diag.Diagnostics) {
	if half.unknown() {
		return nil, undecidedReleases(product, attrname.ReleaseSource)
	}

	if !half.versions.IsNull() {
		return givenReleases(ctx, product, half, options)
	}

	location := half.location.ValueString()
	if half.location.IsNull() {
		location = release.Embedded
	}

	if location == release.Factory && d.FactoryURL.IsUnknown() {
		return nil, undecidedReleases(product, attrname.ImageFactoryURL)
	}

	source, err := release.New(product, location, options)
	if err != nil {
		return nil, diag.Diagnostics{diag.NewErrorDiagnostic("Invalid source of releases", attrname.ReleaseSource+"."+half.where+": "+err.Error()+".")}
	}

	return source, nil
}

func givenReleases(ctx context.Context, product version.Product, half productSource, options release.Options) (release.Source, diag.Diagnostics) {
	var (
		texts    []types.String
		versions []version.Version
	)

	diagnostics := half.versions.ElementsAs(ctx, &texts, false)

	// Values that were unknown in the validation of the configuration were not validated then.
	for index, text := range texts {
		if text.IsNull() {
			diagnostics.AddError("Missing value", fmt.Sprintf("%s.%s[%d] is null. Give it a value, or remove it from the list.",
				attrname.ReleaseSource, half.whereVersions, index))

			continue
		}

		parsed, err := version.Parse(text.ValueString())
		if err != nil {
			diagnostics.AddError("Invalid version", attrname.ReleaseSource+"."+half.whereVersions+": "+err.Error()+".")

			continue
		}

		versions = append(versions, parsed)
	}

	return release.Given(attrname.ReleaseSource+"."+half.whereVersions, product, versions, options), diagnostics
}

func undecidedReleases(product version.Product, attribute string) diag.Diagnostics {
	return diag.Diagnostics{diag.NewErrorDiagnostic("Unable to list the releases of "+product.Name(),
		"The provider configuration depends on a value that is known only after an apply ("+attribute+").\n\n"+
			"Apply what it comes from first, for example with -target, or set "+attrname.ReleaseSource+" in the data source.")}
}

// Unlisted returns the diagnostic of a source that returned no list.
func Unlisted(product version.Product, err error) diag.Diagnostic {
	summary := "Unable to list the releases of " + product.Name()

	if errors.Is(err, context.Canceled) {
		return diag.NewErrorDiagnostic(summary, "Interrupted before the source answered. Run the command again.")
	}

	half := attrname.Talos
	if product == version.Kubernetes {
		half = attrname.Kubernetes
	}

	offline := "set " + attrname.ReleaseSource + " = { " + half + ` = "` + release.Embedded + `" }, which needs no network`

	var advice string

	switch {
	case errors.Is(err, release.ErrUnreachable):
		advice = "Check that it can be reached from here and try again, or " + offline + "."
	case errors.Is(err, release.ErrDenied):
		advice = "Credentials of registries are taken from where docker login and podman login keep them; an Image Factory is asked without any. " +
			"Log in to the registry with an account that may list tags, or " + offline + "."
	case errors.Is(err, release.ErrNotFound):
		advice = "Check " + attrname.ImageFactoryURL + " where the source is the Image Factory, and the name of the repository where it is one; or " + offline + "."
	case errors.Is(err, release.ErrEmpty):
		advice = "Name a source that lists releases of " + product.Name() + ", ask for pre-releases with " + attrname.IncludePreReleases + " = true if those are what you want, or " +
			offline + "."
	default:
		advice = "Something else than a list of releases answered, such as the sign-in page of a proxy. Check the address, or " + offline + "."
	}

	return diag.NewErrorDiagnostic(summary, "Asked "+strings.TrimSuffix(err.Error(), ".")+".\n\n"+advice)
}

const (
	docReleaseSource = "Where the lists of releases come from. Default: the built-in list, which needs no network, always " +
		"gives the same answer, and says how old it is."
	docSourceTalos = "Source of Talos releases: `embedded` (default), `factory` (the version list of the Image Factory), or an OCI repository whose tags are versions, such as " +
		"`oci://ghcr.io/siderolabs/installer` (which ends with Talos 1.13) or a mirror of it."
	docSourceKubernetes = "Source of Kubernetes releases: `embedded` (default), or an OCI repository whose tags are versions, such as `oci://registry.k8s.io/kube-apiserver` or " +
		"`oci://ghcr.io/siderolabs/kubelet`."
	docSourceTable = "Table of releases that extends the built-in one: the path of a file, or an `https` URL with `table_sha256`. It adds releases, and " +
		"known problems of Talos releases, and removes nothing. Plans choose intermediate patches from it and check versions " +
		"against it. [Format and example](guides/how-it-decides.md#releases). If it cannot be read, a warning says so, only the built-in table is used, " +
		"and an upgrade through intermediate patches is refused unless `intermediate_versions` names them."
	docSourceTableSHA256        = "SHA-256 of the table, in hexadecimal. Required if `table` is a URL, so that a plan and its apply read the same."
	docSourceTalosVersions      = "List of Talos releases, instead of `talos`, such as those that you have approved."
	docSourceKubernetesVersions = "List of Kubernetes releases, instead of `kubernetes`."
)

// ProviderSourceSchema returns the provider's attribute release_source.
func ProviderSourceSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: docReleaseSource + " `talosupgrade_available_versions` uses all of it; plans and `talosupgrade_compatibility` use only `table`.",
		Optional:            true,
		Validators:          []validator.Object{tableValidator{}},
		Attributes: map[string]schema.Attribute{
			attrname.Talos: schema.StringAttribute{
				MarkdownDescription: docSourceTalos, Optional: true, Validators: locationValidators(version.Talos),
			},
			attrname.Kubernetes: schema.StringAttribute{
				MarkdownDescription: docSourceKubernetes, Optional: true, Validators: locationValidators(version.Kubernetes),
			},
			attrname.TalosVersions: schema.ListAttribute{
				MarkdownDescription: docSourceTalosVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
			attrname.KubernetesVersions: schema.ListAttribute{
				MarkdownDescription: docSourceKubernetesVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
			attrname.Table: schema.StringAttribute{MarkdownDescription: docSourceTable, Optional: true},
			attrname.TableSHA256: schema.StringAttribute{
				MarkdownDescription: docSourceTableSHA256, Optional: true,
				Validators: []validator.String{stringvalidator.AlsoRequires(path.MatchRelative().AtParent().AtName(attrname.Table))},
			},
		},
	}
}

// ImageFactorySchema returns the provider's attribute image_factory_url.
func ImageFactorySchema() schema.Attribute {
	return schema.StringAttribute{
		MarkdownDescription: "Base URL of the Image Factory. Default: `" + release.DefaultFactoryURL + "`. The source `factory` reads its list of Talos releases. " +
			"Nodes whose machine configuration names no install image get their installer from it. So do nodes with the generic installer, from Talos 1.14 on, " +
			"and earlier if they would lose their schematic, platform or secure boot.",
		Optional:   true,
		Validators: []validator.String{FactoryURLText()},
	}
}

// SourceSchema returns the attribute of a data source that overrides the provider's.
func SourceSchema() dataschema.Attribute {
	return dataschema.SingleNestedAttribute{
		MarkdownDescription: docReleaseSource + " Overrides the provider's, for `talos` and `kubernetes` separately.",
		Optional:            true,
		Attributes: map[string]dataschema.Attribute{
			attrname.Talos: dataschema.StringAttribute{
				MarkdownDescription: docSourceTalos, Optional: true, Validators: locationValidators(version.Talos),
			},
			attrname.Kubernetes: dataschema.StringAttribute{
				MarkdownDescription: docSourceKubernetes, Optional: true, Validators: locationValidators(version.Kubernetes),
			},
			attrname.TalosVersions: dataschema.ListAttribute{
				MarkdownDescription: docSourceTalosVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
			attrname.KubernetesVersions: dataschema.ListAttribute{
				MarkdownDescription: docSourceKubernetesVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
		},
	}
}

func locationValidators(product version.Product) []validator.String {
	list := attrname.TalosVersions
	if product == version.Kubernetes {
		list = attrname.KubernetesVersions
	}

	return []validator.String{
		LocationText(product),
		stringvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName(list)),
	}
}

func versionListValidators() []validator.List {
	return []validator.List{listvalidator.SizeAtLeast(1), attribute.Present(), listvalidator.ValueStringsAre(attribute.Version())}
}

var _ validator.Object = tableValidator{}

// LocationText accepts sources of the releases of a product.
func LocationText(product version.Product) attribute.Text {
	return attribute.Text{Accepts: "name a source of the releases of " + product.Name(), Check: func(at path.Path, text string) diag.Diagnostic {
		if _, err := release.New(product, text, release.Options{}); err != nil {
			return attribute.Problem(at, "Invalid source of releases", ": "+err.Error()+".")
		}

		return nil
	}}
}

// FactoryURLText accepts URLs of an Image Factory.
func FactoryURLText() attribute.Text {
	const accepts = "be an absolute http or https URL without credentials, query or fragment, whose host and path can begin the name of an image"

	return attribute.Text{Accepts: accepts, Check: func(at path.Path, text string) diag.Diagnostic {
		err := release.CheckFactoryURL(text)
		if err == nil {
			err = image.CheckFactory(factoryName(text))
		}

		if err != nil {
			return attribute.Problem(at, "Invalid URL of the Image Factory", ": "+err.Error()+".")
		}

		return nil
	}}
}

// tableValidator accepts locations of a table of releases.
type tableValidator struct{}

// Description implements [validator.Object].
func (tableValidator) Description(context.Context) string {
	return "table must be the path of a file, or an https URL with its SHA-256"
}

// MarkdownDescription implements [validator.Object].
func (v tableValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateObject implements [validator.Object].
func (tableValidator) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	var model providerSourceModel

	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() || req.ConfigValue.As(ctx, &model, basetypes.ObjectAsOptions{}).HasError() ||
		model.Table.IsNull() || model.Table.IsUnknown() || model.TableSHA256.IsUnknown() {
		return
	}

	at := release.TableLocation{Location: model.Table.ValueString(), SHA256: model.TableSHA256.ValueString()}
	if err := at.Check(); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path.AtName(attrname.Table), "Invalid table of releases", req.Path.AtName(attrname.Table).String()+": "+diagnostic.Sentence(err.Error())+
			"\n\nName the path of a file, or an https URL with its SHA-256 in "+attrname.TableSHA256+" (sha256sum prints it).")
	}
}
