// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// policySchema are the attributes that say how the target is reached.
func policySchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrOrder: schema.StringAttribute{
			MarkdownDescription: "Which nodes move first: `workers-first` (default) or `control-planes-first`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.Order)),
			Validators:          []validator.String{stringvalidator.OneOf(string(cluster.WorkersFirst), string(cluster.ControlPlanesFirst))},
		},
		attrRebootMode: schema.StringAttribute{
			MarkdownDescription: "How nodes restart: `default` (kexec where the machine can) or `powercycle` (through the firmware).",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.RebootMode)),
			Validators:          []validator.String{stringvalidator.OneOf(string(cluster.RebootDefault), string(cluster.RebootPowercycle))},
		},
		attrNodeTimeout: schema.StringAttribute{
			MarkdownDescription: "How long one node may take from cordon to uncordon, default `30m`. Pulling its image has a limit of 25 minutes of its own; " +
				"so has the second download with which a node below Talos 1.13 begins its upgrade.",
			Optional:      true,
			Computed:      true,
			Default:       stringdefault.StaticString(durationText(policy.NodeTimeout)),
			Validators:    []validator.String{durationValidator{}},
			PlanModifiers: []planmodifier.String{keepSpelling{sameDuration}},
		},
		attrDrain: drainSchema(policy.Drain),
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
				PlanModifiers:       []planmodifier.String{keepSpelling{sameDuration}},
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

// pathSchema are the attributes that say through which versions the way leads.
func pathSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrAllowIntermediate: schema.BoolAttribute{
			MarkdownDescription: "Walk through the release lines between what runs and what is asked for, one after the other, in a single apply. " +
				"Default `false`: a plan that would have to is refused, and says through which versions the way leads. Every node restarts once per Talos release line.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(policy.AllowIntermediate),
		},
		attrIntermediateVersions: schema.ListAttribute{
			MarkdownDescription: "Exact versions of Talos or Kubernetes to walk through, such as `[\"1.12.8\"]`, one per release line, in any order. " +
				"Default: the newest patch of each release line that this version of the provider knows. Needs `allow_intermediate_versions`.",
			ElementType:   types.StringType,
			Optional:      true,
			Validators:    []validator.List{listvalidator.ValueStringsAre(versionValidator{})},
			PlanModifiers: []planmodifier.List{keepSpelling{sameVersion}},
		},
		attrAllowUnknown: schema.BoolAttribute{
			MarkdownDescription: "Accept versions that are newer than the support matrix of this version of the provider, default `false`. " +
				"Nothing is known then about which Kubernetes they support and what they can be upgraded from.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(policy.AllowUnknown),
		},
	}
}

// rollSchema are the attributes that say how many nodes move at a time, which
// come first, and which are left alone.
func rollSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrMaxUnavailable: schema.StringAttribute{
			MarkdownDescription: "How many workers may be unavailable at a time, default `1`: a number, or a percentage of all workers such as `\"25%\"`, " +
				"rounded down but one at least. Workers that are not ready or cordoned for other reasons count. Control planes always move one at a time.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(policy.MaxUnavailable.String()),
			Validators: []validator.String{shareValidator{}},
		},
		attrCanary: schema.ListAttribute{
			MarkdownDescription: "Kubernetes node names of workers that move before all others. Before every one of them runs the new version and has stayed healthy " +
				"for `settle`, no other node is upgraded and no other kubelet replaced; where the way has several hops, in each of them. " +
				"Components of the control plane come before all kubelets.",
			ElementType: types.StringType,
			Optional:    true,
			Validators:  []validator.List{listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
		},
		attrSettle: schema.StringAttribute{
			MarkdownDescription: "How long a node must stay healthy after its upgrade, or after its kubelet was replaced, before the next one starts, default `0s`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(durationText(policy.Settle)),
			Validators:          []validator.String{durationValidator{zero: true}},
			PlanModifiers:       []planmodifier.String{keepSpelling{sameDuration}},
		},
		attrNodeOverrides: nodeOverridesSchema(),
	}
}

func nodeOverridesSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Exceptions for single nodes, by Kubernetes node name.",
		Optional:            true,
		Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1))},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrInstallerImage: schema.StringAttribute{
					MarkdownDescription: "Installer image without tag, or by digest, for this node, instead of `installer_image` and of the node's own repository.",
					Optional:            true,
					Validators:          []validator.String{repositoryValidator{}},
				},
				attrHold: schema.BoolAttribute{
					MarkdownDescription: "Leave this node alone, default `false`: it is not upgraded, and it does not count as behind. " +
						"It still counts for what is safe. A roll that would leave it with versions that do not go together is refused.",
					Optional: true,
				},
				attrRetry: schema.StringAttribute{
					MarkdownDescription: "After a node fell back to its old system or was rolled back to it, the boot ID from the error message: the same image may be tried once more. " +
						"It stops having an effect with the next fallback or rollback.",
					Optional:   true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
			},
		},
	}
}
