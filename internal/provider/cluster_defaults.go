// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"maps"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	resourceschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	preset "github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// planned returns the resource with the options and the defaults of its attributes, which Terraform sets for
// resources only.
func (m optionsModel) planned(ctx context.Context) clusterModel { return m.complete(ctx).cluster() }

// complete returns the options with the defaults of the resource's attributes in place of null.
func (m optionsModel) complete(ctx context.Context) optionsModel {
	attributes := clusterSchema(ctx).Attributes
	options := reflect.ValueOf(&m).Elem()

	for index := range options.NumField() {
		value, isValue := options.Field(index).Interface().(attr.Value)
		if !isValue {
			continue
		}

		full := withDefaults(ctx, attributes[options.Type().Field(index).Tag.Get("tfsdk")], value)
		options.Field(index).Set(reflect.ValueOf(full))
	}

	return m
}

// withDefaults returns the value with the defaults of the resource's attribute in place of null.
func withDefaults(ctx context.Context, attribute resourceschema.Attribute, value attr.Value) attr.Value {
	switch a := attribute.(type) {
	case resourceschema.StringAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.StringResponse

			a.Default.DefaultString(ctx, preset.StringRequest{}, &resp)

			return resp.PlanValue
		}
	case resourceschema.BoolAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.BoolResponse

			a.Default.DefaultBool(ctx, preset.BoolRequest{}, &resp)

			return resp.PlanValue
		}
	case resourceschema.NumberAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.NumberResponse

			a.Default.DefaultNumber(ctx, preset.NumberRequest{}, &resp)

			return resp.PlanValue
		}
	case resourceschema.SingleNestedAttribute:
		if value.IsNull() && a.Default != nil {
			var resp preset.ObjectResponse

			a.Default.DefaultObject(ctx, preset.ObjectRequest{}, &resp)

			return resp.PlanValue
		}

		return objectWithDefaults(ctx, a.Attributes, value)
	case resourceschema.ListNestedAttribute:
		return listWithDefaults(ctx, a.NestedObject.Attributes, value)
	case resourceschema.MapNestedAttribute:
		return mapWithDefaults(ctx, a.NestedObject.Attributes, value)
	}

	return value
}

func objectWithDefaults(ctx context.Context, attributes map[string]resourceschema.Attribute, value attr.Value) attr.Value {
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

func listWithDefaults(ctx context.Context, attributes map[string]resourceschema.Attribute, value attr.Value) attr.Value {
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

func mapWithDefaults(ctx context.Context, attributes map[string]resourceschema.Attribute, value attr.Value) attr.Value {
	entries, isMap := value.(types.Map)
	if !isMap || entries.IsNull() || entries.IsUnknown() {
		return value
	}

	full := entries.Elements()
	for key, element := range full {
		full[key] = objectWithDefaults(ctx, attributes, element)
	}

	made, diagnostics := types.MapValue(entries.ElementType(ctx), full)
	if diagnostics.HasError() {
		return value
	}

	return made
}
