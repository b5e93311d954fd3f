// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ validator.String = versionValidator{}
	_ validator.String = durationValidator{}
	_ validator.String = repositoryValidator{}
	_ validator.String = shareValidator{}
	_ validator.List   = presentValidator{}
)

// located is the error as a sentence. A value inside of another one is named,
// because the command line shows the attribute as a whole.
func located(at path.Path, err error) string {
	if len(at.Steps()) == 1 {
		return sentence(err.Error())
	}

	return at.String() + ": " + err.Error() + "."
}

// versionValidator accepts versions as people write them.
type versionValidator struct{}

// Description implements [validator.String].
func (versionValidator) Description(context.Context) string {
	return "value must be a version such as 1.13.4, with or without v"
}

// MarkdownDescription implements [validator.String].
func (v versionValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (versionValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, err := version.Parse(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid version", located(req.Path, err))
	}
}

// durationValidator accepts durations above zero, and zero where that means
// something.
type durationValidator struct {
	zero bool
}

// Description implements [validator.String].
func (v durationValidator) Description(context.Context) string {
	if v.zero {
		return `value must be a duration such as "0s", "90s" or "1h30m"`
	}

	return `value must be a duration above zero such as "90s" or "1h30m"`
}

// MarkdownDescription implements [validator.String].
func (v durationValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (v durationValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if duration, err := time.ParseDuration(req.ConfigValue.ValueString()); err != nil || duration < 0 || (duration == 0 && !v.zero) {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid duration",
			req.Path.String()+` is "`+req.ConfigValue.ValueString()+`": `+v.Description(ctx)+".")
	}
}

// repositoryValidator accepts image references without tag and digest.
type repositoryValidator struct {
	// by is the attribute that chooses the tag instead; talos_version when empty.
	by string
}

// Description implements [validator.String].
func (repositoryValidator) Description(context.Context) string {
	return "value must be an image reference without tag"
}

// MarkdownDescription implements [validator.String].
func (v repositoryValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (v repositoryValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	parse := image.ParseRepository
	if v.by == "" {
		parse = image.ParseInstaller
	}

	if _, err := parse(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid image", located(req.Path, err)+
			" The tag is chosen by "+cmp.Or(v.by, attrTalosVersion)+".")
	}
}

// missing is the error of an element of a list that is null.
func missing(at path.Path) diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(visible(at), "Missing value", at.String()+" is null. Give it a value, or remove it from the list.")
}

// presentValidator accepts lists of which every element is there.
type presentValidator struct{}

// Description implements [validator.List].
func (presentValidator) Description(context.Context) string { return "no element may be null" }

// MarkdownDescription implements [validator.List].
func (v presentValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateList implements [validator.List].
func (presentValidator) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	for index, element := range req.ConfigValue.Elements() {
		if element.IsNull() {
			resp.Diagnostics.Append(missing(req.Path.AtListIndex(index)))
		}
	}
}

// shareValidator accepts numbers and percentages of workers.
type shareValidator struct{}

// Description implements [validator.String].
func (shareValidator) Description(context.Context) string {
	return `value must be a whole number from 1 on or a percentage from "1%" to "100%"`
}

// MarkdownDescription implements [validator.String].
func (v shareValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (shareValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, err := cluster.ParseShare(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(visible(req.Path), "Invalid number of workers", req.Path.String()+": "+err.Error()+".")
	}
}
