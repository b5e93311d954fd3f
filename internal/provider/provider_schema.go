// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Names of the provider's attributes that diagnostics point at.
const (
	attrTalosconfig         = "talosconfig"
	attrTalosconfigPath     = "talosconfig_path"
	attrEndpoints           = "endpoints"
	attrClientConfiguration = "client_configuration"
	attrContext             = "context"
	attrKubeconfig          = "kubeconfig"
	attrKubeconfigPath      = "kubeconfig_path"
)

func providerSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Upgrades Talos clusters in place, node by node. The provider holds the credentials of the Talos API " +
			"and of the Kubernetes API; it needs them only where a cluster is really looked at.\n\n" +
			"Credentials of the Talos API are taken from the first of `talosconfig`, `talosconfig_path`, " +
			"`endpoints` with `client_configuration`, and the environment variable `TALOSCONFIG`.",
		Attributes: map[string]schema.Attribute{
			attrTalosconfig: schema.StringAttribute{
				MarkdownDescription: "Talos client configuration as YAML, such as `data.talos_client_configuration.this.talos_config`.",
				Optional:            true,
				Sensitive:           true,
			},
			attrTalosconfigPath: schema.StringAttribute{
				MarkdownDescription: "Path of a Talos client configuration. Default: the file that `TALOSCONFIG` names.",
				Optional:            true,
			},
			attrEndpoints: schema.ListAttribute{
				MarkdownDescription: "Addresses of control planes, with or without a port. Needs `client_configuration`.",
				ElementType:         types.StringType,
				Optional:            true,
			},
			attrClientConfiguration: schema.SingleNestedAttribute{
				MarkdownDescription: "Client certificate of the Talos API, as `talos_machine_secrets.this.client_configuration` emits it. Needs `endpoints`.",
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
			attrContext: schema.StringAttribute{
				MarkdownDescription: "Context of the talosconfig. Default: its current one. Resources and data sources may name another one.",
				Optional:            true,
			},
			attrKubeconfig: schema.StringAttribute{
				MarkdownDescription: "Kubeconfig as YAML, such as `talos_cluster_kubeconfig.this.kubeconfig_raw`. Default: asked from the Talos API, " +
					"which needs the role `os:admin`. It belongs to one cluster, so leave it unset where one talosconfig serves several.",
				Optional:  true,
				Sensitive: true,
			},
			attrKubeconfigPath: schema.StringAttribute{
				MarkdownDescription: "Path of a kubeconfig, instead of `kubeconfig`.",
				Optional:            true,
			},
			attrReleaseSource:   providerReleaseSource(),
			attrImageFactoryURL: providerImageFactoryURL(),
		},
	}
}
