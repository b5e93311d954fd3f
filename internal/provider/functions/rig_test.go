// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// callFunction calls the function. What it returns is printed as the framework does.
func callFunction(t *testing.T, called function.Function, arguments ...attr.Value) (string, *function.FuncError) {
	t.Helper()

	var definition function.DefinitionResponse

	called.Definition(t.Context(), function.DefinitionRequest{}, &definition)

	if len(arguments) != len(definition.Definition.Parameters) {
		t.Fatalf("%d arguments for %d parameters", len(arguments), len(definition.Definition.Parameters))
	}

	result, refused := definition.Definition.Return.NewResultData(t.Context())
	if refused != nil {
		t.Fatal(refused)
	}

	resp := function.RunResponse{Result: result}
	called.Run(t.Context(), function.RunRequest{Arguments: function.NewArgumentsData(arguments)}, &resp)

	if resp.Error != nil {
		return "", resp.Error
	}

	return resp.Result.Value().String(), nil
}

// wantRefusal fails the test unless the error is about the argument at the
// position and says all of the texts, in the form that the command line
// completes to a sentence.
func wantRefusal(t *testing.T, got *function.FuncError, position int64, texts ...string) {
	t.Helper()

	switch {
	case got == nil:
		t.Fatal("no error")
	case got.FunctionArgument == nil:
		t.Fatalf("the error names no argument: %s", got.Text)
	case *got.FunctionArgument != position:
		t.Errorf("the error is about argument %d, want %d: %s", *got.FunctionArgument, position, got.Text)
	}

	for _, text := range texts {
		if !strings.Contains(got.Text, text) {
			t.Errorf("the error does not say %q: %s", text, got.Text)
		}
	}

	if strings.HasSuffix(got.Text, ".") {
		t.Errorf("the command line adds another full stop: %s", got.Text)
	}
}

// dynamicObject is an object as the configuration holds it: text as a string, nil as a
// null without a type.
func dynamicObject(attributes map[string]any) types.Dynamic {
	kinds, values := map[string]attr.Type{}, map[string]attr.Value{}

	for name, attribute := range attributes {
		switch attribute := attribute.(type) {
		case string:
			values[name] = types.StringValue(attribute)
		case bool:
			values[name] = types.BoolValue(attribute)
		case attr.Value:
			values[name] = attribute
		default:
			values[name] = types.DynamicNull()
		}

		kinds[name] = values[name].Type(context.Background())
	}

	return types.DynamicValue(types.ObjectValueMust(kinds, values))
}
