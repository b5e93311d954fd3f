// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"maps"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

var (
	_ resource.Resource                   = (*clusterResource)(nil)
	_ resource.ResourceWithConfigure      = (*clusterResource)(nil)
	_ resource.ResourceWithImportState    = (*clusterResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*clusterResource)(nil)
	_ resource.ResourceWithValidateConfig = (*clusterResource)(nil)
)

// importCurrent stands for the ID of the connected cluster, whichever it is.
const importCurrent = "current"

// clusterResource is talosupgrade_cluster.
type clusterResource struct {
	clusters *connection.Clusters
}

func newClusterResource() resource.Resource { return &clusterResource{} }

// Metadata implements [resource.Resource].
func (r *clusterResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = attrname.TypeName + "_cluster"
	// A cluster that could not report its ID may do so later. Any other change is refused earlier, as another
	// cluster.
	resp.ResourceBehavior.MutableIdentity = true
}

// Schema implements [resource.Resource].
func (r *clusterResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = clusterSchema(ctx)
}

// Configure implements [resource.ResourceWithConfigure].
func (r *clusterResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.clusters = connection.FromProviderData(req.ProviderData, &resp.Diagnostics)
}

func clusterSchema(ctx context.Context) schema.Schema {
	attributes := map[string]schema.Attribute{
		attrname.TalosVersion: schema.StringAttribute{
			MarkdownDescription: "Talos version for all nodes, such as `1.13.4`, with or without `v`. If unset, Talos is not managed. " +
				"At least one of `talos_version` and `kubernetes_version` is required.",
			Optional: true,
			Validators: []validator.String{
				stringvalidator.AtLeastOneOf(path.MatchRoot(attrname.TalosVersion), path.MatchRoot(attrname.KubernetesVersion)),
				attribute.Version(),
			},
			PlanModifiers: []planmodifier.String{attribute.KeepVersion()},
		},
		attrname.KubernetesVersion: schema.StringAttribute{
			MarkdownDescription: "Kubernetes version for the control plane, kube-proxy and the kubelets, such as `1.35.2`, with or without `v`. Changing it restarts no node. " +
				"If unset, Kubernetes stays as it is, and every Talos version on the way must support it.",
			Optional:      true,
			Validators:    []validator.String{attribute.Version()},
			PlanModifiers: []planmodifier.String{attribute.KeepVersion()},
		},
		attrname.Kubernetes: kubernetesSchema(),
		attrname.Context: schema.StringAttribute{
			MarkdownDescription: "Context of the talosconfig. Default: the provider's.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		attrname.InstallerImage: schema.StringAttribute{
			MarkdownDescription: "Installer image for all nodes, such as `factory.talos.dev/metal-installer/<schematic>`, without tag or with that of `talos_version`; each step uses the tag it needs. " +
				"If unset, each node keeps its platform, secure boot flavour and schematic, and its repository unless it has no such image of the version (`ghcr.io/siderolabs/installer` from Talos 1.14 on). " +
				"A schematic in its name is installed as it is, even with other extensions than a node has. An image without one is refused for a node with extensions, " +
				"and so is an image with which a node would lose its platform or its secure boot mode. " +
				"A digest (`...@sha256:...`) pins one image of `talos_version`, which nodes must reach in one step.",
			Optional:   true,
			Validators: []validator.String{attribute.InstallerImage(attrname.TalosVersion)},
		},
		attrname.Timeouts: timeoutsSchema(ctx),
		attrname.ID: schema.StringAttribute{
			MarkdownDescription: "Talos cluster ID. If the cluster has none, the UID of the namespace `kube-system`.",
			Computed:            true,
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		attrname.Status: statusSchema(),
		attrname.Nodes:  nodesSchema(),

		attrname.Snapshot: snapshotSchema(),
	}

	for _, part := range []map[string]schema.Attribute{policySchema(), pathSchema(), rollSchema(), guardSchema(), failureSchema(), publishSchema(), reportSchema()} {
		maps.Copy(attributes, part)
	}

	return schema.Schema{
		Version: stateVersion,
		MarkdownDescription: "Upgrades the nodes of a Talos cluster, one safe step at a time, and blocks until they run the given versions. " +
			"A second resource for the same cluster is refused.",
		Attributes: attributes,
	}
}

func timeoutsSchema(ctx context.Context) schema.Attribute {
	const note = " When it expires, nodes in progress are finished and the run stops; the next apply continues."

	limits := timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Read: true, Delete: true,
		CreateDescription: "Limit for the first apply. Default: `4h`." + note + " Up to 15 minutes of it are spent waiting for a cluster that does not answer yet.",
		UpdateDescription: "Limit for an upgrade. Default: `4h`." + note,
		ReadDescription:   "Limit for reading the cluster. Default: `1m`.",
		DeleteDescription: "Limit for removing this provider's objects from the cluster on destroy. Default: `3m`.",
	})

	if nested, ok := limits.(schema.SingleNestedAttribute); ok {
		for name, limit := range nested.Attributes {
			if text, isText := limit.(schema.StringAttribute); isText {
				text.Validators = []validator.String{attribute.Duration()}
				text.PlanModifiers = append(text.PlanModifiers, attribute.KeepDuration())
				nested.Attributes[name] = text
			}
		}

		nested.MarkdownDescription = "Time limits of whole operations, such as `\"90m\"`."

		return nested
	}

	return limits
}

// policySchema returns the attributes that say how the target is reached.
func policySchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrname.Order: schema.StringAttribute{
			MarkdownDescription: "Which nodes are upgraded first: `workers-first` (default) or `control-planes-first`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.Order)),
			Validators:          []validator.String{stringvalidator.OneOf(string(cluster.WorkersFirst), string(cluster.ControlPlanesFirst))},
		},
		attrname.RebootMode: schema.StringAttribute{
			MarkdownDescription: "How nodes restart: `default` (kexec if the machine supports it) or `powercycle` (through the firmware).",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.RebootMode)),
			Validators:          rebootModes(),
		},
		attrname.NodeTimeout: durationSchema(attribute.Duration(), policy.NodeTimeout, "Limit for one node, from cordon to uncordon. Default: `30m`. The image pull has its own limit of 25 minutes; "+
			"so has the second download with which a node below Talos 1.13 begins its upgrade."),
		attrname.Drain: drainSchema(policy.Drain),
	}
}

// objectSchema returns an optional object whose attributes have defaults, and which defaults to all of them.
func objectSchema(description string, attributes map[string]schema.Attribute) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: description,
		Optional:            true,
		Computed:            true,
		Default:             objectdefault.StaticValue(attribute.Defaults(attributes, nil)),
		Attributes:          attributes,
	}
}

// durationSchema returns an optional duration with a default, of which another spelling is no change.
func durationSchema(accepts attribute.Text, preset time.Duration, description string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: description,
		Optional:            true,
		Computed:            true,
		Default:             stringdefault.StaticString(readable.Duration(preset)),
		Validators:          []validator.String{accepts},
		PlanModifiers:       []planmodifier.String{attribute.KeepDuration()},
	}
}

func drainSchema(policy cluster.DrainPolicy) schema.Attribute {
	return objectSchema("How workloads leave a node before it reboots.", map[string]schema.Attribute{
		"enabled": schema.BoolAttribute{
			MarkdownDescription: "Whether to evict the pods of a node first. Default: `true`. `false` is refused for nodes below Talos 1.13, which always drain themselves.",
			Optional:            true,
			Computed:            true,
			Default:             booldefault.StaticBool(policy.Enabled),
		},
		"timeout": durationSchema(attribute.Duration(), policy.Timeout, "Limit for evictions. Default: `5m`."),
		"on_timeout": schema.StringAttribute{
			MarkdownDescription: "What happens when `timeout` expires: `abort` (default) stops the run and takes back its cordon; `delete` deletes the remaining pods regardless of budgets.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(string(policy.OnTimeout)),
			Validators:          []validator.String{stringvalidator.OneOf(string(cluster.DrainAbort), string(cluster.DrainDelete))},
		},
		attrname.WaitForVolumes: schema.StringAttribute{
			MarkdownDescription: "Whether a drained node reboots only after its volumes are detached, so that pods elsewhere can use them. `true` (default) waits up to two minutes and no longer than `timeout`, " +
				"then continues with a warning; `required` stops the run instead and takes back its cordon; `false` does not wait. Nothing is detached or deleted.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(string(policy.Volumes)),
			Validators: []validator.String{stringvalidator.OneOf(string(cluster.AwaitVolumes), string(cluster.RequireVolumes), string(cluster.IgnoreVolumes))},
		},
	})
}

// pathSchema returns the attributes that say through which versions an upgrade goes.
func pathSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrname.AllowIntermediate: schema.BoolAttribute{
			MarkdownDescription: "Whether one apply may step through several minor versions. " +
				"Default: `false`; a plan that needs them is refused and lists them. Every node restarts once per Talos minor version.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(policy.AllowIntermediate),
		},
		attrname.IntermediateVersions: schema.ListAttribute{
			MarkdownDescription: "Talos or Kubernetes versions to step through, such as `[\"1.12.8\"]`: one per minor version, in any order. " +
				"If unset, the newest known patch of each minor version is used. Requires `allow_intermediate_versions`.",
			ElementType:   types.StringType,
			Optional:      true,
			Validators:    []validator.List{listvalidator.ValueStringsAre(attribute.Version())},
			PlanModifiers: []planmodifier.List{attribute.KeepVersion()},
		},
		attrname.AllowUnknown: schema.BoolAttribute{
			MarkdownDescription: "Whether to accept versions newer than the support matrix of the provider. Default: `false`. " +
				"Their supported Kubernetes versions and upgrade paths are unknown.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(policy.AllowUnknown),
		},
	}
}

// rollSchema returns the attributes that say how many nodes are upgraded at a time, which come first, and which are
// held.
func rollSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrname.MaxUnavailable: schema.StringAttribute{
			MarkdownDescription: "How many workers may be unavailable at a time: a number, or a percentage of all workers such as `\"25%\"`, rounded down, but at least one. Default: `1`. " +
				"Workers that are not ready or cordoned count, whatever the reason. Control planes move one at a time.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(policy.MaxUnavailable.String()),
			Validators: []validator.String{attribute.Share()},
		},
		attrname.ParallelPulls: schema.NumberAttribute{
			MarkdownDescription: "How many nodes may pull images at a time, from 1 to " + strconv.Itoa(maxParallelPulls) + ". Default: as many as workers may be unavailable, at least 5 and at most 50. " +
				"If Kubernetes is upgraded, at least three times as many as kubelets may restart at a time (at most 50), and never fewer than kubelets may restart (at most 200). A registry that limits its clients may need fewer.",
			Optional:   true,
			Validators: []validator.Number{wholeNumberValidator{maxParallelPulls, wrongParallelPulls}},
		},
		attrname.Pools: poolsSchema(),
		attrname.Canary: schema.ListAttribute{
			MarkdownDescription: "Kubernetes node names of workers that move first in every hop. No other node is upgraded and no other kubelet replaced " +
				"until all canaries run the new version and have stayed healthy for `settle`. " +
				"Control plane components still precede all kubelets.",
			ElementType: types.StringType,
			Optional:    true,
			Validators:  []validator.List{listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
		},
		attrname.CanarySelector: schema.StringAttribute{
			MarkdownDescription: "Label selector of additional canaries among the workers, such as `upgrade=first`. " +
				"A worker that loses the label during an apply stays a canary until the apply ends.",
			Optional:   true,
			Validators: []validator.String{attribute.Selector()},
		},
		attrname.Settle:            durationSchema(attribute.DurationOrZero(), policy.Settle, "How long a node must stay healthy after its upgrade or kubelet replacement before the next one starts. Default: `0s`."),
		attrname.NodeOverrides:     nodeOverridesSchema(),
		attrname.SelectorOverrides: selectorOverridesSchema(),
	}
}

func poolsSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Limits for groups of workers, by a name of your choice, within `max_unavailable`. A node in two pools is an error of the plan.",
		Optional:            true,
		Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)), attribute.Present()},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrname.Selector: schema.StringAttribute{
					MarkdownDescription: "Label selector of the pool's workers, such as `pool=storage`.",
					Required:            true,
					Validators:          []validator.String{attribute.Selector()},
				},
				attrname.MaxUnavailable: schema.StringAttribute{
					MarkdownDescription: "How many workers of the pool may be unavailable at a time, in the form of `max_unavailable`; a percentage refers to the workers of the pool. " +
						"It also limits how many kubelets of the pool restart at a time, within `kubernetes.max_unavailable_kubelets`.",
					Required:   true,
					Validators: []validator.String{attribute.Share()},
				},
			},
		},
	}
}

// rebootModes returns the validators of a reboot mode.
func rebootModes() []validator.String {
	return []validator.String{stringvalidator.OneOf(string(cluster.RebootDefault), string(cluster.RebootPowercycle))}
}

func selectorOverridesSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Exceptions for nodes by label. A node is held if it is held here or in `node_overrides`; an image or reboot mode in `node_overrides` takes precedence. " +
			"If two elements give a node different images or reboot modes, and `node_overrides` does not decide, the plan fails. An element that sets nothing is refused.",
		Optional:   true,
		Validators: []validator.List{attribute.Present(), selectorOverrideElements()},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrname.Selector: schema.StringAttribute{
					MarkdownDescription: "Label selector, such as `upgrade=hold` or `pool in (gpu, storage)`. An empty selector is refused, because it would match every node.",
					Required:            true,
					Validators:          []validator.String{attribute.Selector()},
				},
				attrname.InstallerImage: schema.StringAttribute{
					MarkdownDescription: "Installer image for these nodes, in place of `installer_image` and in the same form.",
					Optional:            true,
					Validators:          []validator.String{attribute.InstallerImage(attrname.TalosVersion)},
				},
				attrname.Hold: schema.BoolAttribute{
					MarkdownDescription: "Whether to leave these nodes alone, as `hold` of `node_overrides` does. Default: `false`. A node whose labels hold it at any moment of an apply is not started in that apply; one already started is finished.",
					Optional:            true,
					Computed:            true,
					Default:             booldefault.StaticBool(false),
				},
				attrname.RebootMode: schema.StringAttribute{
					MarkdownDescription: "Reboot mode of these nodes, in place of `reboot_mode`.",
					Optional:            true,
					Validators:          rebootModes(),
				},
			},
		},
	}
}

func nodeOverridesSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Exceptions for single nodes, by Kubernetes node name. An entry that sets nothing is refused: Terraform drops attributes that it does not know, so a misspelt one leaves the entry empty.",
		Optional:            true,
		Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)), overridesValidator{}},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrname.InstallerImage: schema.StringAttribute{
					MarkdownDescription: "Installer image for this node, in place of `installer_image` and in the same form.",
					Optional:            true,
					Validators:          []validator.String{attribute.InstallerImage(attrname.TalosVersion)},
				},
				attrname.Hold: schema.BoolAttribute{
					MarkdownDescription: "Whether to leave this node alone. Default: `false`. It is not upgraded and does not count as behind, but safety checks still count it. " +
						"A roll that would leave it with incompatible versions is refused.",
					Optional: true,
					Computed: true,
					Default:  booldefault.StaticBool(false),
				},
				attrname.RebootMode: schema.StringAttribute{
					MarkdownDescription: "Reboot mode of this node, in place of `reboot_mode`. On a canary, `powercycle` reveals a system that the firmware does not boot: " +
						"kexec bypasses firmware and boot loader.",
					Optional:   true,
					Validators: rebootModes(),
				},
				attrname.RetryBootID: schema.StringAttribute{
					MarkdownDescription: "Boot ID from the error message about a node that fell back or was rolled back. It allows one more try of the same image, " +
						"until the next fallback or rollback.",
					Optional:   true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
			},
		},
	}
}

// kubernetesSchema returns the attribute that says how the Kubernetes version is reached.
func kubernetesSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "How `kubernetes_version` is reached.",
		Optional:            true,
		Computed:            true,
		PlanModifiers:       []planmodifier.Object{attribute.UnlessConfigured(attribute.Defaults(kubernetesAttributes(), nil))},
		Attributes:          kubernetesAttributes(),
	}
}

func kubernetesAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrname.Images: imagesSchema(),
		attrname.UnavailableKubelets: schema.StringAttribute{
			MarkdownDescription: "How many workers' kubelets may restart at a time: a number or a percentage, as in `max_unavailable`. Default: `1`. " +
				"Workers that are not ready count, but one kubelet may restart unless they already have the new version. Pods keep running. Components on control planes move one at a time.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(cluster.DefaultPolicy().Kubernetes.MaxUnavailableKubelets.String()),
			Validators: []validator.String{attribute.Share()},
		},
		attrname.Manifests: manifestsSchema(),
	}
}

func imagesSchema() schema.Attribute {
	attributes := map[string]schema.Attribute{}

	for _, image := range imageAttributes() {
		attributes[image.name] = schema.StringAttribute{
			MarkdownDescription: "Image of " + string(image.component) + " without tag.",
			Optional:            true,
			Validators:          []validator.String{attribute.Image(attrname.KubernetesVersion)},
		}
	}

	return schema.SingleNestedAttribute{
		MarkdownDescription: "Images without tag, such as `registry.example.com/kubelet`, that replace those in the machine configurations. " +
			"If unset, each node keeps its registry, path and suffix; only the version changes. Requires `kubernetes_version`.",
		Optional:   true,
		Attributes: attributes,
	}
}

func manifestsSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "The bootstrap manifests that Talos renders: kube-proxy, CoreDNS, the network, what kubelets need to join, and the `inlineManifests` and `extraManifests` of the machine configuration. " +
			"With `sync`, they are brought up to date at the end of every roll, unless every control plane is held.",
		Optional:      true,
		Computed:      true,
		PlanModifiers: []planmodifier.Object{attribute.UnlessConfigured(attribute.Defaults(manifestAttributes(), nil))},
		Attributes:    manifestAttributes(),
	}
}

func manifestAttributes() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy().Kubernetes.Manifests

	return map[string]schema.Attribute{
		attrname.Sync: schema.BoolAttribute{
			MarkdownDescription: "Whether to sync the objects in the cluster to what Talos renders. Default: `true` if `kubernetes_version` is set, otherwise `false`. With `false`, kube-proxy and CoreDNS stay as they are.",
			Optional:            true,
			Computed:            true,
			PlanModifiers:       []planmodifier.Bool{followsKubernetes{}},
		},
		attrname.Prune: schema.BoolAttribute{
			MarkdownDescription: "Whether to delete what an earlier sync applied and Talos no longer renders. Default: `false`. No effect while a node runs Talos below 1.13.",
			Optional:            true,
			Computed:            true,
			Default:             booldefault.StaticBool(policy.Prune),
		},
		attrname.Timeout: durationSchema(attribute.DurationOrZero(), policy.Timeout, "How long to wait for the rollout of what was applied. Default: `5m`. `0s` does not wait."),
		attrname.Force: schema.BoolAttribute{
			MarkdownDescription: "Whether to delete and recreate an object of which an immutable field changed. Default: `false`. The object is gone for a moment, and its dependents, such as the objects of a CRD, are deleted with it. No effect while a node runs Talos below 1.13.",
			Optional:            true,
			Computed:            true,
			Default:             booldefault.StaticBool(policy.Force),
		},
		attrname.Exclude: manifestObjectsSchema(),
	}
}

// kubernetesDefaults returns the value of kubernetes if a configuration does not set it. sync is whether the manifests
// are synced, which [followsKubernetes] decides in a plan.
func kubernetesDefaults(sync types.Bool) types.Object {
	manifests := attribute.Defaults(manifestAttributes(), map[string]attr.Value{attrname.Sync: sync})

	return attribute.Defaults(kubernetesAttributes(), map[string]attr.Value{attrname.Manifests: manifests})
}

func manifestObjectsSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Objects that stay as they are, such as a Job, whose pod template is immutable. They are not compared, applied, pruned or waited for. " +
			"kube-proxy cannot be excluded, because its pods are part of the upgrade.",
		Optional:   true,
		Validators: []validator.List{attribute.Present(), excludedObjects()},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrname.Kind: schema.StringAttribute{
					MarkdownDescription: "Kind of the object, such as `Job`.",
					Required:            true,
					Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				attrname.Namespace: schema.StringAttribute{
					MarkdownDescription: "Namespace of the object. If unset, objects of that name in every namespace, and cluster-scoped ones.",
					Optional:            true,
					Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				attrname.Name: schema.StringAttribute{
					MarkdownDescription: "Name of the object.",
					Required:            true,
					Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				},
			},
		},
	}
}

// defaultTimeZone is the default time zone of a window.
const defaultTimeZone = "UTC"

// guardSchema returns the attributes that say which conditions must hold before nodes are changed, and what is saved
// before.
func guardSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrname.Preflight: schema.SingleNestedAttribute{
			MarkdownDescription: "Checks before nodes are touched.",
			Optional:            true,
			Attributes: map[string]schema.Attribute{
				attrname.Skip: schema.SetAttribute{
					MarkdownDescription: "Names of checks whose findings become warnings, such as `[\"etcd-alarms\"]`. If unset, every check counts. " +
						"[Some checks](../guides/guards.md#all-checks) cannot be skipped.",
					ElementType: types.StringType,
					Optional:    true,
					Validators:  []validator.Set{checksToSkip()},
				},
			},
		},
		attrname.EtcdSnapshot: schema.SingleNestedAttribute{
			MarkdownDescription: "A snapshot of etcd, saved on the machine that runs Terraform before anything is touched. Each roll takes one; an apply that continues it takes none. " +
				"If it cannot be saved, no upgrade begins. If unset, none is taken.",
			Optional: true,
			Attributes: map[string]schema.Attribute{
				attrname.Directory: schema.StringAttribute{
					MarkdownDescription: "Directory for `<cluster>-<UTC>.db` and its `.sha256`, created if missing. Only the owner can read them: a snapshot holds every Secret of the cluster.",
					Required:            true,
					Validators:          []validator.String{directoryText(", or remove " + attrname.EtcdSnapshot + " to upgrade without a snapshot")},
				},
			},
		},
		attrname.Gates:             gatesSchema(),
		attrname.MaintenanceWindow: windowSchema(),
		attrname.SyncInstallImage: schema.BoolAttribute{
			MarkdownDescription: "Whether to write the image of a confirmed upgrade into `machine.install.image` of the node. Default: `false`. " +
				"To other tools that manage machine configurations, this is drift.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(policy.SyncInstallImage),
		},
	}
}

func gatesSchema() schema.Attribute {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Optional: true}
	}

	presets := make([]string, 0, len(gate.Presets()))
	for _, name := range gate.Presets() {
		presets = append(presets, "`"+name+"`")
	}

	return schema.ListNestedAttribute{
		MarkdownDescription: "Conditions that must hold before the roll and before each node or component is disturbed. Each is a preset or an expression over Kubernetes objects.",
		Optional:            true,
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrname.Preset:     text("Built-in condition: " + strings.Join(presets, ", ") + ". Only `namespace` and `timeout` may be set beside it."),
				attrname.APIVersion: text("API version of the objects, such as `v1` or `longhorn.io/v1beta2`. Required without `preset`."),
				attrname.Kind:       text("Kind of the objects, such as `Deployment`. Required without `preset`. Secrets are refused."),
				attrname.Namespace:  text("Namespace of the objects. If unset, all namespaces."),
				attrname.Name:       text("Name of one object. Cannot be combined with `selector`."),
				attrname.Selector:   text("Label selector, such as `app=web,tier!=test`. If unset, all objects of the kind."),
				attrname.Expr: text("[CEL](https://cel.dev) expression that is `true` if the node may be upgraded. Required without `preset`. `object` is each object in turn: at least one must exist, and each must give `true`. " +
					"`objects` is the list of all objects, which may be empty. `node` is the name of the next node, empty before the roll."),
				attrname.Timeout: durationSchema(attribute.Duration(), gate.DefaultTimeout, "How long to wait for the condition. Default: `"+readable.Duration(gate.DefaultTimeout)+"`. When it expires, the run stops; the next apply continues."),
			},
		},
	}
}

func windowSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "When nodes may be upgraded. If unset, always. Outside the window, an apply that has something to do fails before it starts anything. If the window closes during a roll, nodes in progress are finished and the run stops; the next apply inside the window continues.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			attrname.Cron: schema.StringAttribute{
				MarkdownDescription: "Start of the window in five cron fields: minute, hour, day of the month, month, day of the week. `0 22 * * 1-5` is 22:00 from Monday to Friday.",
				Required:            true,
			},
			attrname.Duration: schema.StringAttribute{
				MarkdownDescription: "Length of the window, such as `6h`.",
				Required:            true,
				Validators:          []validator.String{attribute.Duration()},
				PlanModifiers:       []planmodifier.String{attribute.KeepDuration()},
			},
			attrname.TimeZone: schema.StringAttribute{
				MarkdownDescription: "IANA time zone of `cron`, such as `Europe/Oslo`. Default: `" + defaultTimeZone + "`.",
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(defaultTimeZone),
			},
		},
	}
}

// maxParallelPulls bounds parallel_pulls: 200 installer images of some 200 MB are 40 GB at once.
const maxParallelPulls = 200

// maxAttempts bounds retry.attempts: what has failed that often is not resolved by repeating it.
const maxAttempts = 10

// failureSchema returns the attributes that say what happens if something fails.
func failureSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrname.OnFailure: schema.StringAttribute{
			MarkdownDescription: "What happens to a node that runs the new Talos but is not healthy within `node_timeout`: `stop` (default) leaves it as it is, cordoned; " +
				"`rollback` sends it back to its previous system once, if that is safe, and otherwise acts as `stop` and says why. The run fails in either case. " +
				"Kubernetes is never rolled back.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(string(policy.OnFailure)),
			Validators: []validator.String{onFailureText()},
		},
		attrname.OnSuspend: schema.StringAttribute{
			MarkdownDescription: "What an apply does while upgrades are [suspended](../guides/suspending-upgrades.md): `wait` (default) continues when they are resumed, within `timeouts`; " +
				"`stop` ends the apply with an error, and the next one continues. In either case nothing new starts, and nodes that this apply began are finished.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(string(policy.OnSuspend)),
			Validators: []validator.String{stringvalidator.OneOf(string(cluster.WaitOnSuspend), string(cluster.StopOnSuspend))},
		},
		attrname.Retry: objectSchema("How often operations that are safe to repeat are tried within one apply: image pulls, and installs that a reboot showed to have had no effect. "+
			"An image with which a node did not come up is not tried again; see `node_overrides`.", map[string]schema.Attribute{
			attrname.Attempts: schema.NumberAttribute{
				MarkdownDescription: "Number of attempts, including the first, from 1 to " + strconv.Itoa(maxAttempts) + ". Default: `" + strconv.Itoa(policy.Repeat.Attempts) + "`. " +
					"A pull that failed for a reason that may pass is tried again for at least five minutes in any case.",
				Optional:   true,
				Computed:   true,
				Default:    numberdefault.StaticBigFloat(big.NewFloat(float64(policy.Repeat.Attempts))),
				Validators: []validator.Number{wholeNumberValidator{maxAttempts, wrongAttempts}},
			},
			attrname.Backoff: durationSchema(attribute.DurationOrZero(), policy.Repeat.Backoff, "Pause before the second attempt. Default: `"+readable.Duration(policy.Repeat.Backoff)+"`. It doubles with each attempt, up to five minutes. "+
				"The limits of 25 minutes for a pull and of `node_timeout` for a node still apply."),
		}),
	}
}

// The values of mode.
const (
	modeDirect   = "direct"
	modeDelegate = "delegate"
)

// publishSchema returns the attributes that say where progress is published, and who upgrades the nodes.
func publishSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrname.PublishTo: schema.SingleNestedAttribute{
			MarkdownDescription: "Object that carries the annotations `upgrade.vitistack.io/*` and, if its kind has them, `status.phase` and the conditions `TalosUpgrade` and `KubernetesUpgrade`. The Kubernetes Events of an upgrade are about it. " +
				"It must exist, in the cluster of the provider's `management` if that is set, otherwise in the upgraded cluster. " +
				"A destroy leaves it and its annotations. With `mode = \"direct\"`, the upgrade continues with a warning if it cannot be written. " +
				"If unset, the provider creates and removes the ConfigMap `kube-system/talosupgrade` in the upgraded cluster.",
			Optional: true,
			Attributes: map[string]schema.Attribute{
				attrname.APIVersion: schema.StringAttribute{
					MarkdownDescription: "API version of the object, such as `example.com/v1`. Default: `vitistack.io/v1alpha1` for `KubernetesCluster`, `talos.alperen.cloud/v1alpha1` for `TalosControlPlane`, `v1` for `ConfigMap`. Required for other kinds.",
					Optional:            true,
					Validators:          []validator.String{attribute.APIVersion()},
				},
				attrname.Kind: schema.StringAttribute{
					MarkdownDescription: "Kind of the object, such as `KubernetesCluster`. Secrets are refused.",
					Required:            true,
					Validators:          []validator.String{attribute.Kind(knownKinds()...)},
				},
				attrname.Namespace: schema.StringAttribute{
					MarkdownDescription: "Namespace of the object.",
					Required:            true,
					Validators:          []validator.String{attribute.ObjectName()},
				},
				attrname.Name: schema.StringAttribute{
					MarkdownDescription: "Name of the object.",
					Required:            true,
					Validators:          []validator.String{attribute.ObjectName()},
				},
			},
		},
		attrname.Mode: schema.StringAttribute{
			MarkdownDescription: "Who upgrades the nodes. `direct` (default): this provider. With the annotation `upgrade.vitistack.io/do-not-reconcile`, it keeps an operator from acting on the object of `publish_to` until the end, or after a kill until the next apply. " +
				"It never removes somebody else's value. If the operator was already asked for an upgrade, the apply is refused. " +
				"`delegate`: the operator of the `KubernetesCluster` or `TalosControlPlane` in `publish_to`. The provider makes its checks, asks the operator, follows the upgrade, and then looks at every node. " +
				"Attributes that say how nodes are upgraded are refused: " + codeList(refusedByDelegate()) + ".",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(modeDirect),
			Validators: []validator.String{modeText()},
		},
	}
}

// statusSchema returns the schema of status. It has no plan modifier: whether status changes depends on the observed
// cluster.
func statusSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Observed state of the cluster.",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"phase": schema.StringAttribute{
				MarkdownDescription: "`Ready`, `UpgradingTalos` or `UpgradingKubernetes` (a roll is unfinished), or `UpgradeFailed`.",
				Computed:            true,
			},
			"message": schema.StringAttribute{
				MarkdownDescription: "The phase in words.",
				Computed:            true,
			},
			"talos":      productStatusSchema("Talos"),
			"kubernetes": productStatusSchema("Kubernetes"),
		},
	}
}

func productStatusSchema(name string) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "Status of " + name + ".",
		Computed:            true,
		Attributes: map[string]schema.Attribute{
			"status": schema.StringAttribute{
				MarkdownDescription: "`idle` (not managed), `pending` (another version runs), `blocked` (Kubernetes, until Talos is upgraded), `in-progress`, `completed` or `failed`.",
				Computed:            true,
			},
			"lowest": schema.StringAttribute{
				MarkdownDescription: "Lowest " + name + " version on any node that is not held.",
				Computed:            true,
			},
			"highest": schema.StringAttribute{
				MarkdownDescription: "Highest " + name + " version on any node that is not held.",
				Computed:            true,
			},
		},
	}
}

func nodesSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Observed nodes, by Kubernetes node name. Values that change often are in the data source `talosupgrade_current_versions`.",
		Computed:            true,
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				"role": schema.StringAttribute{
					MarkdownDescription: "`controlplane` or `worker`.",
					Computed:            true,
				},
				"address": schema.StringAttribute{
					MarkdownDescription: "Address at which the node is reached.",
					Computed:            true,
				},
				"talos_version": schema.StringAttribute{
					MarkdownDescription: "Running Talos version.",
					Computed:            true,
				},
				"component_versions": schema.SingleNestedAttribute{
					MarkdownDescription: "Versions of the Kubernetes components that run on the node; null for others.",
					Computed:            true,
					Attributes:          componentAttributes(),
				},
				attrname.InstallImage: schema.StringAttribute{
					MarkdownDescription: "`machine.install.image`, which a reinstallation would use, as last read; null until credentials may read it.",
					Computed:            true,
				},
				"schematic": schema.StringAttribute{
					MarkdownDescription: "Image Factory schematic of the running system; null if no factory built it.",
					Computed:            true,
				},
				"platform": schema.StringAttribute{
					MarkdownDescription: "Platform as Talos names it: `metal`, `aws`, ...",
					Computed:            true,
				},
			},
		},
	}
}

// reportSchema returns the attribute with the path of a run's report.
func reportSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrname.ReportPath: schema.StringAttribute{
			MarkdownDescription: "File for a report of the run, on the machine that runs Terraform, such as `\"${path.root}/upgrade.html\"`: one self-contained HTML page without scripts, " +
				"with timeline, plan, findings, versions and, if the run stops, the cause and what to do. " +
				"It is rewritten as the run goes on; an apply with nothing to do leaves it as it is. Missing directories are created. " +
				"If another file is there, that is an error before anything is touched. The report has the names, addresses and images of nodes, and no secrets, unless a line of a node's log has one.",
			Optional:   true,
			Validators: []validator.String{reportPathText()},
		},
	}
}

// codeList lists the names in Markdown: `a`, `b` and `c`.
func codeList(names []string) string {
	last := len(names) - 1

	return "`" + strings.Join(names[:last], "`, `") + "` and `" + names[last] + "`"
}

// followsKubernetes plans whether the bootstrap manifests are synced if the configuration does not say: they are if
// kubernetes_version is set.
type followsKubernetes struct{}

// Description implements [planmodifier.Bool].
func (followsKubernetes) Description(context.Context) string {
	return "If " + attrname.KubernetesVersion + " is set, the bootstrap manifests are synced by default."
}

// MarkdownDescription implements [planmodifier.Bool].
func (m followsKubernetes) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyBool implements [planmodifier.Bool].
func (followsKubernetes) PlanModifyBool(ctx context.Context, req planmodifier.BoolRequest, resp *planmodifier.BoolResponse) {
	var kubernetes types.String

	if attribute.Stated(req.ConfigValue) {
		return
	}

	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrname.KubernetesVersion), &kubernetes)...)

	if req.ConfigValue.IsUnknown() || kubernetes.IsUnknown() {
		resp.PlanValue = types.BoolUnknown()
	} else {
		resp.PlanValue = types.BoolValue(!kubernetes.IsNull())
	}
}
