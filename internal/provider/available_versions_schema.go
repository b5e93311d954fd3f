// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func availableVersionsSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Which releases of Talos and Kubernetes exist, and which of them a cluster can go to: next, in one step, and " +
			"eventually, step by step. The cluster is looked at, unless the versions to start from are given: then none is needed.",
		Attributes: map[string]schema.Attribute{
			attrContext: schema.StringAttribute{
				MarkdownDescription: "Context of the talosconfig. Default: the provider's. It cannot be set together with the versions to start from.",
				Optional:            true,
			},
			attrTalosVersion: schema.StringAttribute{
				MarkdownDescription: "Talos version to start from, with or without `v`. Default: the lowest that a node of the cluster runs.",
				Optional:            true,
				Computed:            true,
				Validators:          []validator.String{versionValidator{}},
			},
			attrKubernetesVersion: schema.StringAttribute{
				MarkdownDescription: "Kubernetes version to start from, with or without `v`; needs `talos_version`. Default: the lowest that a node of the " +
					"cluster runs; null where `talos_version` is given alone, and then nothing is said about Kubernetes and Talos releases are not " +
					"checked against it.",
				Optional:   true,
				Computed:   true,
				Validators: []validator.String{versionValidator{}},
			},
			attrIncludePreReleases: schema.BoolAttribute{
				MarkdownDescription: "Whether alphas, betas and release candidates count. Default: `false`. The built-in list has none.",
				Optional:            true,
			},
			attrReleaseSource:      releaseSourceSchema(),
			attrTalosVersions:      computedVersions("All releases of Talos, the newest last."),
			attrKubernetesVersions: computedVersions("All releases of Kubernetes, the newest last."),
			"next": halvesSchema("Releases that can be reached in one step, the other half staying as it is: patches of the minor version that "+
				"runs, and the minor version after it where the other half allows it. The newest last.", func(name string) schema.Attribute {
				return computedVersions("Releases of " + name + " that come next.")
			}),
			"eventual": halvesSchema("Releases that can be reached step by step through releases that the list holds, the other half moving along where "+
				"it has to. A minor version of which the list holds nothing is not passed. `talosupgrade_cluster` walks the steps of Talos with "+
				"`allow_intermediate_versions`, from Talos 1.8 on. The newest last.", func(name string) schema.Attribute {
				return computedVersions("Releases of " + name + " that can be reached.")
			}),
			"latest_talos": computedText("Newest release of Talos that can be reached; the highest version that already runs where there is none."),
			"latest_kubernetes": computedText("Newest release of Kubernetes that can be reached; the highest version that already runs where there is " +
				"none."),
			"source": halvesSchema("Where the lists of releases came from.", func(name string) schema.Attribute {
				return computedText("Source of the releases of " + name + ".")
			}),
			"as_of": halvesSchema("Days up to which the lists of releases are complete.", func(name string) schema.Attribute {
				return computedText("Day such as `2026-10-01` up to which the releases of " + name + " are complete; null where a source was asked just now, or the list was given.")
			}),
		},
	}
}

func computedVersions(description string) schema.ListAttribute {
	return schema.ListAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
}

// halvesSchema is an object with the same attribute for Talos and Kubernetes.
func halvesSchema(description string, half func(name string) schema.Attribute) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: description,
		Computed:            true,
		Attributes:          map[string]schema.Attribute{attrTalos: half("Talos"), attrKubernetes: half("Kubernetes")},
	}
}
