// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// Names of the attributes that say where progress is published, and who acts.
const (
	attrPublishTo = "publish_to"
	attrMode      = "mode"
)

// What mode may be.
const (
	modeDirect   = "direct"
	modeDelegate = "delegate"
)

// defaultObject is where progress is published that goes nowhere else.
const defaultObject = "ConfigMap kube-system/talosupgrade"

// publishSchema are the attributes that say where progress is published, and who
// acts. As those of [guardSchema] they have no defaults of their own.
func publishSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrPublishTo: schema.SingleNestedAttribute{
			MarkdownDescription: "The object that carries the annotations `upgrade.vitistack.io/*` about an upgrade and, where its kind has such fields, `status.phase` and the conditions `TalosUpgrade` and `KubernetesUpgrade`; " +
				"Kubernetes Events are about it as well. It has to exist: it is never created, and a destroy leaves it as it is, annotations included. " +
				"It is in the cluster of the provider's `management` where that is set, and in the upgraded cluster otherwise. " +
				"Where it cannot be written, the upgrade goes on and says so in a warning. " +
				"Default: the ConfigMap `kube-system/talosupgrade` of the upgraded cluster, which is created and removed by this resource.",
			Optional: true,
			Attributes: map[string]schema.Attribute{
				attrAPIVersion: schema.StringAttribute{
					MarkdownDescription: "API version of the object, such as `example.com/v1`. Default for the kind `KubernetesCluster`: `vitistack.io/v1alpha1`, for `TalosControlPlane`: `talos.alperen.cloud/v1alpha1`, for `ConfigMap`: `v1`. Other kinds need it.",
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
				"How the nodes are upgraded is the operator's to decide, so attributes that say how are refused: `order`, `reboot_mode`, `drain`, `installer_image`, `max_unavailable`, `canary`, `settle`, `node_overrides`, " +
				"`kubernetes`, `sync_install_image`, `on_failure` and `retry`.",
			Optional:   true,
			Validators: []validator.String{modeValidator{}},
		},
	}
}
