// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// textValue returns the text, escaped because it may come from a cluster; null if it is empty.
func textValue(text string) types.String {
	if text == "" {
		return types.StringNull()
	}

	return types.StringValue(readable.Printable(text))
}

// versionValue returns the version as in state: without v, null if unknown.
func versionValue(v version.Version) types.String {
	if v.IsZero() {
		return types.StringNull()
	}

	return types.StringValue(v.String())
}

// moment returns the time as in state; empty if unknown.
func moment(at time.Time) string {
	if at.IsZero() {
		return ""
	}

	return at.UTC().Format(time.RFC3339)
}

func computedText(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

// stated reports whether a configuration sets the value. It is false for an unknown value, which may turn out to be
// null.
func stated(value attr.Value) bool { return value != nil && !value.IsNull() && !value.IsUnknown() }

// plainText returns the text, and whether it is set and known.
func plainText(value types.String) (string, bool) {
	return value.ValueString(), !value.IsNull() && !value.IsUnknown()
}

// supposed returns the text, or the given one while it is unknown.
func supposed(value types.String, meanwhile string) string {
	if value.IsUnknown() {
		return meanwhile
	}

	return value.ValueString()
}

// paragraph returns a text of several lines unchanged, such as the message of a compiler with its mark below the
// source, and any other as a sentence in which the names keep their spelling.
func paragraph(text string, names ...string) string {
	if strings.Contains(text, "\n") {
		return text
	}

	return diagnostic.Sentence(text, names...)
}

// codeList lists the names in Markdown: `a`, `b` and `c`.
func codeList(names []string) string {
	last := len(names) - 1

	return "`" + strings.Join(names[:last], "`, `") + "` and `" + names[last] + "`"
}

// keepSpelling plans the value as in state if the configuration only spells it differently, according to same:
// v1.13.4 and 1.13.4 are the same version, 60s and 1m the same duration.
type keepSpelling struct {
	same func(a, b string) bool
}

// Description implements [planmodifier.String].
func (keepSpelling) Description(context.Context) string {
	return "A change of spelling alone is not a change."
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

// unlessConfigured plans an object that the configuration does not set. If it were a default, an object with an
// unknown value would differ from the state, and every computed value of each node would be planned anew although
// nothing has changed.
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

// followsKubernetes plans whether the bootstrap manifests are synced if the configuration does not say: they are if
// kubernetes_version is set.
type followsKubernetes struct{}

// Description implements [planmodifier.Bool].
func (followsKubernetes) Description(context.Context) string {
	return "If " + attrKubernetesVersion + " is set, the bootstrap manifests are synced by default."
}

// MarkdownDescription implements [planmodifier.Bool].
func (m followsKubernetes) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyBool implements [planmodifier.Bool].
func (followsKubernetes) PlanModifyBool(ctx context.Context, req planmodifier.BoolRequest, resp *planmodifier.BoolResponse) {
	var kubernetes types.String

	if stated(req.ConfigValue) {
		return
	}

	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(attrKubernetesVersion), &kubernetes)...)

	if req.ConfigValue.IsUnknown() || kubernetes.IsUnknown() {
		resp.PlanValue = types.BoolUnknown()
	} else {
		resp.PlanValue = types.BoolValue(!kubernetes.IsNull())
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
