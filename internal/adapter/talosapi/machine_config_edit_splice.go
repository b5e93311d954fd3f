// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// defaultIndent is how Talos indents what it writes.
const defaultIndent = 4

// splice is the change of the text that names the image at the spot.
func (s spot) splice(content []byte, image string) (splice, error) {
	if !quotableImage.MatchString(image) {
		return splice{}, fmt.Errorf("%w: %q is no image reference", cluster.ErrRefused, image)
	}

	text, err := newSource(content)
	if err != nil {
		return splice{}, err
	}

	switch {
	case len(s.missing) == 0:
		return s.replace(text, spell(image, s.at.Style))
	case isNull(s.at):
		return s.replace(text, "{"+inFlow(s.missing, image, false)+"}")
	case s.at.Style&yaml.FlowStyle != 0:
		return s.insertInFlow(text, image)
	default:
		return s.insertInBlock(text, image)
	}
}

// replace puts a text in the place of a scalar, which may be there without a
// single character.
func (s spot) replace(text source, with string) (splice, error) {
	from, to, err := text.scalar(s.at)
	if err != nil {
		return splice{}, err
	}

	if from == to {
		with = " " + with
	}

	return splice{from: from, to: to, text: with}, nil
}

// insertInFlow puts the image at the beginning of a mapping in braces.
func (s spot) insertInFlow(text source, image string) (splice, error) {
	at, err := text.offset(s.at)
	if err != nil {
		return splice{}, err
	}

	if at >= len(text.content) || text.content[at] != '{' {
		return splice{}, unsafe(s.at)
	}

	quoted := len(s.at.Content) > 0 && s.at.Content[0].Style == yaml.DoubleQuotedStyle
	entry := inFlow(s.missing, image, quoted)

	if len(s.at.Content) > 0 {
		entry += ", "
	}

	return splice{from: at + 1, to: at + 1, text: entry}, nil
}

// insertInBlock puts the image on lines of its own: at the beginning of the
// mapping, before the comments of its first key, and in documents with a kind
// right below that.
func (s spot) insertInBlock(text source, image string) (splice, error) {
	first := s.at.Content[0]
	lines := inBlock(s.missing, image, first.Column-1, s.indent(), text.newline(first.Line))

	above := s.parent
	if above == nil {
		_, above = child(s.at, "kind")
	}

	if above == nil || s.parent != nil && above.Line >= first.Line {
		return insertAbove(text, first, lines)
	}

	return insertBelow(text, above, lines), nil
}

func insertBelow(text source, node *yaml.Node, lines string) splice {
	if node.Line < len(text.starts) {
		at := text.starts[node.Line]

		return splice{from: at, to: at, text: lines + text.newline(node.Line)}
	}

	end := len(text.content)

	return splice{from: end, to: end, text: text.newline(node.Line) + lines}
}

// insertAbove needs a line on which nothing stands before the key.
func insertAbove(text source, key *yaml.Node, lines string) (splice, error) {
	at, err := text.offset(key)
	if err != nil {
		return splice{}, err
	}

	start := text.starts[key.Line-1]
	if strings.Trim(string(text.content[start:at]), " ") != "" {
		return splice{}, unsafe(key)
	}

	return splice{from: start, to: start, text: lines + text.newline(key.Line)}, nil
}

// indent is by how much the document indents a mapping within the one at the
// spot: as much as that one within its own, or as others in it.
func (s spot) indent() int {
	if step := s.at.Content[0].Column - 1; s.parent != nil && step >= s.parent.Column {
		return step + 1 - s.parent.Column
	}

	for i := 0; i+1 < len(s.at.Content); i += 2 {
		key, value := s.at.Content[i], s.at.Content[i+1]

		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0 {
			if step := value.Content[0].Column - key.Column; step > 0 {
				return step
			}
		}
	}

	return defaultIndent
}
