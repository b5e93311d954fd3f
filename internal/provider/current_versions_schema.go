// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
)

func currentVersionsSchema() schema.Schema {
	components := map[string]schema.Attribute{}
	for _, name := range componentNames() {
		components[name] = computedText("Version of " + name + ".")
	}

	images := map[string]schema.Attribute{attrInstaller: computedText("`machine.install.image`.")}
	for _, image := range imageAttributes() {
		images[image.name] = computedText("Image of " + string(image.component) + ".")
	}

	return schema.Schema{
		MarkdownDescription: "What the nodes of a cluster run right now. Nodes that do not answer are listed with `reachable = false`; " +
			"a cluster of which no node answers is an error.",
		Attributes: map[string]schema.Attribute{
			attrContext: schema.StringAttribute{
				MarkdownDescription: "Context of the talosconfig. Default: the provider's.",
				Optional:            true,
			},
			attrID:       computedText("Talos cluster ID, or the UID of the namespace `kube-system` where discovery is off."),
			"talos":      rangeSchema("Talos"),
			"kubernetes": rangeSchema("Kubernetes"),
			attrImages: schema.SingleNestedAttribute{
				MarkdownDescription: "Images, with their tags, on which the machine configurations of all nodes agree, for those who apply machine configurations by other means. " +
					"Null where they disagree, where nothing is set, and where the credentials may not read machine configurations.",
				Computed:   true,
				Attributes: images,
			},
			attrNodes: schema.MapNestedAttribute{
				MarkdownDescription: "The nodes by Kubernetes node name.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{
					Attributes: map[string]schema.Attribute{
						"role":    computedText("`controlplane` or `worker`."),
						"address": computedText("Address under which the node is reached."),
						"ready": schema.BoolAttribute{
							MarkdownDescription: "Whether Kubernetes reports the node as Ready; null when Kubernetes did not answer.",
							Computed:            true,
						},
						"reachable": schema.BoolAttribute{
							MarkdownDescription: "Whether the node answered over the Talos API.",
							Computed:            true,
						},
						"schedulable": schema.BoolAttribute{
							MarkdownDescription: "False while the node is cordoned; null when Kubernetes did not answer.",
							Computed:            true,
						},
						"talos_version": computedText("Talos version that runs."),
						"component_versions": schema.SingleNestedAttribute{
							MarkdownDescription: "Versions of the Kubernetes components that run on the node.",
							Computed:            true,
							Attributes:          components,
						},
						attrImages: schema.SingleNestedAttribute{
							MarkdownDescription: "Images, with their tags, that the machine configuration of the node names; null where it names none or may not be read.",
							Computed:            true,
							Attributes:          images,
						},
						"image":     computedText("`machine.install.image` of the machine configuration; null where the credentials may not read it."),
						"schematic": computedText("Image Factory schematic of the running system; null when no factory built it."),
						"platform":  computedText("Platform, as Talos calls it."),
						"boot_id":   computedText("Boot ID, which changes with every start of the kernel; null where the credentials may not read it."),
					},
				},
			},
		},
	}
}

func computedText(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func rangeSchema(name string) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: name + " versions seen.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"lowest":  computedText("Lowest " + name + " version seen on any node."),
			"highest": computedText("Highest " + name + " version seen on any node."),
		},
	}
}
