// SPDX-License-Identifier: MPL-2.0

package model

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SetImage is a person who changes the image of one component in the
// configuration of a machine, as [World.SetConfigByHand] does; what else the
// configuration says stays as it is, comments too.
func (w *World) SetImage(node, component, image string) error {
	if placeOf(component).kind == "" || image == "" {
		return fmt.Errorf("component %q, image %q: want a component and an image", component, image)
	}

	return w.SetConfigByHand(node, func(old string) (string, error) { return withImage(old, component, image) })
}

// withImage is a configuration that names another image for a component.
func withImage(text, component, image string) (string, error) {
	section, err := findSection(text, component)
	if err != nil {
		return "", err
	}

	lines := strings.SplitAfter(text, "\n")

	switch value := field(section, "image"); {
	case value != nil:
		at, column := value.Line-1, value.Column-1
		length := len(value.Value)

		if value.Style == yaml.DoubleQuotedStyle || value.Style == yaml.SingleQuotedStyle {
			length += 2
		}

		lines[at] = lines[at][:column] + image + lines[at][column+length:]
	case len(section.Content) == 0:
		at, column := section.Line-1, section.Column-1
		lines[at] = lines[at][:column] + "{image: " + quoted(image) + "}" + strings.TrimPrefix(lines[at][column:], "{}")
	case section.Style == yaml.FlowStyle:
		at, column := section.Line-1, section.Column-1
		lines[at] = lines[at][:column] + "{image: " + quoted(image) + ", " + lines[at][column+1:]
	default:
		last := section.Content[len(section.Content)-2]
		if first := section.Content[0]; first.Value != "apiVersion" {
			last = first
		}

		line := strings.Repeat(" ", last.Column-1) + "image: " + image + "\n"
		lines = slices.Insert(lines, last.Line-1, line)
	}

	return strings.Join(lines, ""), nil
}

// quoted is an image for use between braces.
func quoted(image string) string { return `"` + image + `"` }

// findSection is the mapping in which the image of a component stands, or would
// stand.
func findSection(text, component string) (*yaml.Node, error) {
	at := placeOf(component)
	decoder := yaml.NewDecoder(strings.NewReader(text))

	var found *yaml.Node

	for {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, err
		}

		root := document.Content[0]

		switch kind := field(root, "kind"); {
		case kind == nil:
			if section := field(field(root, at.section), at.field); section != nil && section.Kind == yaml.MappingNode {
				found = section
			}
		case kind.Value == at.kind && component == InstallerName:
			found = field(root, "installer")
		case kind.Value == at.kind:
			return root, nil
		}
	}

	if found == nil {
		return nil, fmt.Errorf("the configuration says nothing about %s", component)
	}

	return found, nil
}

func field(of *yaml.Node, name string) *yaml.Node {
	if of == nil {
		return nil
	}

	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i+1]
		}
	}

	return nil
}
