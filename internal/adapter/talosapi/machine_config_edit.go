// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// editImage returns the machine configuration with another image for a component; nil if it names the image
// already. Everything else stays as it is, byte for byte: the text is edited, not marshalled again. Errors wrap
// cluster.ErrConflict if the configuration names another image than the expected one, cluster.ErrNotFound if it has
// no place for the image, and cluster.ErrRefused if it cannot be changed safely; they quote nothing but images.
func editImage(content []byte, change cluster.ImageChange) ([]byte, error) {
	place, ok := placeOf(change.Component)
	if !ok {
		return nil, fmt.Errorf("%w: no machine configuration names an image for %s", cluster.ErrRefused, change.Component)
	}

	documents, err := parseDocuments(content)
	if err != nil {
		return nil, err
	}

	index, path, err := place.pick(documents)
	if err != nil {
		return nil, err
	}

	found, err := findSpot(documents[index], path)
	if err != nil {
		return nil, err
	}

	if err := place.assertSection(found, path); err != nil {
		return nil, err
	}

	switch found.image {
	case change.To:
		return nil, nil
	case change.From:
	default:
		return nil, fmt.Errorf("%w: it names %s for %s, and not %s",
			cluster.ErrConflict, named(found.image), change.Component, named(change.From))
	}

	made, err := found.splice(content, change.To)
	if err != nil {
		return nil, err
	}

	edited := made.apply(content)

	if err := verifyEdit(content, edited, index, path, change.To); err != nil {
		return nil, err
	}

	return edited, nil
}

// named returns an image for a message.
func named(image string) string {
	if image == "" {
		return "no image"
	}

	return image
}

// parseDocuments returns the roots of all documents of a stream. The lines and columns of the nodes are those in
// the whole stream.
func parseDocuments(content []byte) ([]*yaml.Node, error) {
	var documents []*yaml.Node

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%w: it is not valid YAML: %s", cluster.ErrRefused, withoutQuotes(err.Error()))
		}

		root := &yaml.Node{}
		if len(document.Content) > 0 {
			root = document.Content[0]
		}

		documents = append(documents, root)
	}
}

// spot is where a document names an image, or would name it.
type spot struct {
	// image is the image that is named; empty if none is.
	image string
	// parent is the key that at belongs to; nil for the root of a document.
	parent *yaml.Node
	// at is the value of the image if missing is empty. Otherwise it is the innermost existing mapping, or a null
	// in its place.
	at *yaml.Node
	// missing are the keys that at lacks.
	missing []string
}

// findSpot follows the path in a document as far as it exists.
func findSpot(root *yaml.Node, path []string) (spot, error) {
	here := spot{at: root}

	for i, name := range path {
		if isNull(here.at) {
			here.missing = path[i:]

			return here, nil
		}

		if err := assertPlainMapping(here.at); err != nil {
			return spot{}, err
		}

		key, value := child(here.at, name)
		if key == nil {
			here.missing = path[i:]

			return here, nil
		}

		here.parent, here.at = key, value
	}

	if here.at.Kind != yaml.ScalarNode || here.at.Anchor != "" || !isNull(here.at) && here.at.ShortTag() != "!!str" {
		return spot{}, fmt.Errorf("%w: line %d: the image is no plain text, but a YAML alias, an anchor or another type",
			cluster.ErrRefused, here.at.Line)
	}

	if !isNull(here.at) {
		here.image = here.at.Value
	}

	return here, nil
}

// assertPlainMapping rejects nodes that refer to a mapping elsewhere: a change would have an effect in more than
// one place, or in another one.
func assertPlainMapping(node *yaml.Node) error {
	isMerge := func(key *yaml.Node) bool { return key.ShortTag() == "!!merge" }

	switch {
	case node.Kind == yaml.AliasNode:
		return fmt.Errorf("%w: line %d: a YAML alias stands where the image is named", cluster.ErrRefused, node.Line)
	case node.Kind != yaml.MappingNode:
		return fmt.Errorf("%w: line %d: what should hold the image is no mapping", cluster.ErrRefused, node.Line)
	case slices.ContainsFunc(node.Content, isMerge):
		return fmt.Errorf("%w: line %d: a YAML merge key stands where the image is named", cluster.ErrRefused, node.Line)
	default:
		return nil
	}
}

// defaultIndent is the indentation that Talos writes.
const defaultIndent = 4

// splice returns the change of the text that names the image at the spot.
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

// replace replaces the text of a scalar, which may be empty.
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

// insertInFlow inserts the image at the beginning of a mapping in braces.
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

// insertInBlock inserts the image on lines of its own: at the beginning of the mapping, before the comments of its
// first key, and in documents with a kind right below the kind.
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

// insertAbove inserts the lines above a key. It refuses if anything stands before the key on its line.
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

// indent returns how far the document indents a mapping within the one at the spot: as far as that one within its
// parent, or as far as another one in it.
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

// splice replaces the bytes between two offsets.
type splice struct {
	from, to int
	text     string
}

func (s splice) apply(content []byte) []byte {
	return slices.Concat(content[:s.from], []byte(s.text), content[s.to:])
}

// source is a text with its lines, in which the positions of YAML nodes can be found.
type source struct {
	content []byte
	// starts are the offsets at which the lines begin.
	starts []int
}

// byteOrderMark may precede the first column.
const byteOrderMark = "\ufeff"

func newSource(content []byte) (source, error) {
	if !utf8.Valid(content) {
		return source{}, fmt.Errorf("%w: it is not UTF-8", cluster.ErrRefused)
	}

	first := 0
	if bytes.HasPrefix(content, []byte(byteOrderMark)) {
		first = len(byteOrderMark)
	}

	starts := []int{first}
	for _, found := range lineBreaks.FindAllIndex(content, -1) {
		starts = append(starts, found[1])
	}

	return source{content: content, starts: starts}, nil
}

// lineBreaks matches what the YAML parser counts as the end of a line.
var lineBreaks = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// newline returns the line break that the text uses around a line.
func (s source) newline(line int) string {
	start := 0
	if line >= 1 && line <= len(s.starts) {
		start = s.starts[line-1]
	}

	for _, text := range [][]byte{s.content[start:], s.content} {
		if found := lineBreaks.Find(text); found != nil {
			return string(found)
		}
	}

	return "\n"
}

// offset returns the byte offset of a node. Its lines and columns count from one, columns in characters.
func (s source) offset(node *yaml.Node) (int, error) {
	if node.Line < 1 || node.Line > len(s.starts) {
		return 0, unsafe(node)
	}

	at := s.starts[node.Line-1]

	for range node.Column - 1 {
		if at >= len(s.content) {
			return 0, unsafe(node)
		}

		_, width := utf8.DecodeRune(s.content[at:])
		at += width
	}

	return at, nil
}

// scalar returns the extent of a scalar in the text, including its quotes.
func (s source) scalar(node *yaml.Node) (from, to int, err error) {
	from, err = s.offset(node)
	if err != nil {
		return 0, 0, err
	}

	rest := s.content[from:]

	switch {
	case node.Style == 0 && bytes.HasPrefix(rest, []byte(node.Value)):
		return from, from + len(node.Value), nil
	case node.Style == yaml.DoubleQuotedStyle:
		if found := doubleQuoted.Find(rest); found != nil {
			return from, from + len(found), nil
		}
	case node.Style == yaml.SingleQuotedStyle:
		if found := singleQuoted.Find(rest); found != nil {
			return from, from + len(found), nil
		}
	}

	return 0, 0, unsafe(node)
}

var (
	doubleQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	singleQuoted = regexp.MustCompile(`^'(?:[^']|'')*'`)

	// plainImage matches images that never need quotes.
	plainImage = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._/:@+-]*[A-Za-z0-9._/@+-])?$`)
	// quotableImage matches images that need no escapes within quotes.
	quotableImage = regexp.MustCompile(`^[A-Za-z0-9!#$%&()*+,./:;<=>?@\[\]^_` + "`" + `{|}~-]+$`)
)

// spell returns an image in the style of a scalar.
func spell(image string, style yaml.Style) string {
	switch {
	case style == yaml.SingleQuotedStyle:
		return "'" + image + "'"
	case style == yaml.DoubleQuotedStyle, !plainImage.MatchString(image):
		return `"` + image + `"`
	default:
		return image
	}
}

// inFlow returns the image under its keys, as an entry of a flow mapping.
func inFlow(keys []string, image string, quoteKeys bool) string {
	text := spell(image, yaml.DoubleQuotedStyle)

	for i, key := range slices.Backward(keys) {
		if quoteKeys {
			key = `"` + key + `"`
		}

		text = key + ": " + text

		if i > 0 {
			text = "{" + text + "}"
		}
	}

	return text
}

// inBlock returns the image under its keys, as lines of a block mapping.
func inBlock(keys []string, image string, indent, step int, newline string) string {
	lines := make([]string, len(keys))

	for i, key := range keys {
		lines[i] = strings.Repeat(" ", indent+i*step) + key + ":"
	}

	return strings.Join(lines, newline) + " " + spell(image, 0)
}

// unsafe returns the error of a change to a text that is not understood.
func unsafe(node *yaml.Node) error {
	return fmt.Errorf("%w: line %d is not written in a way that could be changed safely", cluster.ErrRefused, node.Line)
}

// verifyEdit makes sure that two machine configurations mean the same except for the image at the path of one
// document. It does not depend on how the edit was made.
func verifyEdit(before, after []byte, document int, path []string, image string) error {
	wanted, err := decodeDocuments(before)
	if err != nil {
		return err
	}

	got, err := decodeDocuments(after)
	if err != nil {
		return fmt.Errorf("%w: with another image in it, it would not be valid any more", cluster.ErrRefused)
	}

	if document >= len(wanted) || !set(wanted[document], path, image) || !reflect.DeepEqual(wanted, got) {
		return fmt.Errorf("%w: the image cannot be changed without changing something else, as where YAML anchors share it", cluster.ErrRefused)
	}

	return nil
}

// decodeDocuments decodes all documents of a stream into plain values.
func decodeDocuments(content []byte) ([]any, error) {
	var documents []any

	for decoder := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document any

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%w: it is not valid YAML: %s", cluster.ErrRefused, withoutQuotes(err.Error()))
		}

		documents = append(documents, document)
	}
}

// set sets a text at a path and adds the mappings that are missing. It reports false if something else is in the
// way.
func set(value any, path []string, text string) bool {
	for i, name := range path {
		mapping, ok := value.(map[string]any)
		if !ok {
			return false
		}

		if i == len(path)-1 {
			mapping[name] = text

			return true
		}

		if mapping[name] == nil {
			mapping[name] = map[string]any{}
		}

		value = mapping[name]
	}

	return false
}

// sameMeaning reports whether two machine configurations mean the same.
func sameMeaning(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}

	first, err := decodeDocuments(a)
	if err != nil {
		return false
	}

	second, err := decodeDocuments(b)

	return err == nil && reflect.DeepEqual(first, second)
}
