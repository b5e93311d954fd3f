// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"maps"
	"math/big"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
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
	clusters *clusters
}

func newClusterResource() resource.Resource { return &clusterResource{} }

// Metadata implements [resource.Resource].
func (r *clusterResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = typeName + "_cluster"
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
	r.clusters = configured(req.ProviderData, &resp.Diagnostics)
}

// The names of the resource's attributes that code refers to.
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
	attrParallelPulls        = "parallel_pulls"
	attrPools                = "pools"
	attrCanary               = "canary"
	attrCanarySelector       = "canary_selector"
	attrSettle               = "settle"
	attrNodeOverrides        = "node_overrides"
	attrSelectorOverrides    = "selector_overrides"
	attrHold                 = "hold"
	attrRetry                = "retry"
	attrRetryBootID          = "retry_boot_id"
	attrTimeouts             = "timeouts"
	attrID                   = "id"
	attrStatus               = "status"
	attrNodes                = "nodes"
	attrInstallImage         = "install_image"
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
			MarkdownDescription: "Context of the talosconfig. Unset: the provider's.",
			Optional:            true,
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		attrInstallerImage: schema.StringAttribute{
			MarkdownDescription: "Installer image for all nodes, such as `factory.talos.dev/metal-installer/<schematic>`, without tag or with the one of `talos_version`: each step takes the tag that it needs. " +
				"Unset: each node keeps its own repository, platform, secure boot flavour and schematic, and only the version changes. " +
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
		Version: stateVersion,
		MarkdownDescription: "Brings the nodes of a Talos cluster to a version, one safe step at a time, and blocks until they run it. " +
			"A cluster has one resource: a second one for the same cluster is refused.",
		Attributes: attributes,
	}
}

func timeoutsSchema(ctx context.Context) schema.Attribute {
	const note = " When it is reached, the node in progress is finished and the run stops; the next apply continues."

	attribute := timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, Update: true, Read: true, Delete: true,
		CreateDescription: "How long a first apply may take, default `4h`." + note + " For up to 15 minutes of it a cluster that does not answer yet is waited for.",
		UpdateDescription: "How long an upgrade may take, default `4h`." + note,
		ReadDescription:   "How long a look at the cluster may take, default `1m`.",
		DeleteDescription: "How long a destroy may take to remove the objects of this provider from the cluster, default `3m`.",
	})

	if nested, ok := attribute.(schema.SingleNestedAttribute); ok {
		for name, limit := range nested.Attributes {
			if text, isText := limit.(schema.StringAttribute); isText {
				text.Validators = []validator.String{durationValidator{}}
				text.PlanModifiers = append(text.PlanModifiers, keepSpelling{sameDuration})
				nested.Attributes[name] = text
			}
		}

		nested.MarkdownDescription = "Limits of whole operations, such as `\"90m\"`."

		return nested
	}

	return attribute
}

// policySchema returns the attributes that say how the target is reached.
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
			Validators:          rebootModes(),
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
				MarkdownDescription: "What happens when `timeout` is over: `abort` (default) stops the run and takes the cordon back; `delete` deletes the pods without asking their budgets.",
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(string(policy.OnTimeout)),
				Validators:          []validator.String{stringvalidator.OneOf(string(cluster.DrainAbort), string(cluster.DrainDelete))},
			},
			attrWaitForVolumes: schema.StringAttribute{
				MarkdownDescription: "Whether a node that is empty reboots only when its volumes have left it, so that pods elsewhere need not wait for them: `true` (default) waits for two minutes at most, " +
					"and no longer than `timeout`, and goes on with a warning; `required` then stops the run and takes the cordon back; `false` does not wait. Nothing is detached or deleted.",
				Optional:   true,
				Computed:   true,
				Default:    stringdefault.StaticString(string(policy.Volumes)),
				Validators: []validator.String{stringvalidator.OneOf(string(cluster.AwaitVolumes), string(cluster.RequireVolumes), string(cluster.IgnoreVolumes))},
			},
		},
	}
}

// pathSchema returns the attributes that say through which versions an upgrade goes.
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
				"Unset: the newest patch of each release line that this version of the provider knows. Needs `allow_intermediate_versions`.",
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

// rollSchema returns the attributes that say how many nodes are upgraded at a time, which come first, and which are
// held.
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
		attrParallelPulls: schema.NumberAttribute{
			MarkdownDescription: "How many nodes may pull images at a time, from 1 to " + strconv.Itoa(maxParallelPulls) + ". By default as many as workers may be unavailable at a time, " +
				"or three times as many as kubelets may restart at a time where Kubernetes moves, whichever is more; 5 at least and 50 at most, or as many as kubelets may restart at a time if that is more, up to 200. A registry that limits its clients may need fewer.",
			Optional:   true,
			Validators: []validator.Number{wholeNumberValidator{maxParallelPulls, wrongParallelPulls}},
		},
		attrPools: poolsSchema(),
		attrCanary: schema.ListAttribute{
			MarkdownDescription: "Kubernetes node names of workers that move before all others. Before every one of them runs the new version and has stayed healthy " +
				"for `settle`, no other node is upgraded and no other kubelet replaced; where the way has several hops, in each of them. " +
				"Components of the control plane come before all kubelets.",
			ElementType: types.StringType,
			Optional:    true,
			Validators:  []validator.List{listvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))},
		},
		attrCanarySelector: schema.StringAttribute{
			MarkdownDescription: "Label selector, such as `upgrade=first`: workers that it matches are canaries as well, beside those that `canary` names. " +
				"One whose label goes away during an apply stays a canary until the apply ends.",
			Optional:   true,
			Validators: []validator.String{selectorValidator{}},
		},
		attrSettle: schema.StringAttribute{
			MarkdownDescription: "How long a node must stay healthy after its upgrade, or after its kubelet was replaced, before the next one starts, default `0s`.",
			Optional:            true,
			Computed:            true,
			Default:             stringdefault.StaticString(durationText(policy.Settle)),
			Validators:          []validator.String{durationValidator{zero: true}},
			PlanModifiers:       []planmodifier.String{keepSpelling{sameDuration}},
		},
		attrNodeOverrides:     nodeOverridesSchema(),
		attrSelectorOverrides: selectorOverridesSchema(),
	}
}

func poolsSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Bounds for parts of the workers, by a name of your choice, within `max_unavailable`, which stays the upper one. A node that is in two pools is an error of the plan.",
		Optional:            true,
		Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)), poolsValidator{}},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrSelector: schema.StringAttribute{
					MarkdownDescription: "Label selector, such as `pool=storage`: the workers that it matches are the pool.",
					Required:            true,
					Validators:          []validator.String{selectorValidator{}},
				},
				attrMaxUnavailable: schema.StringAttribute{
					MarkdownDescription: "How many workers of the pool may be unavailable at a time: a number, or a percentage of the pool's workers such as `\"25%\"`, rounded down but one at least. " +
						"It bounds the kubelets of the pool that restart at a time as well, within `kubernetes.max_unavailable_kubelets`.",
					Required:   true,
					Validators: []validator.String{shareValidator{}},
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
		MarkdownDescription: "Exceptions for all nodes that a label selector matches, for names that are not known in advance. What `node_overrides` says of a node by its name counts as well: " +
			"a node that either holds is held, and an image or a reboot mode by name comes before one by labels. Two elements that give one node different ones are an error of the plan. An element that sets nothing is refused.",
		Optional:   true,
		Validators: []validator.List{presentValidator{}, selectorOverridesValidator{}},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrSelector: schema.StringAttribute{
					MarkdownDescription: "Label selector, such as `upgrade=hold` or `pool in (gpu, storage)`. An empty one, which would match every node, is refused.",
					Required:            true,
					Validators:          []validator.String{selectorValidator{}},
				},
				attrInstallerImage: schema.StringAttribute{
					MarkdownDescription: "Installer image for these nodes, without tag, with the tag of `talos_version` or by digest, instead of `installer_image` and of each node's own repository.",
					Optional:            true,
					Validators:          []validator.String{repositoryValidator{}},
				},
				attrHold: schema.BoolAttribute{
					MarkdownDescription: "Leave these nodes alone, default `false`, as `hold` of `node_overrides` does. A node that a label holds at any moment of an apply is not begun in it, and one that had begun is finished.",
					Optional:            true,
					Computed:            true,
					Default:             booldefault.StaticBool(false),
				},
				attrRebootMode: schema.StringAttribute{
					MarkdownDescription: "How these nodes restart, instead of `reboot_mode`.",
					Optional:            true,
					Validators:          rebootModes(),
				},
			},
		},
	}
}

func nodeOverridesSchema() schema.Attribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Exceptions for single nodes, by Kubernetes node name. An entry that sets nothing is refused: most likely a name in it is misspelt.",
		Optional:            true,
		Validators:          []validator.Map{mapvalidator.KeysAre(stringvalidator.LengthAtLeast(1)), overridesValidator{}},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrInstallerImage: schema.StringAttribute{
					MarkdownDescription: "Installer image for this node, without tag, with the tag of `talos_version` or by digest, instead of `installer_image` and of the node's own repository.",
					Optional:            true,
					Validators:          []validator.String{repositoryValidator{}},
				},
				attrHold: schema.BoolAttribute{
					MarkdownDescription: "Leave this node alone, default `false`: it is not upgraded, and it does not count as behind. " +
						"It still counts for what is safe. A roll that would leave it with versions that do not go together is refused.",
					Optional: true,
					Computed: true,
					Default:  booldefault.StaticBool(false),
				},
				attrRebootMode: schema.StringAttribute{
					MarkdownDescription: "How this node restarts, instead of `reboot_mode`. With `powercycle` for a canary, a system that the firmware does not boot shows itself there: " +
						"a kexec goes past firmware and boot loader.",
					Optional:   true,
					Validators: rebootModes(),
				},
				attrRetryBootID: schema.StringAttribute{
					MarkdownDescription: "After a node fell back to its old system or was rolled back to it, the boot ID from the error message: the same image may be tried once more. " +
						"It stops having an effect with the next fallback or rollback.",
					Optional:   true,
					Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
				},
			},
		},
	}
}

// The names of the attributes within kubernetes.
const (
	attrImages              = "images"
	attrUnavailableKubelets = "max_unavailable_kubelets"
	attrManifests           = "manifests"
	attrSync                = "sync"
	attrPrune               = "prune"
	attrTimeout             = "timeout"
	attrForce               = "force"
	attrExclude             = "exclude"
	attrKubelet             = "kubelet"
	attrAPIServer           = "kube_apiserver"
	attrControllerManager   = "kube_controller_manager"
	attrScheduler           = "kube_scheduler"
	attrProxy               = "kube_proxy"
	attrInstaller           = "installer"
)

// kubernetesSchema returns the attribute that says how the Kubernetes version is reached.
func kubernetesSchema() schema.Attribute {
	policy := cluster.DefaultPolicy().Kubernetes

	return schema.SingleNestedAttribute{
		MarkdownDescription: "How `kubernetes_version` is reached.",
		Optional:            true,
		Computed:            true,
		PlanModifiers:       []planmodifier.Object{unlessConfigured{kubernetesValue(policy, types.BoolUnknown())}},
		Attributes: map[string]schema.Attribute{
			attrImages: imagesSchema(),
			attrUnavailableKubelets: schema.StringAttribute{
				MarkdownDescription: "How many workers' kubelets may restart at a time, default `1`: a number, or a percentage of all workers such as `\"25%\"`, " +
					"rounded down but one at least. Workers that are not ready count. Pods keep running meanwhile. Everything on control planes moves one at a time.",
				Optional:   true,
				Computed:   true,
				Default:    stringdefault.StaticString(policy.MaxUnavailableKubelets.String()),
				Validators: []validator.String{shareValidator{}},
			},
			attrManifests: manifestsSchema(policy.Manifests),
		},
	}
}

func imagesSchema() schema.Attribute {
	attributes := map[string]schema.Attribute{}

	for _, image := range imageAttributes() {
		attributes[image.name] = schema.StringAttribute{
			MarkdownDescription: "Image of " + string(image.component) + " without tag.",
			Optional:            true,
			Validators:          []validator.String{repositoryValidator{by: attrKubernetesVersion}},
		}
	}

	return schema.SingleNestedAttribute{
		MarkdownDescription: "Images without tag, such as `registry.example.com/kubelet`, which replace those that the machine configurations name. " +
			"Unset: each node keeps the registry, path and suffix of its own, and only the version changes. Needs `kubernetes_version`.",
		Optional:   true,
		Attributes: attributes,
	}
}

func manifestsSchema(policy cluster.ManifestPolicy) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "The bootstrap manifests, which Talos renders: kube-proxy, CoreDNS, the network, and what kubelets need to join. " +
			"They are brought up to date at the end of every roll in which `kubernetes_version` is set; see `sync`.",
		Optional:      true,
		Computed:      true,
		PlanModifiers: []planmodifier.Object{unlessConfigured{manifestsValue(policy, types.BoolUnknown())}},
		Attributes: map[string]schema.Attribute{
			attrSync: schema.BoolAttribute{
				MarkdownDescription: "Bring the objects in the cluster to what Talos renders. Default: `true` where `kubernetes_version` is set, `false` where it is not. With `false`, kube-proxy and CoreDNS stay as they are.",
				Optional:            true,
				Computed:            true,
				PlanModifiers:       []planmodifier.Bool{followsKubernetes{}},
			},
			attrPrune: schema.BoolAttribute{
				MarkdownDescription: "Delete what an earlier sync applied and Talos no longer renders, default `false`. Before Talos 1.13 on every node there is no record of what was applied, and nothing is deleted.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(policy.Prune),
			},
			attrTimeout: schema.StringAttribute{
				MarkdownDescription: "How long to wait until what was applied is rolled out, default `5m`; `0s` does not wait.",
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(durationText(policy.Timeout)),
				Validators:          []validator.String{durationValidator{zero: true}},
				PlanModifiers:       []planmodifier.String{keepSpelling{sameDuration}},
			},
			attrForce: schema.BoolAttribute{
				MarkdownDescription: "Recreate objects of which a field changed that may not change, default `false`: such an object is away for a moment, and what belongs to it is deleted with it, such as the objects of a CRD.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(policy.Force),
			},
			attrExclude: manifestObjectsSchema(),
		},
	}
}

func manifestObjectsSchema() schema.Attribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Objects that stay as they are, such as a Job among the inline manifests, whose pod template Kubernetes lets nobody change: they are neither compared nor applied nor pruned, and nobody waits for them. " +
			"kube-proxy cannot be one of them: its pods are part of the upgrade.",
		Optional:   true,
		Validators: []validator.List{presentValidator{}, manifestObjectsValidator{}},
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrKind: schema.StringAttribute{
					MarkdownDescription: "Kind, such as `Job`.",
					Required:            true,
					Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				attrNamespace: schema.StringAttribute{
					MarkdownDescription: "Namespace. Unset: objects of that name in every namespace, or of the whole cluster.",
					Optional:            true,
					Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				},
				attrName: schema.StringAttribute{
					MarkdownDescription: "Name.",
					Required:            true,
					Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				},
			},
		},
	}
}

// The names of the attributes that can delay an upgrade, and of those within them.
const (
	attrPreflight         = "preflight"
	attrSkip              = "skip"
	attrEtcdSnapshot      = "etcd_snapshot"
	attrDirectory         = "directory"
	attrGates             = "gates"
	attrPreset            = "preset"
	attrAPIVersion        = "api_version"
	attrKind              = "kind"
	attrNamespace         = "namespace"
	attrName              = "name"
	attrSelector          = "selector"
	attrExpr              = "expr"
	attrMaintenanceWindow = "maintenance_window"
	attrCron              = "cron"
	attrDuration          = "duration"
	attrTimeZone          = "time_zone"
	attrSyncInstallImage  = "sync_install_image"
)

// defaultTimeZone is the default time zone of a window.
const defaultTimeZone = "UTC"

// guardSchema returns the attributes that say which conditions must hold before nodes are changed, and what is saved
// before.
func guardSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrPreflight: schema.SingleNestedAttribute{
			MarkdownDescription: "The checks that are made before nodes are touched.",
			Optional:            true,
			Attributes: map[string]schema.Attribute{
				attrSkip: schema.SetAttribute{
					MarkdownDescription: "Names of checks that stop nothing, such as `[\"etcd-alarms\"]`: what they find is a warning in plan and apply. Unset: every check counts. " +
						"Checks that keep a cluster from being lost cannot be skipped.",
					ElementType: types.StringType,
					Optional:    true,
					Validators:  []validator.Set{skipValidator{}},
				},
			},
		},
		attrEtcdSnapshot: schema.SingleNestedAttribute{
			MarkdownDescription: "A snapshot of etcd that is saved on the machine that runs Terraform before anything is touched, once for each roll to a target: an apply that continues an earlier one takes none. " +
				"An upgrade whose snapshot could not be saved does not begin. Unset: none is taken.",
			Optional: true,
			Attributes: map[string]schema.Attribute{
				attrDirectory: schema.StringAttribute{
					MarkdownDescription: "Directory for `<cluster>-<UTC>.db` and its `.sha256`, created where it is missing. Both files are readable by their owner alone: a snapshot holds every Secret of the cluster.",
					Required:            true,
					Validators:          []validator.String{directoryValidator{}},
				},
			},
		},
		attrGates:             gatesSchema(),
		attrMaintenanceWindow: windowSchema(),
		attrSyncInstallImage: schema.BoolAttribute{
			MarkdownDescription: "Have `machine.install.image` of a node's machine configuration name the image of a confirmed upgrade, default `false`. " +
				"It is drift to whatever else manages the machine configurations.",
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
		MarkdownDescription: "Conditions that have to hold before the roll, and again before each node, or component of one, that is disturbed: either a preset, or an expression over objects of the Kubernetes API.",
		Optional:            true,
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				attrPreset:     text("A condition that comes with the provider: " + strings.Join(presets, ", ") + ". Of the other attributes it goes with `namespace` and `timeout`."),
				attrAPIVersion: text("API version of the objects, such as `v1` or `longhorn.io/v1beta2`. Needed where there is no preset."),
				attrKind:       text("Kind of the objects, such as `Deployment`. Needed where there is no preset. Secrets are refused."),
				attrNamespace:  text("Namespace of the objects. Unset: all of them."),
				attrName:       text("Name of one object, instead of `selector`."),
				attrSelector:   text("Label selector, such as `app=web,tier!=test`. Unset: all objects of the kind."),
				attrExpr: text("Expression in [CEL](https://cel.dev) that is `true` when the node may be upgraded. `object` is the object, which has to be there, and where there are several it has to be true of each; " +
					"`objects` is the list of them, which may be empty; `node` is the name of the node that is about to be upgraded, empty before the roll. Needed where there is no preset."),
				attrTimeout: schema.StringAttribute{
					MarkdownDescription: "How long the condition may take to come to hold, default `" + durationText(gate.DefaultTimeout) + "`. After that the run stops, and the next apply continues.",
					Optional:            true,
					Computed:            true,
					Default:             stringdefault.StaticString(durationText(gate.DefaultTimeout)),
					Validators:          []validator.String{durationValidator{}},
					PlanModifiers:       []planmodifier.String{keepSpelling{sameDuration}},
				},
			},
		},
	}
}

func windowSchema() schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "When nodes may be upgraded. Outside of it nothing starts. Where it closes in the middle of a roll, the node in progress is finished and the run stops; the next apply within the window continues. Unset: always.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			attrCron: schema.StringAttribute{
				MarkdownDescription: "When it opens, in the five fields of cron: minute, hour, day of the month, month, day of the week. `0 22 * * 1-5` is at 22:00 from Monday to Friday.",
				Required:            true,
			},
			attrDuration: schema.StringAttribute{
				MarkdownDescription: "How long it stays open, such as `6h`.",
				Required:            true,
				Validators:          []validator.String{durationValidator{}},
				PlanModifiers:       []planmodifier.String{keepSpelling{sameDuration}},
			},
			attrTimeZone: schema.StringAttribute{
				MarkdownDescription: "IANA name of the time zone that `cron` is in, such as `Europe/Oslo`, default `" + defaultTimeZone + "`.",
				Optional:            true,
				Computed:            true,
				Default:             stringdefault.StaticString(defaultTimeZone),
			},
		},
	}
}

// The names of the attributes that say what happens if something fails or is suspended, besides [attrRetry].
const (
	attrOnFailure = "on_failure"
	attrOnSuspend = "on_suspend"
	// attrWaitForVolumes is part of a drain.
	attrWaitForVolumes = "wait_for_volumes"
	attrAttempts       = "attempts"
	attrBackoff        = "backoff"
)

// maxParallelPulls bounds parallel_pulls: 200 installer images of some 200 MB are 40 GB at once.
const maxParallelPulls = 200

// maxAttempts bounds retry.attempts: what has failed that often is not resolved by repeating it.
const maxAttempts = 10

// failureSchema returns the attributes that say what happens if something fails.
func failureSchema() map[string]schema.Attribute {
	policy := cluster.DefaultPolicy()

	return map[string]schema.Attribute{
		attrOnFailure: schema.StringAttribute{
			MarkdownDescription: "What happens to a node that runs the new Talos and does not become healthy with it within `node_timeout`: `stop` (default) leaves it as it is, cordoned, for somebody to look at; " +
				"`rollback` sends it back to the system it ran before, once, where that is safe, and does as `stop` does otherwise and says why. The run fails in either case. " +
				"Kubernetes is never rolled back.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(string(policy.OnFailure)),
			Validators: []validator.String{onFailureValidator{}},
		},
		attrOnSuspend: schema.StringAttribute{
			MarkdownDescription: "What an apply does while somebody has [suspended the upgrades](../guides/suspending-upgrades.md) of the cluster. Nothing new is started, and nodes on their way are finished, in either case: " +
				"`wait` (default) goes on when they are resumed, within `timeouts`; `stop` ends the apply with an error, and the next one continues.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(string(policy.OnSuspend)),
			Validators: []validator.String{stringvalidator.OneOf(string(cluster.WaitOnSuspend), string(cluster.StopOnSuspend))},
		},
		attrRetry: schema.SingleNestedAttribute{
			MarkdownDescription: "How often what is safe to repeat is tried within one apply: pulls of images, and installs that a reboot showed never to have taken. " +
				"An image with which a node did not come up is not tried again by this; see `node_overrides`.",
			Optional: true,
			Computed: true,
			Default:  objectdefault.StaticValue(retryValue(policy.Repeat)),
			Attributes: map[string]schema.Attribute{
				attrAttempts: schema.NumberAttribute{
					MarkdownDescription: "How many attempts, the first one included, from 1 to " + strconv.Itoa(maxAttempts) + ", default `" + strconv.Itoa(policy.Repeat.Attempts) + "`. " +
						"A pull that waiting may cure is tried again for five minutes in any case.",
					Optional:   true,
					Computed:   true,
					Default:    numberdefault.StaticBigFloat(big.NewFloat(float64(policy.Repeat.Attempts))),
					Validators: []validator.Number{wholeNumberValidator{maxAttempts, wrongAttempts}},
				},
				attrBackoff: schema.StringAttribute{
					MarkdownDescription: "The pause before the second attempt, default `" + durationText(policy.Repeat.Backoff) + "`; each further one is twice as long as the one before it, up to five minutes. " +
						"However many attempts there are, a pull has 25 minutes and a node has `node_timeout`.",
					Optional:      true,
					Computed:      true,
					Default:       stringdefault.StaticString(durationText(policy.Repeat.Backoff)),
					Validators:    []validator.String{durationValidator{zero: true}},
					PlanModifiers: []planmodifier.String{keepSpelling{sameDuration}},
				},
			},
		},
	}
}

// The names of the attributes that say where progress is published, and who upgrades the nodes.
const (
	attrPublishTo = "publish_to"
	attrMode      = "mode"
)

// The values of mode.
const (
	modeDirect   = "direct"
	modeDelegate = "delegate"
)

// defaultObject is the object to which progress is published by default.
const defaultObject = "ConfigMap kube-system/talosupgrade"

// publishSchema returns the attributes that say where progress is published, and who upgrades the nodes.
func publishSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrPublishTo: schema.SingleNestedAttribute{
			MarkdownDescription: "The object that carries the annotations `upgrade.vitistack.io/*` about an upgrade and, where its kind has such fields, `status.phase` and the conditions `TalosUpgrade` and `KubernetesUpgrade`; " +
				"Kubernetes Events are about it as well. It has to exist: it is never created, and a destroy leaves it as it is, annotations included. " +
				"It is in the cluster of the provider's `management` where that is set, and in the upgraded cluster otherwise. " +
				"Where it cannot be written, the upgrade goes on and says so in a warning. " +
				"Unset: the ConfigMap `kube-system/talosupgrade` of the upgraded cluster, which is created and removed by this resource.",
			Optional: true,
			Attributes: map[string]schema.Attribute{
				attrAPIVersion: schema.StringAttribute{
					MarkdownDescription: "API version of the object, such as `example.com/v1`. Where it is unset it is, for the kind `KubernetesCluster`: `vitistack.io/v1alpha1`, for `TalosControlPlane`: `talos.alperen.cloud/v1alpha1`, for `ConfigMap`: `v1`. Other kinds need it.",
					Optional:            true,
					Validators:          []validator.String{apiVersionValidator{}},
				},
				attrKind: schema.StringAttribute{
					MarkdownDescription: "Kind of the object, such as `KubernetesCluster`. Secrets are refused.",
					Required:            true,
					Validators:          []validator.String{objectKindValidator{}},
				},
				attrNamespace: schema.StringAttribute{
					MarkdownDescription: "Namespace of the object.",
					Required:            true,
					Validators:          []validator.String{objectNameValidator{}},
				},
				attrName: schema.StringAttribute{
					MarkdownDescription: "Name of the object.",
					Required:            true,
					Validators:          []validator.String{objectNameValidator{}},
				},
			},
		},
		attrMode: schema.StringAttribute{
			MarkdownDescription: "Who upgrades the nodes. `direct` (default): this provider does. An operator that acts on the object of `publish_to` is held meanwhile with the annotation `upgrade.vitistack.io/do-not-reconcile`, which the provider takes back at the end, " +
				"after a kill with the next apply; no other value of it is ever removed. An upgrade that the operator was asked for already is refused. " +
				"`delegate`: the operator does. The provider makes its checks, asks the operator through the object of `publish_to`, a `KubernetesCluster` or a `TalosControlPlane`, follows it to the end, and then looks at every node itself. " +
				"How the nodes are upgraded is the operator's to decide, so attributes that say how are refused: " + codeList(refusedByDelegate()) + ".",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(modeDirect),
			Validators: []validator.String{modeValidator{}},
		},
	}
}

// statusSchema returns the schema of status. It has no plan modifier: whether status changes depends on the observed
// cluster.
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
			"talos":      productStatusSchema("Talos"),
			"kubernetes": productStatusSchema("Kubernetes"),
		},
	}
}

func productStatusSchema(name string) schema.Attribute {
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
				attrInstallImage: schema.StringAttribute{
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

// attrReportPath is the attribute with the path of a run's report.
const attrReportPath = "report_path"

// reportSchema returns the attribute with the path of a run's report.
func reportSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrReportPath: schema.StringAttribute{
			MarkdownDescription: "File, on the machine that runs Terraform, for a picture of the run, such as `\"${path.root}/upgrade.html\"`: one HTML page without scripts and without anything to load, " +
				"with a timeline of every node, the plan, what the checks found, the versions before and after and, where the run stops, what was seen and what to do. " +
				"It is written again as the run goes on. An apply that has nothing to do leaves it as it is. Directories that are missing are made. " +
				"A file that is no report is not written over: that is an error before anything is touched. It holds no secrets, but names of nodes, addresses and images.",
			Optional:   true,
			Validators: []validator.String{reportPathValidator{}},
		},
	}
}
