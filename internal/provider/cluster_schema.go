// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Names of the resource's attributes that code refers to.
const (
	attrTalosVersion         = "talos_version"
	attrKubernetesVersion    = "kubernetes_version"
	attrOrder                = "order"
	attrRebootMode           = "reboot_mode"
	attrNodeTimeout          = "node_timeout"
	attrDrain                = "drain"
	attrInstallerImage       = "installer_image"
	attrAllowIntermediate    = "allow_intermediate_versions"
	attrIntermediateVersions = "intermediate_versions"
	attrAllowUnknown         = "allow_unknown_versions"
	attrMaxUnavailable       = "max_unavailable"
	attrCanary               = "canary"
	attrSettle               = "settle"
	attrNodeOverrides        = "node_overrides"
	attrHold                 = "hold"
	attrRetry                = "retry"
	attrTimeouts             = "timeouts"
	attrID                   = "id"
	attrStatus               = "status"
	attrNodes                = "nodes"
)

func clusterSchema(ctx context.Context) schema.Schema {
	attributes := map[string]schema.Attribute{
		attrTalosVersion: schema.StringAttribute{
			MarkdownDescription: "Talos version that every node is to run, such as `1.13.4`, with or without `v`. Unset: Talos is not managed. " +
				"At least one of `talos_version` and `kubernetes_version` is needed.",
			Optional: true,
			Validators: []validator.String{
				stringvalidator.AtLeastOneOf(path.MatchRoot(attrTalosVersion), path.MatchRoot(attrKubernetesVersion)),
				versionValidator{},
			},
			PlanModifiers: []planmodifier.String{keepSpelling{sameVersion}},
		},
		attrKubernetesVersion: schema.StringAttribute{
			MarkdownDescription: "Kubernetes version that every component is to run, such as `1.35.2`, with or without `v`: the control plane, kube-proxy and the kubelets. " +
				"No node restarts for it. Unset: Kubernetes stays as it is, and every Talos version on the way must support it.",
			Optional:      true,
			Validators:    []validator.String{versionValidator{}},
			PlanModifiers: []planmodifier.String{keepSpelling{sameVersion}},
		},
		attrKubernetes: kubernetesSchema(),
		attrContext: schema.StringAttribute{
			MarkdownDescription: "Context of the talosconfig. Default: the provider's.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		attrInstallerImage: schema.StringAttribute{
			MarkdownDescription: "Installer image without tag, for all nodes, such as `factory.talos.dev/metal-installer/<schematic>`. " +
				"Default: each node keeps its own repository, platform, secure boot flavour and schematic, and only the version changes. " +
				"An image that does not hold a node's extensions, or would cost it its platform, is refused. " +
				"With a digest (`...@sha256:...`) it is that one image, which has to be of `talos_version`: for nodes that get there in one step.",
			Optional:   true,
			Validators: []validator.String{repositoryValidator{}},
		},
		attrTimeouts: timeoutsSchema(ctx),
		attrID: schema.StringAttribute{
			MarkdownDescription: "Talos cluster ID, or the UID of the namespace `kube-system` where discovery is off.",
			Computed:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		attrStatus: statusSchema(),
		attrNodes:  nodesSchema(),

		attrSnapshot: snapshotSchema(),
	}

	for _, part := range []map[string]schema.Attribute{policySchema(), pathSchema(), rollSchema(), guardSchema(), failureSchema(), publishSchema(), reportSchema()} {
		maps.Copy(attributes, part)
	}

	return schema.Schema{
		MarkdownDescription: "Brings the nodes of a Talos cluster to a version, one safe step at a time, and blocks until they run it. " +
			"A cluster has one resource: a second one for the same cluster is refused.",
		Attributes: attributes,
	}
}

func timeoutsSchema(ctx context.Context) schema.Attribute {
	const note = " When it is reached, the node in progress is finished and the run stops; the next apply continues."

	attribute := timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Read: true,
		CreateDescription: "How long a first apply may take, default `4h`." + note,
		UpdateDescription: "How long an upgrade may take, default `4h`." + note,
		ReadDescription:   "How long a look at the cluster may take, default `1m`.",
	})

	if nested, ok := attribute.(schema.SingleNestedAttribute); ok {
		for name, limit := range nested.Attributes {
			if text, isText := limit.(schema.StringAttribute); isText {
				text.PlanModifiers = append(text.PlanModifiers, keepSpelling{sameDuration})
				nested.Attributes[name] = text
			}
		}

		nested.MarkdownDescription = "Limits of whole operations, such as `\"90m\"`."

		return nested
	}

	return attribute
}
