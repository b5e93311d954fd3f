// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"maps"

	asked "github.com/hashicorp/terraform-plugin-framework/datasource/schema"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	preset "github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// input is an attribute of the resource as a data source takes it: with the
// same text and validators, and never computed. It is nil for kinds of attributes
// that the resource has none of.
func input(attribute schema.Attribute) asked.Attribute {
	text, required, optional := attribute.GetMarkdownDescription(), attribute.IsRequired(), !attribute.IsRequired()

	switch a := attribute.(type) {
	case schema.StringAttribute:
		return asked.StringAttribute{MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators}
	case schema.BoolAttribute:
		return asked.BoolAttribute{MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators}
	case schema.ListAttribute:
		return asked.ListAttribute{MarkdownDescription: text, Required: required, Optional: optional, ElementType: a.ElementType, Validators: a.Validators}
	case schema.SetAttribute:
		return asked.SetAttribute{MarkdownDescription: text, Required: required, Optional: optional, ElementType: a.ElementType, Validators: a.Validators}
	case schema.SingleNestedAttribute:
		return asked.SingleNestedAttribute{MarkdownDescription: text, Required: required, Optional: optional, Attributes: inputs(a.Attributes), Validators: a.Validators}
	case schema.ListNestedAttribute:
		return asked.ListNestedAttribute{
			MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators,
			NestedObject: asked.NestedAttributeObject{Attributes: inputs(a.NestedObject.Attributes), Validators: a.NestedObject.Validators},
		}
	case schema.MapNestedAttribute:
		return asked.MapNestedAttribute{
			MarkdownDescription: text, Required: required, Optional: optional, Validators: a.Validators,
			NestedObject: asked.NestedAttributeObject{Attributes: inputs(a.NestedObject.Attributes), Validators: a.NestedObject.Validators},
		}
	default:
		return nil
	}
}

// inputs are the attributes that can be taken.
func inputs(attributes map[string]schema.Attribute) map[string]asked.Attribute {
	taken := map[string]asked.Attribute{}

	for name, attribute := range attributes {
		if made := input(attribute); made != nil {
			taken[name] = made
		}
	}

	return taken
}

// filled is the value with the defaults of the resource's attribute in place of
// what it leaves out, which Terraform puts there for resources alone.
func filled[V attr.Value](ctx context.Context, attribute schema.Attribute, value V) V {
	if full, same := withDefaults(ctx, attribute, value).(V); same {
		return full
	}

	return value
}

func withDefaults(ctx context.Context, attribute schema.Attribute, value attr.Value) attr.Value {
	switch a := attribute.(type) {
	case schema.StringAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.StringResponse

			a.Default.DefaultString(ctx, preset.StringRequest{}, &resp)

			return resp.PlanValue
		}
	case schema.BoolAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.BoolResponse

			a.Default.DefaultBool(ctx, preset.BoolRequest{}, &resp)

			return resp.PlanValue
		}
	case schema.SingleNestedAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.ObjectResponse

			a.Default.DefaultObject(ctx, preset.ObjectRequest{}, &resp)

			return resp.PlanValue
		}

		return objectWithDefaults(ctx, a.Attributes, value)
	case schema.ListNestedAttribute:
		return listWithDefaults(ctx, a.NestedObject.Attributes, value)
	}

	return value
}

func objectWithDefaults(ctx context.Context, attributes map[string]schema.Attribute, value attr.Value) attr.Value {
	object, isObject := value.(types.Object)
	if !isObject || object.IsNull() || object.IsUnknown() {
		return value
	}

	full := maps.Clone(object.Attributes())
	for name, nested := range full {
		full[name] = withDefaults(ctx, attributes[name], nested)
	}

	made, diagnostics := types.ObjectValue(object.AttributeTypes(ctx), full)
	if diagnostics.HasError() {
		return value
	}

	return made
}

func listWithDefaults(ctx context.Context, attributes map[string]schema.Attribute, value attr.Value) attr.Value {
	list, isList := value.(types.List)
	if !isList || list.IsNull() || list.IsUnknown() {
		return value
	}

	full := list.Elements()
	for index, element := range full {
		full[index] = objectWithDefaults(ctx, attributes, element)
	}

	made, diagnostics := types.ListValue(list.ElementType(ctx), full)
	if diagnostics.HasError() {
		return value
	}

	return made
}
