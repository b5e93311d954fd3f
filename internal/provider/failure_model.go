// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// repeatModel is the retry object.
type repeatModel struct {
	Attempts types.Number `tfsdk:"attempts"`
	Backoff  types.String `tfsdk:"backoff"`
}

func repeatTypes() map[string]attr.Type {
	return map[string]attr.Type{attrAttempts: types.NumberType, attrBackoff: types.StringType}
}

// onFailure is what happens to a node whose new system does not become healthy;
// the fallback where the model says nothing.
func (m clusterModel) onFailure(fallback cluster.OnFailure) cluster.OnFailure {
	if text := m.OnFailure.ValueString(); text != "" {
		return cluster.OnFailure(text)
	}

	return fallback
}

// repeat is how often and how soon what is safe to repeat is tried again. What
// the model does not say is as in the fallback.
func (m clusterModel) repeat(ctx context.Context, fallback cluster.Repeat) (cluster.Repeat, diag.Diagnostics) {
	var (
		diagnostics diag.Diagnostics
		model       repeatModel
	)

	if m.Repeat.IsNull() {
		return fallback, diagnostics
	}

	diagnostics.Append(m.Repeat.As(ctx, &model, basetypes.ObjectAsOptions{})...)

	if !model.Attempts.IsNull() {
		attempts, whole := wholeAttempts(model.Attempts)
		if !whole {
			diagnostics.Append(wrongAttempts(path.Root(attrRetry).AtName(attrAttempts), model.Attempts))
		}

		fallback.Attempts = attempts
	}

	fallback.Backoff = duration(path.Root(attrRetry).AtName(attrBackoff), model.Backoff, fallback.Backoff, &diagnostics)

	return fallback, diagnostics
}
