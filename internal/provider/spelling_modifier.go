// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ planmodifier.String = keepSpelling{}

// keepSpelling plans the version as state has it when the configuration only
// spells it differently: v1.13.4 and 1.13.4 are the same version.
type keepSpelling struct{}

// Description implements [planmodifier.String].
func (keepSpelling) Description(context.Context) string {
	return "A version that differs only by its leading v is no change."
}

// MarkdownDescription implements [planmodifier.String].
func (m keepSpelling) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString implements [planmodifier.String].
func (keepSpelling) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}

	before, errBefore := version.Parse(req.StateValue.ValueString())
	after, errAfter := version.Parse(req.PlanValue.ValueString())

	if errBefore == nil && errAfter == nil && before.Equal(after) {
		resp.PlanValue = req.StateValue
	}
}
