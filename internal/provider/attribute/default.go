// SPDX-License-Identifier: MPL-2.0

package attribute

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	preset "github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Null returns the null value of the attribute's type.
func Null(ctx context.Context, of schema.Attribute) attr.Value {
	kind := of.GetType()

	value, err := kind.ValueFromTerraform(ctx, tftypes.NewValue(kind.TerraformType(ctx), nil))
	if err != nil {
		panic("a type without null: " + err.Error())
	}

	return value
}

// ObjectType returns the types of the attributes of a nested object, or of the nested objects in a list or map.
func ObjectType(of schema.Attribute) types.ObjectType {
	kind := of.GetType()

	if collection, isCollection := kind.(attr.TypeWithElementType); isCollection {
		kind = collection.ElementType()
	}

	object, _ := kind.(types.ObjectType)

	return object
}

// Defaults returns an object with the default of each attribute, or the value given in known; an attribute with neither
// is null.
func Defaults(attributes map[string]schema.Attribute, known map[string]attr.Value) types.Object {
	ctx := context.Background()
	kinds, values := map[string]attr.Type{}, map[string]attr.Value{}

	for name, one := range attributes {
		kinds[name] = one.GetType()

		if values[name] = known[name]; values[name] == nil {
			values[name] = WithDefaults(ctx, one, Null(ctx, one))
		}
	}

	return types.ObjectValueMust(kinds, values)
}

// WithDefaults returns the value with the defaults of the attribute, and of those nested in it, in place of null. Null
// stays where there is no default.
func WithDefaults(ctx context.Context, of schema.Attribute, value attr.Value) attr.Value {
	if value.IsNull() {
		if fixed := fixedDefault(ctx, of); fixed != nil {
			return fixed
		}

		return Null(ctx, of)
	}

	if value.IsUnknown() {
		return value
	}

	switch a := of.(type) {
	case schema.SingleNestedAttribute:
		return objectWithDefaults(ctx, a.Attributes, value)
	case schema.ListNestedAttribute:
		list, isList := value.(types.List)
		if !isList {
			return value
		}

		elements := list.Elements()
		for index, element := range elements {
			elements[index] = objectWithDefaults(ctx, a.NestedObject.Attributes, element)
		}

		return types.ListValueMust(list.ElementType(ctx), elements)
	case schema.MapNestedAttribute:
		entries, isMap := value.(types.Map)
		if !isMap {
			return value
		}

		elements := entries.Elements()
		for key, element := range elements {
			elements[key] = objectWithDefaults(ctx, a.NestedObject.Attributes, element)
		}

		return types.MapValueMust(entries.ElementType(ctx), elements)
	default:
		return value
	}
}

func objectWithDefaults(ctx context.Context, attributes map[string]schema.Attribute, value attr.Value) attr.Value {
	object, isObject := value.(types.Object)
	if !isObject || object.IsNull() || object.IsUnknown() {
		return value
	}

	full := maps.Clone(object.Attributes())
	for name, nested := range full {
		full[name] = WithDefaults(ctx, attributes[name], nested)
	}

	return types.ObjectValueMust(object.AttributeTypes(ctx), full)
}

// fixedDefault returns the default in the schema of the attribute; nil if there is none.
func fixedDefault(ctx context.Context, of schema.Attribute) attr.Value {
	switch a := of.(type) {
	case schema.StringAttribute:
		if a.Default != nil {
			var resp preset.StringResponse

			a.Default.DefaultString(ctx, preset.StringRequest{}, &resp)

			return resp.PlanValue
		}
	case schema.BoolAttribute:
		if a.Default != nil {
			var resp preset.BoolResponse

			a.Default.DefaultBool(ctx, preset.BoolRequest{}, &resp)

			return resp.PlanValue
		}
	case schema.NumberAttribute:
		if a.Default != nil {
			var resp preset.NumberResponse

			a.Default.DefaultNumber(ctx, preset.NumberRequest{}, &resp)

			return resp.PlanValue
		}
	case schema.SingleNestedAttribute:
		if a.Default != nil {
			var resp preset.ObjectResponse

			a.Default.DefaultObject(ctx, preset.ObjectRequest{}, &resp)

			return resp.PlanValue
		}
	default:
		if fields := reflect.ValueOf(of); fields.Kind() == reflect.Struct && fields.FieldByName("Default").IsValid() && !fields.FieldByName("Default").IsZero() {
			panic(fmt.Sprintf("the default of a %T is not read here", of))
		}
	}

	return nil
}
