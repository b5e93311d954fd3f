// SPDX-License-Identifier: MPL-2.0

package gate

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// validate rejects what no cluster could accept. Whether a kind or a namespace exists, or the syntax of a selector
// is valid, is left to the API server.
func validate(spec Spec) error {
	if spec.Timeout < 0 {
		return &Error{
			Field: "timeout", Found: fmt.Sprintf("timeout is %s, and has to be positive", spec.Timeout),
			Remedy: fmt.Sprintf("Set timeout to a duration such as \"15m\", or leave it out for %s.", readable.Duration(DefaultTimeout)),
		}
	}

	if spec.Preset != "" {
		return validatePreset(spec)
	}

	return validateQuery(spec)
}

// validatePreset rejects attributes that the preset sets itself.
func validatePreset(spec Spec) error {
	if _, known := presetNamed(spec.Preset); !known {
		return &Error{
			Field: "preset", Found: fmt.Sprintf("there is no preset %q", spec.Preset),
			Remedy: fmt.Sprintf("Set preset to one of %s, or write the gate with api_version, kind and expr.", strings.Join(Presets(), ", ")),
		}
	}

	for _, given := range []struct{ field, value string }{
		{"api_version", spec.Query.APIVersion},
		{"kind", spec.Query.Kind},
		{"name", spec.Query.Name},
		{"selector", spec.Query.Selector},
		{"expr", spec.Expr},
	} {
		if given.value != "" {
			return &Error{
				Field: given.field, Found: fmt.Sprintf("%s is set beside preset, and the preset %s brings its own", given.field, spec.Preset),
				Remedy: fmt.Sprintf("Remove %s, or remove preset and write the whole gate; beside a preset only namespace and timeout can be set.", given.field),
			}
		}
	}

	return validateWord("namespace", spec.Query.Namespace)
}

// validateQuery rejects a gate without a preset if an attribute is missing or contradicts another one.
func validateQuery(spec Spec) error {
	query := spec.Query

	if err := validateKind(query.APIVersion, query.Kind); err != nil {
		return err
	}

	if err := validateWord("namespace", query.Namespace); err != nil {
		return err
	}

	if err := validateWord("name", query.Name); err != nil {
		return err
	}

	if query.Name != "" && query.Selector != "" {
		return &Error{
			Field: "selector", Found: "name and selector are both set, and exclude each other",
			Remedy: "Remove one of them: name is one object, selector a label selector for several.",
		}
	}

	if query.Selector != "" && (strings.TrimSpace(query.Selector) == "" || strings.ContainsFunc(query.Selector, unicode.IsControl)) {
		return &Error{
			Field: "selector", Found: fmt.Sprintf("selector is %q, which is no label selector", query.Selector),
			Remedy: "Set selector to a label selector on one line, such as \"app=web,tier!=cache\", or leave it out for all objects of the kind.",
		}
	}

	if strings.TrimSpace(spec.Expr) == "" {
		return &Error{
			Field: "expr", Found: "expr is missing",
			Remedy: "Set expr to a CEL expression, such as \"object.status.phase == 'Ready'\", or set preset.",
		}
	}

	return nil
}

func validateKind(apiVersion, kind string) error {
	if apiVersion == "" {
		return &Error{
			Field: "api_version", Found: "api_version is missing",
			Remedy: "Set api_version as in manifests, such as \"apps/v1\", or set preset.",
		}
	}

	group, version, grouped := strings.Cut(apiVersion, "/")
	if !isWord(apiVersion) || grouped && (group == "" || version == "" || strings.Contains(version, "/")) {
		return &Error{
			Field: "api_version", Found: fmt.Sprintf("api_version is %q, which is no API version", apiVersion),
			Remedy: "Set api_version as in manifests: \"v1\" for the core, or a group and a version such as \"apps/v1\".",
		}
	}

	if kind == "" {
		return &Error{
			Field: "kind", Found: "kind is missing",
			Remedy: "Set kind as in manifests, such as \"Deployment\", or set preset.",
		}
	}

	if !isWord(kind) || strings.ContainsAny(kind, "/.") {
		return &Error{
			Field: "kind", Found: fmt.Sprintf("kind is %q, which is no kind", kind),
			Remedy: "Set kind as in manifests, such as \"Deployment\"; the group belongs into api_version.",
		}
	}

	// What an expression reads may end up in messages. The kind Secret is rejected in any group, because that of
	// another group may hold secrets, too.
	if strings.EqualFold(kind, "Secret") {
		return &Error{
			Field: "kind", Found: "kind is Secret, and gates may not read Secrets",
			Remedy: "Write the gate over the object that uses the Secret, or over one that tells about it.",
		}
	}

	return nil
}

// validateWord rejects a value that is blank or contains white space; it may be empty.
func validateWord(field, value string) error {
	if value == "" || isWord(value) && !strings.Contains(value, "/") {
		return nil
	}

	return &Error{
		Field: field, Found: fmt.Sprintf("%s is %q, which is no %s of the Kubernetes API", field, value, field),
		Remedy: fmt.Sprintf("Set %s as in the object's metadata, or leave it out.", field),
	}
}

// isWord reports whether the value is not empty and contains no white space.
func isWord(value string) bool {
	return value != "" && !strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
}
