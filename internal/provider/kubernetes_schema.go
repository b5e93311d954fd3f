// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Names of the attributes below kubernetes.
const (
	attrImages              = "images"
	attrUnavailableKubelets = "max_unavailable_kubelets"
	attrManifests           = "manifests"
	attrSync                = "sync"
	attrPrune               = "prune"
	attrTimeout             = "timeout"
	attrForce               = "force"
	attrKubelet             = "kubelet"
	attrAPIServer           = "api_server"
	attrControllerManager   = "controller_manager"
	attrScheduler           = "scheduler"
	attrProxy               = "proxy"
	attrInstaller           = "installer"
)

// imageAttribute is an attribute that holds the image of a component.
type imageAttribute struct {
	name      string
	component cluster.Component
}

// imageAttributes are the attributes of every object with images of components,
// in the order in which people look for them.
func imageAttributes() []imageAttribute {
	return []imageAttribute{
		{attrKubelet, cluster.Kubelet},
		{attrAPIServer, cluster.APIServer},
		{attrControllerManager, cluster.ControllerManager},
		{attrScheduler, cluster.Scheduler},
		{attrProxy, cluster.Proxy},
	}
}

// kubernetesSchema says how the Kubernetes half is reached.
func kubernetesSchema() schema.Attribute {
	policy := cluster.DefaultPolicy().Kubernetes

	return schema.SingleNestedAttribute{
		MarkdownDescription: "How `kubernetes_version` is reached.",
		Optional:            true,
		Computed:            true,
		Default:             objectdefault.StaticValue(kubernetesValue(policy)),
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
			"Default: each node keeps the registry, path and suffix of its own, and only the version changes. Needs `kubernetes_version`.",
		Optional:   true,
		Attributes: attributes,
	}
}

func manifestsSchema(policy cluster.ManifestPolicy) schema.Attribute {
	return schema.SingleNestedAttribute{
		MarkdownDescription: "The bootstrap manifests, which Talos renders: kube-proxy, CoreDNS, the network, and what kubelets need to join. " +
			"They are brought up to date at the end of every roll, one of Talos included.",
		Optional: true,
		Computed: true,
		Default:  objectdefault.StaticValue(manifestsValue(policy)),
		Attributes: map[string]schema.Attribute{
			attrSync: schema.BoolAttribute{
				MarkdownDescription: "Bring the objects in the cluster to what Talos renders, default `true`. With `false`, kube-proxy and CoreDNS stay as they are.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(policy.Sync),
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
				MarkdownDescription: "Recreate objects of which a field changed that may not change, default `false`: such an object is away for a moment.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(policy.Force),
			},
		},
	}
}
