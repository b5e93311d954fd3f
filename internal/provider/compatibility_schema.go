// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func compatibilitySchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "The support matrix: which minor versions of Kubernetes each minor version of Talos runs, and which minor versions of Talos " +
			"can be upgraded to it. It is built into the provider: no cluster and no network is needed.",
		Attributes: map[string]schema.Attribute{
			attrTalosVersion: schema.StringAttribute{
				MarkdownDescription: "Only the row of this Talos version: a version such as `1.13.4`, or a minor version such as `1.13`, with or without `v`.",
				Optional:            true,
				Validators:          []validator.String{minorValidator{}},
			},
			attrKubernetesVersion: schema.StringAttribute{
				MarkdownDescription: "Only the rows that run this Kubernetes version: a version such as `1.35.2`, or a minor version such as `1.35`, with " +
					"or without `v`.",
				Optional:   true,
				Validators: []validator.String{minorValidator{}},
			},
			"matrix": schema.ListNestedAttribute{
				MarkdownDescription: "The rows, the newest version of Talos last. Empty, with a warning, where no row fits.",
				Computed:            true,
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"talos":                computedText("Minor version of Talos such as `1.13`."),
					"kubernetes_min":       computedText("Oldest minor version of Kubernetes that it runs."),
					"kubernetes_max":       computedText("Newest minor version of Kubernetes that it runs."),
					"upgradeable_from_min": computedText("Oldest minor version of Talos that its installer accepts to replace."),
					"upgradeable_from_max": computedText("Newest minor version of Talos that its installer accepts to replace. Where that is newer than " +
						"`talos`, it would be a downgrade, which `talosupgrade_cluster` refuses."),
					"newest_talos": computedText("Newest release of the minor version in the built-in list; null where none is known."),
				}},
			},
			"as_of": computedText("Day such as `2026-10-01` up to which `newest_talos` is complete."),
		},
	}
}

var _ validator.String = minorValidator{}

// minorValidator accepts versions and minor versions.
type minorValidator struct{}

// Description implements [validator.String].
func (minorValidator) Description(context.Context) string {
	return "value must be a version such as 1.13.4 or a minor version such as 1.13, with or without v"
}

// MarkdownDescription implements [validator.String].
func (v minorValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (v minorValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, ok := parseMinor(req.ConfigValue.ValueString()); !ok {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid version",
			req.Path.String()+` is "`+req.ConfigValue.ValueString()+`": `+v.Description(ctx)+".")
	}
}

// parseMinor reads the minor version out of "1.13" or "1.13.4".
func parseMinor(text string) (version.Minor, bool) {
	if strings.Count(text, ".") == 1 && !strings.Contains(text, "-") {
		text += ".0"
	}

	parsed, err := version.Parse(text)

	return parsed.Minor(), err == nil
}
