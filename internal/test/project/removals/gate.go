// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// state is the state of a feature gate in a minor version.
type state struct {
	// locked is true if it cannot be set to another value than value.
	locked, value bool
}

// readGates reads the feature gates of a minor version from the Go sources in the directories: the maps from a Feature
// to its FeatureSpec, or to its VersionedSpecs, which have one spec for each minor version in which something changed.
func readGates(directories []string, minor string) (map[string]state, error) {
	var files []*ast.File

	for _, directory := range directories {
		names, err := filepath.Glob(filepath.Join(directory, "*.go"))
		if err != nil {
			return nil, err
		}

		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}

			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}

			files = append(files, file)
		}
	}

	reading := reader{minor: minor, names: map[string]string{}, gates: map[string]state{}}

	for _, file := range files {
		reading.nameConstants(file)
	}

	for _, file := range files {
		ast.Inspect(file, reading.look)
	}

	return reading.gates, reading.err
}

// reader collects gates and constants from files.
type reader struct {
	minor string
	// names are the names of gates by those of their constants.
	names map[string]string
	gates map[string]state
	err   error
}

// nameConstants records the constants whose value is a text, or a text converted to another type.
func (r *reader) nameConstants(file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		spec, is := node.(*ast.ValueSpec)
		if !is {
			return true
		}

		for index, name := range spec.Names {
			if index >= len(spec.Values) {
				break
			}

			value := spec.Values[index]
			if call, is := value.(*ast.CallExpr); is && len(call.Args) == 1 {
				value = call.Args[0]
			}

			if text, is := value.(*ast.BasicLit); is && text.Kind == token.STRING {
				if unquoted, err := strconv.Unquote(text.Value); err == nil {
					r.names[name.Name] = unquoted
				}
			}
		}

		return true
	})
}

// look reads a map of feature gates.
func (r *reader) look(node ast.Node) bool {
	literal, is := node.(*ast.CompositeLit)
	if !is || r.err != nil {
		return r.err == nil
	}

	of, is := literal.Type.(*ast.MapType)
	if !is || nameOf(of.Key) != "Feature" || (nameOf(of.Value) != "FeatureSpec" && nameOf(of.Value) != "VersionedSpecs") {
		return true
	}

	for _, element := range literal.Elts {
		pair, is := element.(*ast.KeyValueExpr)
		if !is {
			continue
		}

		name, known := r.names[nameOf(pair.Key)]
		if !known {
			r.err = fmt.Errorf("the constant %s is not known", nameOf(pair.Key))

			return false
		}

		found, there, err := r.specOf(pair.Value)
		if err != nil {
			r.err = fmt.Errorf("%s: %w", name, err)

			return false
		}

		if there {
			r.gates[name] = found
		}
	}

	return false
}

// specOf returns the state of a gate in the minor version; there is false if the gate came later.
func (r *reader) specOf(value ast.Expr) (found state, there bool, err error) {
	spec, is := value.(*ast.CompositeLit)
	if !is {
		return found, false, fmt.Errorf("a spec is a %T", value)
	}

	versioned := false

	for _, element := range spec.Elts {
		one, is := element.(*ast.CompositeLit)
		if !is {
			continue
		}

		versioned = true

		since, err := versionOf(one)
		if err != nil {
			return found, false, err
		}

		if older(r.minor, since) {
			break
		}

		if found, err = stateOf(one); err != nil {
			return found, false, err
		}

		there = true
	}

	if versioned {
		return found, there, nil
	}

	found, err = stateOf(spec)

	return found, true, err
}

// stateOf reads one FeatureSpec.
func stateOf(spec *ast.CompositeLit) (state, error) {
	locked, err := boolOf(spec, "LockToDefault")
	if err != nil || !locked {
		return state{}, err
	}

	value, err := boolOf(spec, "Default")

	return state{locked: true, value: value}, err
}

// boolOf returns the value of a field; false if it is not set.
func boolOf(spec *ast.CompositeLit, field string) (bool, error) {
	value := fieldOf(spec, field)
	if value == nil {
		return false, nil
	}

	parsed, err := strconv.ParseBool(nameOf(value))
	if err != nil {
		return false, fmt.Errorf("the field %s is neither true nor false", field)
	}

	return parsed, nil
}

// versionOf returns the minor version from which on a spec applies.
func versionOf(spec *ast.CompositeLit) (string, error) {
	call, is := fieldOf(spec, "Version").(*ast.CallExpr)
	if !is {
		return "", fmt.Errorf("a spec has no Version that is a call")
	}

	var parts []string

	for _, argument := range call.Args {
		literal, is := argument.(*ast.BasicLit)
		if !is {
			return "", fmt.Errorf("a Version is made of a %T", argument)
		}

		parts = append(parts, strings.Trim(literal.Value, `"`))
	}

	return strings.Join(parts, "."), nil
}

func fieldOf(spec *ast.CompositeLit, name string) ast.Expr {
	for _, element := range spec.Elts {
		if pair, is := element.(*ast.KeyValueExpr); is && nameOf(pair.Key) == name {
			return pair.Value
		}
	}

	return nil
}

// nameOf returns the name of an identifier, without its package.
func nameOf(expression ast.Expr) string {
	switch named := expression.(type) {
	case *ast.Ident:
		return named.Name
	case *ast.SelectorExpr:
		return named.Sel.Name
	default:
		return ""
	}
}

// older reports whether a minor version comes before another one, both in the form 1.36.
func older(a, b string) bool {
	number := func(minor string) int {
		_, text, _ := strings.Cut(minor, ".")
		text, _, _ = strings.Cut(text, ".")
		value, _ := strconv.Atoi(text)

		return value
	}

	return number(a) < number(b)
}
