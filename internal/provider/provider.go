// SPDX-License-Identifier: MPL-2.0

// Package provider implements the provider block, the resource, the data sources and the actions of Terraform around the
// engine. It decides nothing about an upgrade.
package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/functions"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
)

var (
	_ provider.Provider                     = (*talosUpgrade)(nil)
	_ provider.ProviderWithConfigValidators = (*talosUpgrade)(nil)
	_ provider.ProviderWithListResources    = (*talosUpgrade)(nil)
)

// New returns the factory of provider instances of the given version, as the plugin servers require it.
func New(version string, options ...Option) func() provider.Provider {
	shared := connection.NewSettings(version, options...)

	return func() provider.Provider { return &talosUpgrade{settings: shared} }
}

// Option changes how the provider works, for tests.
type Option = connection.Option

// WithClock makes the engine use the clock, so that a simulated cluster can run faster than real time.
func WithClock(clock engine.Clock) Option { return connection.WithClock(clock) }

type talosUpgrade struct {
	settings *connection.Settings
}

// Metadata implements [provider.Provider].
func (p *talosUpgrade) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = attrname.TypeName
	resp.Version = p.settings.Version
}

// Schema implements [provider.Provider].
func (p *talosUpgrade) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = providerSchema()
}

// ConfigValidators implements [provider.ProviderWithConfigValidators].
func (p *talosUpgrade) ConfigValidators(context.Context) []provider.ConfigValidator {
	return []provider.ConfigValidator{credentialsValidator{}}
}

// Configure implements [provider.Provider]. It reads the table of releases, if one is configured, and connects to no
// cluster. Credentials that cannot be used with any cluster are reported here, once, at their attribute. Missing or
// unknown credentials are no error here: a configuration may use the provider for things that need no cluster, so
// the first use that does need one reports them.
func (p *talosUpgrade) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var model providerModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	access, diagnostics := model.credentials(ctx)
	resp.Diagnostics.Append(diagnostics...)

	if resp.Diagnostics.HasError() {
		return
	}

	for _, found := range access.Unusable() {
		resp.Diagnostics.Append(diag.WithPath(path.Root(found.Name), connection.UnusableProblem(found.Err)))
	}

	if resp.Diagnostics.HasError() {
		return
	}

	clusters := connection.NewClusters(p.settings, access)
	clusters.Releases = releases.Defaults{FactoryURL: model.ImageFactoryURL, Source: model.ReleaseSource}

	table, diagnostics := clusters.Releases.ReadTable(ctx, p.settings.UserAgent())
	resp.Diagnostics.Append(diagnostics...)

	clusters.Releases.Table = table
	resp.ListResourceData = clusters
	resp.ResourceData = clusters
	resp.DataSourceData = clusters
	resp.ActionData = clusters
}

// Resources implements [provider.Provider].
func (p *talosUpgrade) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newClusterResource}
}

// DataSources implements [provider.Provider].
func (p *talosUpgrade) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newCurrentVersionsDataSource, newAvailableVersionsDataSource, newCompatibilityDataSource, newPreflightDataSource}
}

// ListResources implements [provider.ProviderWithListResources].
func (p *talosUpgrade) ListResources(context.Context) []func() list.ListResource {
	return []func() list.ListResource{newClusterList}
}

var _ provider.ConfigValidator = credentialsValidator{}

var _ provider.ProviderWithFunctions = (*talosUpgrade)(nil)

// providerModel is the provider block as written.
type providerModel struct {
	Talosconfig         types.String `tfsdk:"talosconfig"`
	TalosconfigPath     types.String `tfsdk:"talosconfig_path"`
	Endpoints           types.List   `tfsdk:"endpoints"`
	ClientConfiguration types.Object `tfsdk:"client_configuration"`
	Context             types.String `tfsdk:"context"`
	Kubeconfig          types.String `tfsdk:"kubeconfig"`
	KubeconfigPath      types.String `tfsdk:"kubeconfig_path"`
	Management          types.Object `tfsdk:"management"`
	CredentialsFrom     types.Object `tfsdk:"credentials_from"`
	ReleaseSource       types.Object `tfsdk:"release_source"`
	ImageFactoryURL     types.String `tfsdk:"image_factory_url"`
}

// clientConfigurationModel is the certificate as returned by the provider siderolabs/talos.
type clientConfigurationModel struct {
	CACertificate     types.String `tfsdk:"ca_certificate"`
	ClientCertificate types.String `tfsdk:"client_certificate"`
	ClientKey         types.String `tfsdk:"client_key"`
}

// managementModel is the management object.
type managementModel struct {
	Kubeconfig     types.String `tfsdk:"kubeconfig"`
	KubeconfigPath types.String `tfsdk:"kubeconfig_path"`
	Context        types.String `tfsdk:"context"`
}

// credentialsFromModel is the credentials_from object.
type credentialsFromModel struct {
	Namespace types.String `tfsdk:"namespace"`
	Name      types.String `tfsdk:"name"`
}

// credentials returns the model without Terraform's types. Attributes that are not known yet are listed by name.
func (m providerModel) credentials(ctx context.Context) (connection.Credentials, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	access := connection.Credentials{}
	text := func(name string, value types.String) string {
		if value.IsUnknown() && !slices.Contains(access.Unknown, name) {
			access.Unknown = append(access.Unknown, name)
		}

		return value.ValueString()
	}

	access.Talosconfig = text(attrname.Talosconfig, m.Talosconfig)
	access.TalosconfigPath = text(attrname.TalosconfigPath, m.TalosconfigPath)
	access.Context = text(attrname.Context, m.Context)
	access.Kubeconfig = text(attrname.Kubeconfig, m.Kubeconfig)
	access.KubeconfigPath = text(attrname.KubeconfigPath, m.KubeconfigPath)

	var endpoints []types.String
	if m.Endpoints.IsUnknown() {
		access.Unknown = append(access.Unknown, attrname.Endpoints)
	} else {
		diagnostics.Append(m.Endpoints.ElementsAs(ctx, &endpoints, false)...)
	}

	for _, endpoint := range endpoints {
		access.Endpoints = append(access.Endpoints, text(attrname.Endpoints, endpoint))
	}

	diagnostics.Append(m.elsewhere(ctx, &access, text)...)

	if m.ClientConfiguration.IsUnknown() {
		access.Unknown = append(access.Unknown, attrname.ClientConfiguration)
	}

	if m.ClientConfiguration.IsNull() || m.ClientConfiguration.IsUnknown() {
		return access, diagnostics
	}

	var certificate clientConfigurationModel

	diagnostics.Append(m.ClientConfiguration.As(ctx, &certificate, basetypes.ObjectAsOptions{})...)
	access.Certificate = &connection.ClientCertificate{
		CA:   text(attrname.ClientConfiguration, certificate.CACertificate),
		Cert: text(attrname.ClientConfiguration, certificate.ClientCertificate),
		Key:  text(attrname.ClientConfiguration, certificate.ClientKey),
	}

	return access, diagnostics
}

// elsewhere adds what the model says about a management cluster. text records attributes that are not known yet.
func (m providerModel) elsewhere(ctx context.Context, access *connection.Credentials, text func(string, types.String) string) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		management  managementModel
		from        credentialsFromModel
	)

	if m.Management.IsUnknown() {
		access.Unknown = append(access.Unknown, attrname.Management)
	}

	if m.CredentialsFrom.IsUnknown() {
		access.Unknown = append(access.Unknown, attrname.CredentialsFrom)
	}

	if !m.Management.IsNull() && !m.Management.IsUnknown() {
		diagnostics.Append(m.Management.As(ctx, &management, basetypes.ObjectAsOptions{})...)
		access.Management = &connection.ManagementAccess{
			Kubeconfig:     text(attrname.Management, management.Kubeconfig),
			KubeconfigPath: text(attrname.Management, management.KubeconfigPath),
			Context:        text(attrname.Management, management.Context),
		}
	}

	if !m.CredentialsFrom.IsNull() && !m.CredentialsFrom.IsUnknown() {
		diagnostics.Append(m.CredentialsFrom.As(ctx, &from, basetypes.ObjectAsOptions{})...)
		access.From = &connection.CredentialsSource{Namespace: text(attrname.CredentialsFrom, from.Namespace), Name: text(attrname.CredentialsFrom, from.Name)}
	}

	return diagnostics
}

// credentialsValidator refuses provider blocks that contradict themselves. An unknown value contradicts nothing, because
// it may turn out to be null: while a configuration is validated, every input variable is unknown.
type credentialsValidator struct{}

// Description implements [provider.ConfigValidator].
func (credentialsValidator) Description(context.Context) string {
	return "credentials must be given in only one way"
}

// MarkdownDescription implements [provider.ConfigValidator].
func (v credentialsValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateProvider implements [provider.ConfigValidator].
func (credentialsValidator) ValidateProvider(ctx context.Context, req provider.ValidateConfigRequest, resp *provider.ValidateConfigResponse) {
	var model providerModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	given := map[string]attr.Value{
		attrname.Talosconfig:         model.Talosconfig,
		attrname.TalosconfigPath:     model.TalosconfigPath,
		attrname.Endpoints:           model.Endpoints,
		attrname.ClientConfiguration: model.ClientConfiguration,
		attrname.Kubeconfig:          model.Kubeconfig,
		attrname.KubeconfigPath:      model.KubeconfigPath,
	}

	exclusive := [][]string{
		{attrname.Talosconfig, attrname.TalosconfigPath, attrname.ClientConfiguration},
		{attrname.Kubeconfig, attrname.KubeconfigPath},
	}
	for _, group := range exclusive {
		if present := selected(group, given); len(present) > 1 {
			resp.Diagnostics.AddAttributeError(path.Root(present[1]), "Contradictory credentials",
				"Only one of "+strings.Join(group, ", ")+" can be used, but "+strings.Join(present, " and ")+" are set. Remove all but one.")
		}
	}

	requireBoth(resp, given, attrname.Endpoints, attrname.ClientConfiguration)
	requireBoth(resp, given, attrname.ClientConfiguration, attrname.Endpoints)

	resp.Diagnostics.Append(model.validateManagement(ctx)...)
	resp.Diagnostics.Append(model.validateFrom(given)...)
}

// validateManagement requires one kubeconfig of the management cluster.
func (m providerModel) validateManagement(ctx context.Context) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		management  managementModel
	)

	if m.Management.IsNull() || m.Management.IsUnknown() {
		return diagnostics
	}

	diagnostics.Append(m.Management.As(ctx, &management, basetypes.ObjectAsOptions{})...)

	const both = attrname.Management + "." + attrname.Kubeconfig + " and " + attrname.Management + "." + attrname.KubeconfigPath

	at := path.Root(attrname.Management)

	switch text, file := management.Kubeconfig, management.KubeconfigPath; {
	case diagnostics.HasError(), text.IsUnknown(), file.IsUnknown():
	case text.IsNull() && file.IsNull():
		diagnostics.AddAttributeError(at, "Incomplete management cluster", "Neither of "+both+" is set. Set one of them, or remove "+attrname.Management+".")
	case !text.IsNull() && !file.IsNull():
		diagnostics.AddAttributeError(at, "Contradictory credentials", "Only one of "+both+" can be used, but both are set. Remove one of them.")
	}

	return diagnostics
}

// validateFrom refuses other credentials besides those from a management cluster.
func (m providerModel) validateFrom(given map[string]attr.Value) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	if !attribute.Stated(m.CredentialsFrom) {
		return diagnostics
	}

	at := path.Root(attrname.CredentialsFrom)

	if m.Management.IsNull() {
		diagnostics.AddAttributeError(at, "Incomplete credentials", attrname.CredentialsFrom+" is set without "+attrname.Management+
			", which says in which cluster to look. Add "+attrname.Management+" = { "+attrname.KubeconfigPath+" = ... }, or give the credentials themselves, for example with "+attrname.Talosconfig+".")
	}

	others := []string{attrname.Talosconfig, attrname.TalosconfigPath, attrname.Endpoints, attrname.ClientConfiguration, attrname.Kubeconfig, attrname.KubeconfigPath}
	if present := selected(others, given); len(present) > 0 {
		diagnostics.AddAttributeError(at, "Contradictory credentials",
			attrname.CredentialsFrom+" takes the place of all other credentials, but "+strings.Join(present, ", ")+" is given as well. Remove one or the other.")
	}

	return diagnostics
}

// requireBoth refuses an attribute that is set without the other one.
func requireBoth(resp *provider.ValidateConfigResponse, given map[string]attr.Value, present, missing string) {
	if !attribute.Stated(given[present]) || !given[missing].IsNull() {
		return
	}

	resp.Diagnostics.AddAttributeError(path.Root(present), "Incomplete credentials",
		present+" is set without "+missing+". The two belong together: add "+missing+", or use talosconfig instead of both.")
}

// endpointText accepts addresses of the Talos API. It refuses URLs: one with https:// is most likely that of the
// Kubernetes API.
func endpointText() attribute.Text {
	return attribute.Text{Accepts: "be a host, or a host with a port", Check: func(at path.Path, text string) diag.Diagnostic {
		// What is before an @ may be a password.
		if strings.Contains(text, "@") {
			return attribute.Problem(at, "Invalid endpoint",
				" has a user name or a password in it. The Talos API takes only the client certificate.\n\nWrite the host, or the host and the port, alone.")
		}

		_, host, isURL := strings.Cut(text, "://")
		if !isURL {
			return nil
		}

		host, _, _ = strings.Cut(host, "/")

		return attribute.Problem(at, "Invalid endpoint", fmt.Sprintf(
			" is %q, which is a URL, as of the Kubernetes API. The Talos API wants a host, or a host with a port: 50000 where there is none.\n\nWrite %q.", text, connection.HostOf(host)))
	}}
}

// credentialText refuses an empty text. If it counted as unset, the current context of a talosconfig or the file that
// the environment names would be used in its place, which may belong to another cluster.
func credentialText() attribute.Text {
	return attribute.Text{Accepts: "not be empty", Check: func(at path.Path, text string) diag.Diagnostic {
		if text != "" {
			return nil
		}

		return attribute.Problem(at, "Unusable credentials",
			" is empty, which is not the same as unset.\n\nGive it a value, or set it to null.")
	}}
}

// selected returns the names of the group that are given for certain.
func selected(group []string, given map[string]attr.Value) []string {
	var present []string

	for _, name := range group {
		if attribute.Stated(given[name]) {
			present = append(present, name)
		}
	}

	return present
}

func providerSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Upgrades Talos clusters in place, node by node. The provider holds the credentials of the Talos API " +
			"and of the Kubernetes API; it needs them only to contact a cluster.\n\n" +
			"Credentials of the Talos API are one of `talosconfig`, `talosconfig_path` and `endpoints` with `client_configuration`. If none is set, " +
			"the file that the environment variable `TALOSCONFIG` names is used. With `credentials_from`, none of them may be set, and `TALOSCONFIG` is ignored.",
		Attributes: map[string]schema.Attribute{
			attrname.Talosconfig: schema.StringAttribute{
				MarkdownDescription: "Talos client configuration as YAML, such as `data.talos_client_configuration.this.talos_config`.",
				Optional:            true,
				Sensitive:           true,
				Validators:          []validator.String{credentialText()},
			},
			attrname.TalosconfigPath: schema.StringAttribute{
				MarkdownDescription: "Path of a Talos client configuration. Default: the file that `TALOSCONFIG` names.",
				Optional:            true,
				Validators:          []validator.String{credentialText()},
			},
			attrname.Endpoints: schema.ListAttribute{
				MarkdownDescription: "Addresses of control planes, with or without a port. Requires `client_configuration`.",
				ElementType:         types.StringType,
				Optional:            true,
				Validators:          []validator.List{listvalidator.SizeAtLeast(1), listvalidator.ValueStringsAre(endpointText())},
			},
			attrname.ClientConfiguration: schema.SingleNestedAttribute{
				MarkdownDescription: "Client certificate of the Talos API, as `talos_machine_secrets.this.client_configuration` emits it. Requires `endpoints`.",
				Optional:            true,
				Attributes: map[string]schema.Attribute{
					"ca_certificate": schema.StringAttribute{
						MarkdownDescription: "Certificate authority of the Talos API, PEM in base64.",
						Required:            true,
					},
					"client_certificate": schema.StringAttribute{
						MarkdownDescription: "Client certificate, PEM in base64.",
						Required:            true,
					},
					"client_key": schema.StringAttribute{
						MarkdownDescription: "Private key of the client certificate, PEM in base64.",
						Required:            true,
						Sensitive:           true,
					},
				},
			},
			attrname.Context: schema.StringAttribute{
				MarkdownDescription: "Context of the talosconfig. Resources, data sources and actions may name another one. Default: its current context, as it is in each run: " +
					"if it changes between a plan and its apply, a first apply upgrades another cluster than the plan showed. After that, the state has the ID of the cluster, and another one is refused.",
				Optional:   true,
				Validators: []validator.String{credentialText()},
			},
			attrname.Kubeconfig: schema.StringAttribute{
				MarkdownDescription: "Kubeconfig as YAML, such as `talos_cluster_kubeconfig.this.kubeconfig_raw`. If unset, the Talos API is asked for one, " +
					"which needs the role `os:admin`. It belongs to one cluster: leave it unset if one talosconfig serves several.",
				Optional:   true,
				Sensitive:  true,
				Validators: []validator.String{credentialText()},
			},
			attrname.KubeconfigPath: schema.StringAttribute{
				MarkdownDescription: "Path of a kubeconfig, instead of `kubeconfig`. Relative paths in it are relative to the file, as for `kubectl`.",
				Optional:            true,
				Validators:          []validator.String{credentialText()},
			},
			attrname.Management:      providerManagement(),
			attrname.CredentialsFrom: providerCredentialsFrom(),
			attrname.ReleaseSource:   releases.ProviderSourceSchema(),
			attrname.ImageFactoryURL: releases.ImageFactorySchema(),
		},
	}
}

func providerManagement() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Kubernetes API of another cluster, which holds the objects that `publish_to` and `credentials_from` name. " +
			"Set one of `kubeconfig` and `kubeconfig_path`. If unset, all objects are in the upgraded cluster.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			attrname.Kubeconfig: schema.StringAttribute{
				MarkdownDescription: "Kubeconfig of the management cluster as YAML.",
				Optional:            true,
				Sensitive:           true,
				Validators:          []validator.String{credentialText()},
			},
			attrname.KubeconfigPath: schema.StringAttribute{
				MarkdownDescription: "Path of a kubeconfig of the management cluster, instead of `kubeconfig`.",
				Optional:            true,
				Validators:          []validator.String{credentialText()},
			},
			attrname.Context: schema.StringAttribute{
				MarkdownDescription: "Context of that kubeconfig. Default: its current context.",
				Optional:            true,
				Validators:          []validator.String{credentialText()},
			},
		},
	}
}

func providerCredentialsFrom() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Takes the talosconfig and the kubeconfig from the Secret that the Vitistack operator keeps beside a `KubernetesCluster` in the cluster of `management`, which is required. " +
			"It excludes all other credentials of the upgraded cluster; `TALOSCONFIG` is ignored. " +
			"It belongs to one cluster.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			attrname.Namespace: schema.StringAttribute{
				MarkdownDescription: "Namespace of the `KubernetesCluster`.",
				Required:            true,
				Validators:          []validator.String{attribute.ObjectName()},
			},
			attrname.Name: schema.StringAttribute{
				MarkdownDescription: "Name of the `KubernetesCluster`. If there is none, a Secret of that name with the keys `talosconfig` and `kube.config` is used.",
				Required:            true,
				Validators:          []validator.String{attribute.ObjectName()},
			},
		},
	}
}

// Functions implements [provider.ProviderWithFunctions].
func (p *talosUpgrade) Functions(context.Context) []func() function.Function { return functions.All() }
