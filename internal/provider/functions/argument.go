// SPDX-License-Identifier: MPL-2.0

package functions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// refusal returns an error about the argument at the position, counted from zero. The command line puts the name of
// the parameter before the text and a full stop after it.
func refusal(position int64, format string, values ...any) *function.FuncError {
	return function.NewArgumentFuncError(position, fmt.Sprintf(format, values...))
}

// versionArgument parses the argument at the position as a version.
func versionArgument(ctx context.Context, arguments function.ArgumentsData, position int64) (version.Version, *function.FuncError) {
	var text string
	if err := arguments.GetArgument(ctx, int(position), &text); err != nil {
		return version.Version{}, err
	}

	parsed, err := version.Parse(text)
	if err != nil {
		return version.Version{}, refusal(position, "%v", err)
	}

	return parsed, nil
}

// beyondMatrix says whether a Talos version outside the support matrix is older or newer than it.
func beyondMatrix(talos version.Version) string {
	oldest, newest := compat.TalosMinors()
	if talos.Minor().Compare(newest) > 0 {
		return fmt.Sprintf("Talos %s is newer than the support matrix, which ends at Talos %s; use a version up to that, or a release of this provider that knows more",
			talos, newest)
	}

	return fmt.Sprintf("Talos %s is older than the support matrix, which begins at Talos %s; use a version from that on", talos, oldest)
}

// objectArgument is an argument that is written as an object. Its parameter is dynamic: of a typed object the
// command line demands every attribute, even if null would do, and silently drops those that the type does not have,
// so that { secureboot = true } would name an image without secure boot.
type objectArgument struct {
	position int64
	values   map[string]attr.Value
}

// readObject reads the argument at the position, which may only have attributes with the given names. It may also be
// a map.
func readObject(ctx context.Context, arguments function.ArgumentsData, position int64, names ...string) (objectArgument, *function.FuncError) {
	var argument types.Dynamic
	if err := arguments.GetArgument(ctx, int(position), &argument); err != nil {
		return objectArgument{}, err
	}

	read := objectArgument{position: position}

	switch value := argument.UnderlyingValue().(type) {
	case types.Object:
		read.values = value.Attributes()
	case types.Map:
		read.values = value.Elements()
	default:
		return objectArgument{}, refusal(position, "want an object with the attributes %s, got %s", strings.Join(names, ", "), kindText(value))
	}

	for _, name := range slices.Sorted(maps.Keys(read.values)) {
		if !slices.Contains(names, name) {
			return objectArgument{}, refusal(position, "there is no attribute %q; the attributes are %s", name, strings.Join(names, ", "))
		}
	}

	return read, nil
}

// text returns the named attribute; empty if it is null or omitted.
func (a objectArgument) text(name string) (string, *function.FuncError) {
	value, given := a.values[name]
	if !given || value.IsNull() {
		return "", nil
	}

	text, ok := value.(types.String)
	if !ok {
		return "", refusal(a.position, "%s must be a string, got %s", name, kindText(value))
	}

	if text.ValueString() == "" {
		return "", refusal(a.position, "%s is empty", name)
	}

	return text.ValueString(), nil
}

// required returns the named attribute, which must be set. The example is shown in the error.
func (a objectArgument) required(name, example string) (string, *function.FuncError) {
	text, refused := a.text(name)
	if refused == nil && text == "" {
		refused = refusal(a.position, "%s is missing; set it, for example %s = %q", name, name, example)
	}

	return text, refused
}

// version returns the named attribute; zero if it is null or omitted.
func (a objectArgument) version(name string) (version.Version, *function.FuncError) {
	text, refused := a.text(name)
	if refused != nil || text == "" {
		return version.Version{}, refused
	}

	parsed, err := version.Parse(text)
	if err != nil {
		return version.Version{}, refusal(a.position, "%s: %v", name, err)
	}

	return parsed, nil
}

// flag returns the named attribute; false if it is null or omitted. In a map of strings it is written as "true" or
// "false".
func (a objectArgument) flag(name string) (bool, *function.FuncError) {
	value, given := a.values[name]
	if !given || value.IsNull() {
		return false, nil
	}

	switch flag := value.(type) {
	case types.Bool:
		return flag.ValueBool(), nil
	case types.String:
		if text := flag.ValueString(); text == "true" || text == "false" {
			return text == "true", nil
		}

		return false, refusal(a.position, "%s must be true or false, got %q", name, flag.ValueString())
	default:
		return false, refusal(a.position, "%s must be true or false, got %s", name, kindText(value))
	}
}

// kindText describes a value of a wrong type.
func kindText(value attr.Value) string {
	switch value := value.(type) {
	case types.String:
		return "the string " + strconv.Quote(value.ValueString())
	case types.Bool:
		return strconv.FormatBool(value.ValueBool())
	case types.Number:
		return "the number " + value.String()
	case types.Object, types.Map:
		return "an object"
	default:
		return "a list"
	}
}

func versionParameter(name, description string) function.Parameter {
	return function.StringParameter{Name: name, MarkdownDescription: description}
}
