// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Names of the resource's attributes that code refers to.
const (
	attrTalosVersion      = "talos_version"
	attrKubernetesVersion = "kubernetes_version"
	attrInstallerImage    = "installer_image"
	attrNodeOverrides     = "node_overrides"
	attrTimeouts          = "timeouts"
	attrID                = "id"
	attrStatus            = "status"
	attrNodes             = "nodes"
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
			PlanModifiers: []planmodifier.String{keepSpelling{}},
		},
		attrKubernetesVersion: schema.StringAttribute{
			MarkdownDescription: "Kubernetes version that the cluster is to run, with or without `v`. This version of the provider " +
				"does not upgrade Kubernetes: it only asserts, and the plan fails when something else runs. Unset: Kubernetes is not looked at.",
			Optional:      true,
			Validators:    []validator.String{versionValidator{}},
			PlanModifiers: []planmodifier.String{keepSpelling{}},
		},
		attrContext: schema.StringAttribute{
			MarkdownDescription: "Context of the talosconfig. Default: the provider's.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		attrInstallerImage: schema.StringAttribute{
			MarkdownDescription: "Installer image without tag, for all nodes, such as `factory.talos.dev/metal-installer/<schematic>`. " +
				"Default: each node keeps its own repository, platform, secure boot flavour and schematic, and only the version changes. " +
				"An image that does not hold a node's extensions is refused.",
			Optional:   true,
			Validators: []validator.String{repositoryValidator{}},
		},
		attrNodeOverrides: nodeOverridesSchema(),
		attrTimeouts:      timeoutsSchema(ctx),
		attrID: schema.StringAttribute{
			MarkdownDescription: "Talos cluster ID, or the UID of the namespace `kube-system` where discovery is off.",
			Computed:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		attrStatus: statusSchema(),
		attrNodes:  nodesSchema(),
	}

	for name, attribute := range policySchema() {
		attributes[name] = attribute
	}

	return schema.Schema{
		MarkdownDescription: "Brings the nodes of a Talos cluster to a version, one safe step at a time, and blocks until they run it.",
		Attributes:          attributes,
	}
}

// policySchema are the attributes that say how the target is reached.
func policySchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		"order": schema.StringAttribute{
			MarkdownDescription: "Which nodes move first: `workers-first` (default) or `control-planes-first`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.Order)),
			Validators:          []validator.String{stringvalidator.OneOf(string(cluster.WorkersFirst), string(cluster.ControlPlanesFirst))},
		},
		"reboot_mode": schema.StringAttribute{
			MarkdownDescription: "How nodes restart: `default` (kexec where the machine can) or `powercycle` (through the firmware).",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.RebootMode)),
			Validators:          []validator.String{stringvalidator.OneOf(string(cluster.RebootDefault), string(cluster.RebootPowercycle))},
		},
		"node_timeout": schema.StringAttribute{
			MarkdownDescription: "How long one node may take from cordon to uncordon, default `30m`. Pulling its image has a limit of 25 minutes of its own.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(durationText(policy.NodeTimeout)),
			Validators:          []validator.String{durationValidator{}},
		},
		"drain": drainSchema(policy.Drain),
	}
}

func drainSchema(policy cluster.DrainPolicy) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "How workloads leave a node before it reboots.",
		Optional:            true,
		Computed:            true,
		Default:             objectdefault.StaticValue(drainValue(policy)),
		Attributes: map[string]schema.Attribute{
			"enabled": schema.BoolAttribute{
				MarkdownDescription: "Evict the pods of a node first, default `true`. Nodes below Talos 1.13 always drain themselves, so `false` is refused for them.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(policy.Enabled),
			},
			"timeout": schema.StringAttribute{
				MarkdownDescription: "How long evictions are tried, default `5m`.",
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(durationText(policy.Timeout)),
				Validators:          []validator.String{durationValidator{}},
			},
			"on_timeout": schema.StringAttribute{
				MarkdownDescription: "What happens then: `abort` (default) stops the run and takes the cordon back; `delete` deletes the pods without asking their budgets.",
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(string(policy.OnTimeout)),
				Validators:          []validator.String{stringvalidator.OneOf(string(cluster.DrainAbort), string(cluster.DrainDelete))},
			},
		},
	}
}

func nodeOverridesSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Exceptions for single nodes, by Kubernetes node name.",
		Optional:            true,
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				"retry": schema.StringAttribute{
					MarkdownDescription: "After a node fell back to its old system, the boot ID from the error message: the same image may be tried once more. " +
						"It stops having an effect with the next fallback.",
					Optional:   true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
			},
		},
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
		nested.MarkdownDescription = "Limits of whole operations, such as `\"90m\"`."

		return nested
	}

	return attribute
}
