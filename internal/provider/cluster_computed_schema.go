// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// statusSchema is what status looks like. It carries no plan modifier: whether
// it changes is decided by looking at the cluster.
func statusSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Where the cluster stands, as observed.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"phase": schema.StringAttribute{
				MarkdownDescription: "`Ready`, `UpgradingTalos` or `UpgradingKubernetes` (an upgrade was left in the middle) or `UpgradeFailed`.",
				Computed:            true,
			},
			"message": schema.StringAttribute{
				MarkdownDescription: "The phase in words.",
				Computed:            true,
			},
			"talos":      halfSchema("Talos"),
			"kubernetes": halfSchema("Kubernetes"),
		},
	}
}

func halfSchema(name string) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "The " + name + " half.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"status": schema.StringAttribute{
				MarkdownDescription: "`idle` (not managed), `pending` (something else runs), `blocked` (it waits for the other half), `in-progress`, `completed` or `failed`.",
				Computed:            true,
			},
			"lowest": schema.StringAttribute{
				MarkdownDescription: "Lowest " + name + " version seen on any node that is not held.",
				Computed:            true,
			},
			"highest": schema.StringAttribute{
				MarkdownDescription: "Highest " + name + " version seen on any node that is not held.",
				Computed:            true,
			},
		},
	}
}

func nodesSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "The nodes by Kubernetes node name, as observed. What changes from minute to minute is in the data source `talosupgrade_current_versions`.",
		Computed:            true,
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				"role": schema.StringAttribute{
					MarkdownDescription: "`controlplane` or `worker`.",
					Computed:            true,
				},
				"address": schema.StringAttribute{
					MarkdownDescription: "Address under which the node is reached.",
					Computed:            true,
				},
				"talos_version": schema.StringAttribute{
					MarkdownDescription: "Talos version that runs.",
					Computed:            true,
				},
				"component_versions": schema.SingleNestedAttribute{
					MarkdownDescription: "Versions of the Kubernetes components that run on the node; null for those that do not.",
					Computed:            true,
					Attributes:          componentAttributes(),
				},
				"image": schema.StringAttribute{
					MarkdownDescription: "`machine.install.image` of the machine configuration: what a reinstallation would use. Null where the credentials may not read it.",
					Computed:            true,
				},
				"schematic": schema.StringAttribute{
					MarkdownDescription: "Image Factory schematic of the running system; null when no factory built it.",
					Computed:            true,
				},
				"platform": schema.StringAttribute{
					MarkdownDescription: "Platform, as Talos calls it: `metal`, `aws`, ...",
					Computed:            true,
				},
			},
		},
	}
}

func componentAttributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{}
	for _, name := range componentNames() {
		attributes[name] = schema.StringAttribute{MarkdownDescription: "Version of " + name + ".", Computed: true}
	}

	return attributes
}
