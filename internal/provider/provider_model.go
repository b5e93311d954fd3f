// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

var _ provider.ConfigValidator = credentialsValidator{}

// providerModel is the provider block as written.
type providerModel struct {
	Talosconfig         types.String `tfsdk:"talosconfig"`
	TalosconfigPath     types.String `tfsdk:"talosconfig_path"`
	Endpoints           types.List   `tfsdk:"endpoints"`
	ClientConfiguration types.Object `tfsdk:"client_configuration"`
	Context             types.String `tfsdk:"context"`
	Kubeconfig          types.String `tfsdk:"kubeconfig"`
	KubeconfigPath      types.String `tfsdk:"kubeconfig_path"`
	ReleaseSource       types.Object `tfsdk:"release_source"`
	ImageFactoryURL     types.String `tfsdk:"image_factory_url"`
}

// clientConfigurationModel is the certificate as siderolabs/talos emits it.
type clientConfigurationModel struct {
	CACertificate     types.String `tfsdk:"ca_certificate"`
	ClientCertificate types.String `tfsdk:"client_certificate"`
	ClientKey         types.String `tfsdk:"client_key"`
}

// credentials is the model without Terraform's types. Attributes that are not
// known yet are listed by name.
func (m providerModel) credentials(ctx context.Context) (credentials, diag.Diagnostics) {
	var diagnostics diag.Diagnostics

	access := credentials{}
	text := func(name string, value types.String) string {
		if value.IsUnknown() {
			access.Unknown = append(access.Unknown, name)
		}

		return value.ValueString()
	}

	access.Talosconfig = text(attrTalosconfig, m.Talosconfig)
	access.TalosconfigPath = text(attrTalosconfigPath, m.TalosconfigPath)
	access.Context = text(attrContext, m.Context)
	access.Kubeconfig = text(attrKubeconfig, m.Kubeconfig)
	access.KubeconfigPath = text(attrKubeconfigPath, m.KubeconfigPath)

	var endpoints []types.String
	if m.Endpoints.IsUnknown() {
		access.Unknown = append(access.Unknown, attrEndpoints)
	} else {
		diagnostics.Append(m.Endpoints.ElementsAs(ctx, &endpoints, false)...)
	}

	for _, endpoint := range endpoints {
		access.Endpoints = append(access.Endpoints, text(attrEndpoints, endpoint))
	}

	if m.ClientConfiguration.IsUnknown() {
		access.Unknown = append(access.Unknown, attrClientConfiguration)
	}

	if m.ClientConfiguration.IsNull() || m.ClientConfiguration.IsUnknown() {
		return access, diagnostics
	}

	var certificate clientConfigurationModel

	diagnostics.Append(m.ClientConfiguration.As(ctx, &certificate, basetypes.ObjectAsOptions{})...)
	access.Certificate = &clientCertificate{
		CA:   text(attrClientConfiguration, certificate.CACertificate),
		Cert: text(attrClientConfiguration, certificate.ClientCertificate),
		Key:  text(attrClientConfiguration, certificate.ClientKey),
	}

	return access, diagnostics
}

// credentialsValidator refuses provider blocks that contradict themselves.
type credentialsValidator struct{}

// Description implements [provider.ConfigValidator].
func (credentialsValidator) Description(context.Context) string {
	return "credentials are given in one way"
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

	given := map[string]bool{
		attrTalosconfig:         !model.Talosconfig.IsNull(),
		attrTalosconfigPath:     !model.TalosconfigPath.IsNull(),
		attrEndpoints:           !model.Endpoints.IsNull(),
		attrClientConfiguration: !model.ClientConfiguration.IsNull(),
		attrKubeconfig:          !model.Kubeconfig.IsNull(),
		attrKubeconfigPath:      !model.KubeconfigPath.IsNull(),
	}

	exclusive := [][]string{
		{attrTalosconfig, attrTalosconfigPath, attrClientConfiguration},
		{attrKubeconfig, attrKubeconfigPath},
	}
	for _, group := range exclusive {
		if present := selected(group, given); len(present) > 1 {
			resp.Diagnostics.AddAttributeError(path.Root(present[1]), "Contradictory credentials",
				"Only one of "+strings.Join(group, ", ")+" can be used, but "+strings.Join(present, " and ")+" are set. Remove all but one.")
		}
	}

	requireBoth(resp, given, attrEndpoints, attrClientConfiguration)
	requireBoth(resp, given, attrClientConfiguration, attrEndpoints)
}

func requireBoth(resp *provider.ValidateConfigResponse, given map[string]bool, present, missing string) {
	if !given[present] || given[missing] {
		return
	}

	resp.Diagnostics.AddAttributeError(path.Root(present), "Incomplete credentials",
		present+" is set without "+missing+". The two belong together: add "+missing+", or use talosconfig instead of both.")
}

// selected are the names of the group that are given.
func selected(group []string, given map[string]bool) []string {
	var present []string

	for _, name := range group {
		if given[name] {
			present = append(present, name)
		}
	}

	return present
}
