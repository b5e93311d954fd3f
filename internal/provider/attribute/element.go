// SPDX-License-Identifier: MPL-2.0

package attribute

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

var (
	_ validator.List = Elements{}
	_ validator.Map  = Elements{}
	_ validator.Set  = Elements{}
)

// Elements is a validator of each element of a list, a map or a set.
type Elements struct {
	// Require describes what is required of an element.
	Require string
	// Check returns the error of an element at a path; nil if the element is valid. It is also called for null and
	// unknown elements. The path of an element of a set is that of the set.
	Check func(at path.Path, element attr.Value) diag.Diagnostic
}

// Description implements [validator.List].
func (e Elements) Description(context.Context) string { return e.Require }

// MarkdownDescription implements [validator.List].
func (e Elements) MarkdownDescription(ctx context.Context) string { return e.Description(ctx) }

// ValidateList implements [validator.List].
func (e Elements) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	for index, element := range req.ConfigValue.Elements() {
		e.check(req.Path.AtListIndex(index), element, &resp.Diagnostics)
	}
}

// ValidateMap implements [validator.Map].
func (e Elements) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	elements := req.ConfigValue.Elements()

	for _, key := range slices.Sorted(maps.Keys(elements)) {
		e.check(req.Path.AtMapKey(key), elements[key], &resp.Diagnostics)
	}
}

// ValidateSet implements [validator.Set].
func (e Elements) ValidateSet(_ context.Context, req validator.SetRequest, resp *validator.SetResponse) {
	for _, element := range req.ConfigValue.Elements() {
		e.check(req.Path, element, &resp.Diagnostics)
	}
}

func (e Elements) check(at path.Path, element attr.Value, diagnostics *diag.Diagnostics) {
	if wrong := e.Check(at, element); wrong != nil {
		diagnostics.Append(wrong)
	}
}

// Present refuses null elements.
func Present() Elements {
	return Elements{"no element may be null", func(at path.Path, element attr.Value) diag.Diagnostic {
		if element.IsNull() {
			return Missing(at)
		}

		return nil
	}}
}

// Missing returns the error of a null element.
func Missing(at path.Path) diag.Diagnostic {
	return Problem(at, "Missing value", " is null. Give it a value, or remove it from the list.")
}
