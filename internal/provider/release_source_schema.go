// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/release"
)

// Names of the attributes about releases.
const (
	attrReleaseSource      = "release_source"
	attrImageFactoryURL    = "image_factory_url"
	attrIncludePreReleases = "include_prereleases"
	attrTalos              = "talos"
	attrKubernetes         = "kubernetes"
	attrTalosVersions      = "talos_versions"
	attrKubernetesVersions = "kubernetes_versions"
)

const (
	docReleaseSource = "Where the lists of releases come from. The default is the list that is built into the provider: it needs no network, always " +
		"gives the same answer, and says how old it is."
	docSourceTalos = "`embedded`, `factory` (the version list of the Image Factory), or an OCI repository whose tags are versions, such as " +
		"`oci://ghcr.io/siderolabs/installer` (which ends with Talos 1.13) or a mirror of it. Default: `embedded`."
	docSourceKubernetes = "`embedded`, or an OCI repository whose tags are versions, such as `oci://registry.k8s.io/kube-apiserver` or " +
		"`oci://ghcr.io/siderolabs/kubelet`. Default: `embedded`."
	docSourceTalosVersions      = "The releases of Talos themselves, instead of `talos`: those that you have approved, for example."
	docSourceKubernetesVersions = "The releases of Kubernetes themselves, instead of `kubernetes`."
)

// providerReleaseSource is the provider's attribute of that name.
func providerReleaseSource() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: docReleaseSource + " `talosupgrade_available_versions` uses it.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			attrTalos: schema.StringAttribute{
				MarkdownDescription: docSourceTalos, Optional: true, Validators: locationValidators(release.Talos),
			},
			attrKubernetes: schema.StringAttribute{
				MarkdownDescription: docSourceKubernetes, Optional: true, Validators: locationValidators(release.Kubernetes),
			},
			attrTalosVersions: schema.ListAttribute{
				MarkdownDescription: docSourceTalosVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
			attrKubernetesVersions: schema.ListAttribute{
				MarkdownDescription: docSourceKubernetesVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
		},
	}
}

// providerImageFactoryURL is the provider's attribute of that name.
func providerImageFactoryURL() schema.Attribute {
	return schema.StringAttribute{
		MarkdownDescription: "Base URL of the Image Factory, default `" + release.DefaultFactoryURL + "`. It is asked for its version list where the source of " +
			"Talos releases is `factory`, and its images are installed on nodes whose own repository does not exist any more in the new version " +
			"(the generic installer, from Talos 1.14 on) or would drop what their schematic adds.",
		Optional:   true,
		Validators: []validator.String{factoryURLValidator{}},
	}
}

// releaseSourceSchema is the attribute of a data source that overrides the
// provider's.
func releaseSourceSchema() dataschema.Attribute {
	return dataschema.SingleNestedAttribute{
		MarkdownDescription: docReleaseSource + " What is set here overrides the provider's, `talos` and `kubernetes` each by itself.",
		Optional:            true,
		Attributes: map[string]dataschema.Attribute{
			attrTalos: dataschema.StringAttribute{
				MarkdownDescription: docSourceTalos, Optional: true, Validators: locationValidators(release.Talos),
			},
			attrKubernetes: dataschema.StringAttribute{
				MarkdownDescription: docSourceKubernetes, Optional: true, Validators: locationValidators(release.Kubernetes),
			},
			attrTalosVersions: dataschema.ListAttribute{
				MarkdownDescription: docSourceTalosVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
			attrKubernetesVersions: dataschema.ListAttribute{
				MarkdownDescription: docSourceKubernetesVersions, Optional: true, ElementType: types.StringType, Validators: versionListValidators(),
			},
		},
	}
}

func locationValidators(product release.Product) []validator.String {
	list := attrTalosVersions
	if product == release.Kubernetes {
		list = attrKubernetesVersions
	}

	return []validator.String{
		locationValidator{product: product},
		stringvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName(list)),
	}
}

func versionListValidators() []validator.List {
	return []validator.List{listvalidator.SizeAtLeast(1), presentValidator{}, listvalidator.ValueStringsAre(versionValidator{})}
}

var (
	_ validator.String = locationValidator{}
	_ validator.String = factoryURLValidator{}
)

// locationValidator accepts what names a source of the releases of a product.
type locationValidator struct {
	product release.Product
}

// Description implements [validator.String].
func (v locationValidator) Description(context.Context) string {
	return "value must name a source of the releases of " + string(v.product)
}

// MarkdownDescription implements [validator.String].
func (v locationValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (v locationValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, err := release.New(v.product, req.ConfigValue.ValueString(), release.Options{}); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid source of releases", req.Path.String()+": "+err.Error()+".")
	}
}

// factoryURLValidator accepts what can be the base of an Image Factory.
type factoryURLValidator struct{}

// Description implements [validator.String].
func (factoryURLValidator) Description(context.Context) string {
	return "value must be an absolute http or https URL without credentials, query and fragment, whose host and path can begin the name of an image"
}

// MarkdownDescription implements [validator.String].
func (v factoryURLValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (factoryURLValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	err := release.CheckFactoryURL(req.ConfigValue.ValueString())
	if err == nil {
		err = image.CheckFactory(factoryName(req.ConfigValue.ValueString()))
	}

	if err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid URL of the Image Factory", req.Path.String()+": "+err.Error()+".")
	}
}
