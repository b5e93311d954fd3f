// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
)

// Names of the attributes that hold an upgrade up, and of what is in them.
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

// defaultTimeZone is the time zone of a window that names none.
const defaultTimeZone = "UTC"

// guardSchema are the attributes that say what has to hold before nodes are
// touched, and what is kept of them. Those of the resource itself have no
// defaults: a state that an earlier version of the provider stored does not have
// them, and must not differ from a configuration that does not either.
func guardSchema() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		attrPreflight: schema.SingleNestedAttribute{
			MarkdownDescription: "The checks that are made before nodes are touched.",
			Optional:            true,
			Attributes: map[string]schema.Attribute{
				attrSkip: schema.SetAttribute{
					MarkdownDescription: "Names of checks that stop nothing, such as `[\"etcd-alarms\"]`: what they find is a warning in plan and apply. Default `[]`. " +
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
				attrNamespace:  text("Namespace of the objects. Default: all of them."),
				attrName:       text("Name of one object, instead of `selector`."),
				attrSelector:   text("Label selector, such as `app=web,tier!=test`. Default: all objects of the kind."),
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
