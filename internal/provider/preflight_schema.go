// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Names of the data source's attributes that code refers to.
const (
	attrPassed  = "passed"
	attrSummary = "summary"
	attrChecks  = "checks"
	attrRead    = "read"
)

// preflightInputs are the attributes that mean what they mean in the resource.
func preflightInputs() []string {
	return []string{
		attrContext, attrTalosVersion, attrKubernetesVersion, attrInstallerImage, attrAllowIntermediate, attrIntermediateVersions, attrAllowUnknown,
		attrMaxUnavailable, attrCanary, attrNodeOverrides, attrDrain, attrKubernetes, attrPreflight, attrEtcdSnapshot, attrGates, attrMaintenanceWindow,
	}
}

func preflightSchema(ctx context.Context) schema.Schema {
	attributes := map[string]schema.Attribute{
		attrPassed: schema.BoolAttribute{
			MarkdownDescription: "Whether nothing would keep an apply from going on: no check has the severity `error`.",
			Computed:            true,
		},
		attrSummary:  computedText("The result in one line, which names the checks with errors."),
		attrChecks:   checksSchema(),
		attrTimeouts: readTimeoutSchema(),
	}

	resource := clusterSchema(ctx)

	for _, name := range preflightInputs() {
		if attribute, there := resource.Attributes[name]; there {
			attributes[name] = input(attribute)
		}
	}

	if directory, isObject := attributes[attrEtcdSnapshot].(schema.SingleNestedAttribute); isObject {
		directory.MarkdownDescription = "Where the resource is to save a snapshot of etcd. Whether it could is tried out; none is taken."
		attributes[attrEtcdSnapshot] = directory
	}

	return schema.Schema{
		MarkdownDescription: "Makes the checks of an upgrade without upgrading anything: all of those that an apply of `talosupgrade_cluster` begins with, " +
			"the workloads included, for versions that need not be in any configuration yet. It writes nothing to the cluster. What it finds is listed and fails nothing by itself, " +
			"whatever the severity; it is an error only when there is no cluster to look at.",
		Attributes: attributes,
	}
}

func readTimeoutSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Limits of whole operations, such as `\"90s\"`.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			attrRead: schema.StringAttribute{
				MarkdownDescription: "How long the checks may take, default `1m`. What could not be asked by then has the status `unknown`.",
				Optional:            true,
				Validators:          []validator.String{durationValidator{}},
			},
		},
	}
}

func checksSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "The checks that were made, in the order of [the guide](../guides/guards.md): one element for a check that found nothing, and one for each thing that was " +
			"found otherwise. A check that was not made, because nothing that is to be upgraded calls for it, is not listed.",
		Computed: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name": computedText("Name of the check, such as `etcd-quorum`."),
			"status": computedText("`passed`; `warning` (worth knowing); `failed`; `unknown` (it could not be made, which counts as failed); or `skipped` " +
				"(it did not pass, and `preflight.skip` made that a warning)."),
			"severity": computedText("`none`; `warning`, which stops nothing; or `error`, which stops an apply. What waiting cannot change stops a plan as well."),
			"node":     computedText("Kubernetes node name; null for what concerns the whole cluster."),
			"finding":  computedText("What was found; null where the check passed."),
			"remedy":   computedText("What to do about it; null where nothing is known, or needed."),
		}},
	}
}
