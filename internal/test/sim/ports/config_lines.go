// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines are those of a text, each with its end.
type lines []string

// replace puts another value in the place of a scalar.
func (l lines) replace(scalar *yaml.Node, value string) {
	line := l[scalar.Line-1]
	start, length := scalar.Column-1, len(scalar.Value)

	if quote := line[start]; quote == '"' || quote == '\'' {
		length = strings.IndexByte(line[start+1:], quote) + len(`""`)
	}

	l[scalar.Line-1] = line[:start] + value + line[start+length:]
}

// insert adds lines of text after the line with a number, counted from 1, and
// at a column.
func (l *lines) insert(after, column int, texts ...string) {
	for i, added := range texts {
		*l = slices.Insert(*l, after+i, strings.Repeat(" ", column-1)+added+"\n")
	}
}

// open adds to a mapping between braces.
func (l lines) open(mapping *yaml.Node, member string) {
	if len(mapping.Content) > 0 {
		member += ", "
	}

	line := l[mapping.Line-1]
	l[mapping.Line-1] = line[:mapping.Column] + member + line[mapping.Column:]
}

const indent = 2

// below has the section of a v1alpha1 document name an image; it returns false
// where the parent has no block of lines to add to.
func (l *lines) below(parent *yaml.Node, name, image string) bool {
	if parent == nil || parent.Kind != yaml.MappingNode || len(parent.Content) == 0 {
		return false
	}

	key, value := member(parent, name)
	named := keyImage + ": " + image

	switch {
	case key == nil:
		first := parent.Content[0]
		l.insert(first.Line-1, first.Column, name+":", strings.Repeat(" ", indent)+named)
	case child(value, keyImage) != nil:
		l.replace(child(value, keyImage), image)
	case value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle != 0:
		l.open(value, fmt.Sprintf("%s: %q", keyImage, image))
	case len(value.Content) > 0:
		l.insert(value.Content[0].Line-1, value.Content[0].Column, named)
	default:
		l.insert(key.Line, key.Column+indent, named)
	}

	return true
}
