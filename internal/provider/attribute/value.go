// SPDX-License-Identifier: MPL-2.0

package attribute

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TextValue returns the text, escaped because it may come from a cluster; null if it is empty.
func TextValue(text string) types.String {
	if text == "" {
		return types.StringNull()
	}

	return types.StringValue(readable.Printable(text))
}

// VersionValue returns the version as in state: without v, null if unknown.
func VersionValue(v version.Version) types.String {
	if v.IsZero() {
		return types.StringNull()
	}

	return types.StringValue(v.String())
}

// Moment returns the time as in state; empty if unknown.
func Moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}

	return at.UTC().Format(time.RFC3339)
}

// ComputedText returns a computed attribute of a data source.
func ComputedText(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

// Stated reports whether a configuration sets the value. It is false for an unknown value, which may turn out to be
// null.
func Stated(value attr.Value) bool { return value != nil && !value.IsNull() && !value.IsUnknown() }

// Decides reports whether a configuration sets anything with the value. It is false for an empty collection, and for an
// object of which no attribute decides anything, as modules pass them on for variables that are not set.
func Decides(value attr.Value) bool {
	if !Stated(value) {
		return false
	}

	switch value := value.(type) {
	case types.List:
		return len(value.Elements()) > 0
	case types.Set:
		return len(value.Elements()) > 0
	case types.Map:
		return len(value.Elements()) > 0
	case types.Object:
		return slices.ContainsFunc(slices.Collect(maps.Values(value.Attributes())), Decides)
	default:
		return true
	}
}

// PlainText returns the text, and whether it is set and known.
func PlainText(value types.String) (string, bool) {
	return value.ValueString(), !value.IsNull() && !value.IsUnknown()
}

// Supposed returns the text, or the given one while it is unknown.
func Supposed(value types.String, meanwhile string) string {
	if value.IsUnknown() {
		return meanwhile
	}

	return value.ValueString()
}

var (
	_ planmodifier.String = KeepSpelling{}
	_ planmodifier.List   = KeepSpelling{}
	_ planmodifier.Object = unlessConfigured{}
)

// KeepSpelling plans the value as in state if the configuration only spells it differently.
type KeepSpelling struct {
	// Same reports whether both texts mean the same.
	Same func(a, b string) bool
}

// KeepVersion keeps the spelling of versions: v1.13.4 and 1.13.4 are the same.
func KeepVersion() KeepSpelling { return KeepSpelling{sameVersion} }

// KeepDuration keeps the spelling of durations: 60s and 1m are the same.
func KeepDuration() KeepSpelling { return KeepSpelling{sameDuration} }

// Description implements [planmodifier.String].
func (KeepSpelling) Description(context.Context) string {
	return "A change of spelling alone is not a change."
}

// MarkdownDescription implements [planmodifier.String].
func (m KeepSpelling) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString implements [planmodifier.String].
func (m KeepSpelling) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}

	if m.Same(req.StateValue.ValueString(), req.PlanValue.ValueString()) {
		resp.PlanValue = req.StateValue
	}
}

// PlanModifyList implements [planmodifier.List].
func (m KeepSpelling) PlanModifyList(_ context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}

	if slices.EqualFunc(req.StateValue.Elements(), req.PlanValue.Elements(), func(before, after attr.Value) bool {
		state, isText := before.(types.String)
		plan, isTextToo := after.(types.String)

		return isText && isTextToo && m.Same(state.ValueString(), plan.ValueString())
	}) {
		resp.PlanValue = req.StateValue
	}
}

// UnlessConfigured plans the value if the configuration does not set the object. It is for an object in which plan
// modifiers set values: as a default, it would lack them and differ from the state, and every computed value of each
// node would be planned anew although nothing has changed.
func UnlessConfigured(value types.Object) planmodifier.Object { return unlessConfigured{value} }

type unlessConfigured struct{ value types.Object }

// Description implements [planmodifier.Object].
func (unlessConfigured) Description(context.Context) string { return "If unset, a default is planned." }

// MarkdownDescription implements [planmodifier.Object].
func (u unlessConfigured) MarkdownDescription(ctx context.Context) string { return u.Description(ctx) }

// PlanModifyObject implements [planmodifier.Object].
func (u unlessConfigured) PlanModifyObject(_ context.Context, req planmodifier.ObjectRequest, resp *planmodifier.ObjectResponse) {
	if req.ConfigValue.IsNull() {
		resp.PlanValue = u.value
	}
}

// sameVersion reports whether both texts are the same version.
func sameVersion(a, b string) bool {
	first, errFirst := version.Parse(a)
	second, errSecond := version.Parse(b)

	return errFirst == nil && errSecond == nil && first.Equal(second)
}

// sameDuration reports whether both texts are the same duration.
func sameDuration(a, b string) bool {
	first, errFirst := time.ParseDuration(a)
	second, errSecond := time.ParseDuration(b)

	return errFirst == nil && errSecond == nil && first == second
}

// ExpandHome replaces a leading "~/" with the home directory.
func ExpandHome(file string) (string, error) {
	rest, ok := strings.CutPrefix(file, "~/")
	if !ok {
		return file, nil
	}

	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}

	return home + string(os.PathSeparator) + rest, nil
}
