// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ validator.String = versionValidator{}
	_ validator.String = durationValidator{}
	_ validator.String = repositoryValidator{}
)

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
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid version", sentence(err.Error()))
	}
}

// durationValidator accepts durations above zero.
type durationValidator struct{}

// Description implements [validator.String].
func (durationValidator) Description(context.Context) string {
	return `value must be a duration above zero such as "90s" or "1h30m"`
}

// MarkdownDescription implements [validator.String].
func (v durationValidator) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements [validator.String].
func (v durationValidator) ValidateString(ctx context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if duration, err := time.ParseDuration(req.ConfigValue.ValueString()); err != nil || duration <= 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid duration",
			req.Path.String()+` is "`+req.ConfigValue.ValueString()+`": `+v.Description(ctx)+".")
	}
}

// repositoryValidator accepts image references without tag and digest.
type repositoryValidator struct{}

// Description implements [validator.String].
func (repositoryValidator) Description(context.Context) string {
	return "value must be an image reference without tag and digest"
}

// MarkdownDescription implements [validator.String].
func (v repositoryValidator) MarkdownDescription(ctx context.Context) string {
	return v.Description(ctx)
}

// ValidateString implements [validator.String].
func (repositoryValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}

	if _, err := image.ParseRepository(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid installer image", sentence(err.Error())+
			" The tag is chosen by talos_version.")
	}
}
