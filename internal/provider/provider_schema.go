// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
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
	attrManagement          = "management"
	attrCredentialsFrom     = "credentials_from"
)

func providerSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Upgrades Talos clusters in place, node by node. The provider holds the credentials of the Talos API " +
			"and of the Kubernetes API; it needs them only where a cluster is really looked at.\n\n" +
			"Credentials of the Talos API are taken from the first of `talosconfig`, `talosconfig_path`, " +
			"`endpoints` with `client_configuration`, and the environment variable `TALOSCONFIG`; with `credentials_from`, from there alone.",
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
			attrManagement:      providerManagement(),
			attrCredentialsFrom: providerCredentialsFrom(),
			attrReleaseSource:   providerReleaseSource(),
			attrImageFactoryURL: providerImageFactoryURL(),
		},
	}
}

func providerManagement() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "The Kubernetes API of another cluster, which holds objects about the one that is upgraded: what `publish_to` of a resource names, and what `credentials_from` names. " +
			"It takes one of `kubeconfig` and `kubeconfig_path`. Unset: all objects are in the upgraded cluster itself.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			attrKubeconfig: schema.StringAttribute{
				MarkdownDescription: "Kubeconfig of the management cluster as YAML.",
				Optional:            true,
				Sensitive:           true,
			},
			attrKubeconfigPath: schema.StringAttribute{
				MarkdownDescription: "Path of a kubeconfig of the management cluster, instead of `kubeconfig`.",
				Optional:            true,
			},
			attrContext: schema.StringAttribute{
				MarkdownDescription: "Context of that kubeconfig. Default: its current one.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
		},
	}
}

func providerCredentialsFrom() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Take the talosconfig and the kubeconfig out of the Secret that the Vitistack operator keeps beside a `KubernetesCluster` of the cluster in `management`, which it needs. " +
			"It takes the place of `talosconfig`, `talosconfig_path`, `endpoints` with `client_configuration`, `kubeconfig` and `kubeconfig_path`, and `TALOSCONFIG` is not looked at. " +
			"It belongs to one cluster.",
		Optional: true,
		Attributes: map[string]schema.Attribute{
			attrNamespace: schema.StringAttribute{
				MarkdownDescription: "Namespace of the `KubernetesCluster`.",
				Required:            true,
				Validators:          []validator.String{objectNameValidator{}},
			},
			attrName: schema.StringAttribute{
				MarkdownDescription: "Name of the `KubernetesCluster`. Where there is none of that name, a Secret of that name with the same keys, `talosconfig` and `kube.config`, does as well.",
				Required:            true,
				Validators:          []validator.String{objectNameValidator{}},
			},
		},
	}
}
