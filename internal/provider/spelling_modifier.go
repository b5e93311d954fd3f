// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	_ planmodifier.String = keepSpelling{}
	_ planmodifier.List   = keepSpelling{}
)

// keepSpelling plans the value as state has it when the configuration only
// spells it differently, as same tells: v1.13.4 and 1.13.4 are the same version,
// 60s and 1m the same duration.
type keepSpelling struct {
	same func(a, b string) bool
}

// Description implements [planmodifier.String].
func (keepSpelling) Description(context.Context) string {
	return "A value that is only spelled differently is no change."
}

// MarkdownDescription implements [planmodifier.String].
func (m keepSpelling) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString implements [planmodifier.String].
func (m keepSpelling) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}

	if m.same(req.StateValue.ValueString(), req.PlanValue.ValueString()) {
		resp.PlanValue = req.StateValue
	}
}

// PlanModifyList implements [planmodifier.List].
func (m keepSpelling) PlanModifyList(_ context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}

	if slices.EqualFunc(req.StateValue.Elements(), req.PlanValue.Elements(), func(before, after attr.Value) bool {
		state, isText := before.(types.String)
		plan, isTextToo := after.(types.String)

		return isText && isTextToo && m.same(state.ValueString(), plan.ValueString())
	}) {
		resp.PlanValue = req.StateValue
	}
}

// sameVersion tells whether both texts are versions, and the same one.
func sameVersion(a, b string) bool {
	first, errFirst := version.Parse(a)
	second, errSecond := version.Parse(b)

	return errFirst == nil && errSecond == nil && first.Equal(second)
}

// sameDuration tells whether both texts are durations, and the same one.
func sameDuration(a, b string) bool {
	first, errFirst := time.ParseDuration(a)
	second, errSecond := time.ParseDuration(b)

	return errFirst == nil && errSecond == nil && first == second
}
