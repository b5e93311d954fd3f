// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// ValidateConfig implements [resource.ResourceWithValidateConfig]: it finds what
// contradicts itself, whatever the cluster looks like. What is not known yet
// contradicts nothing.
func (r *clusterResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var model clusterModel

	resp.Diagnostics.Append(req.Config.Get(ctx, &model)...)

	if resp.Diagnostics.HasError() {
		return
	}

	resp.Diagnostics.Append(model.validateTimeouts()...)
	resp.Diagnostics.Append(model.validateIntermediate()...)
	resp.Diagnostics.Append(model.validateCanary()...)
	resp.Diagnostics.Append(model.validateKubernetes(ctx)...)
	resp.Diagnostics.Append(model.validateGuards(ctx)...)
	resp.Diagnostics.Append(model.validateOnFailure()...)
	resp.Diagnostics.Append(model.validatePublishing()...)
}

// validateTimeouts wants limits that leave some time, which their own type does
// not check.
func (m clusterModel) validateTimeouts() diag.Diagnostics {
	var diagnostics diag.Diagnostics

	limits := m.Timeouts.Attributes()

	for _, name := range slices.Sorted(maps.Keys(limits)) {
		text, ok := limits[name].(types.String)
		if !ok || text.IsNull() || text.IsUnknown() {
			continue
		}

		if limit, err := time.ParseDuration(text.ValueString()); err == nil && limit <= 0 {
			at := path.Root(attrTimeouts).AtName(name)
			diagnostics.AddAttributeError(visible(at), "Invalid duration", at.String()+" must be above zero.")
		}
	}

	return diagnostics
}

func (m clusterModel) validateIntermediate() diag.Diagnostics {
	at := path.Root(attrIntermediateVersions)

	diagnostics := distinct(at, m.IntermediateVersions, func(text string) string {
		parsed, err := version.Parse(text)
		if err != nil {
			return text
		}

		return parsed.String()
	})

	if len(m.IntermediateVersions.Elements()) > 0 && !m.AllowIntermediate.IsUnknown() && !m.AllowIntermediate.ValueBool() {
		diagnostics.AddAttributeError(at, "Intermediate versions without effect",
			"intermediate_versions says through which versions to walk, but without allow_intermediate_versions = true nothing is walked through.\n\n"+
				"Set allow_intermediate_versions = true, or remove intermediate_versions.")
	}

	return diagnostics
}

func (m clusterModel) validateCanary() diag.Diagnostics {
	at := path.Root(attrCanary)
	held := m.held()

	diagnostics := distinct(at, m.Canary, func(text string) string { return text })

	for index, element := range m.Canary.Elements() {
		name, ok := element.(types.String)
		if !ok || !held[name.ValueString()] {
			continue
		}

		diagnostics.AddAttributeError(at.AtListIndex(index), "Canary that is held",
			fmt.Sprintf("%s is node %s, which node_overrides[%q].hold leaves alone: it cannot go first and stay where it is.\n\n"+
				"Remove the node from canary, or its hold.", at.AtListIndex(index), name.ValueString(), name.ValueString()))
	}

	return diagnostics
}

// distinct wants every element of a list of texts to be there, and once only.
// Meaning is what makes two of them the same.
func distinct(at path.Path, list types.List, meaning func(string) string) diag.Diagnostics {
	var diagnostics diag.Diagnostics

	first := map[string]int{}

	for index, element := range list.Elements() {
		place := at.AtListIndex(index)

		if element.IsNull() {
			diagnostics.Append(missing(place))

			continue
		}

		value, ok := element.(types.String)
		if !ok || value.IsUnknown() {
			continue
		}

		text := value.ValueString()

		if earlier, again := first[meaning(text)]; again {
			diagnostics.AddAttributeError(place, "Duplicate value",
				fmt.Sprintf("%s is %q, as %s is already. Remove one of them.", place, text, at.AtListIndex(earlier)))

			continue
		}

		first[meaning(text)] = index
	}

	return diagnostics
}
