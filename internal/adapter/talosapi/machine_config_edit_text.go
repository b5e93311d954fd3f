// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// splice replaces the bytes between two offsets.
type splice struct {
	from, to int
	text     string
}

func (s splice) apply(content []byte) []byte {
	return slices.Concat(content[:s.from], []byte(s.text), content[s.to:])
}

// source is a text in which YAML positions can be found.
type source struct {
	content []byte
	// starts are the offsets at which lines begin.
	starts []int
}

// byteOrderMark may stand before the first column.
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

// lineBreaks are what the YAML parser counts as the end of a line.
var lineBreaks = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// newline is the line break that the text uses around a line.
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

// offset translates the position of a node, whose lines and columns count from
// one, columns in characters.
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

// scalar is the extent of a scalar in the text, with its quotes.
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

	// plainImage are images that need no quotes wherever they stand.
	plainImage = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._/:@+-]*[A-Za-z0-9._/@+-])?$`)
	// quotableImage are images that need no escapes in quotes.
	quotableImage = regexp.MustCompile(`^[A-Za-z0-9!#$%&()*+,./:;<=>?@\[\]^_` + "`" + `{|}~-]+$`)
)

// spell writes an image the way a scalar of the given style does.
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

// inFlow is the image under its keys, as an entry of a flow mapping.
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

// inBlock is the image under its keys, as lines of a block mapping.
func inBlock(keys []string, image string, indent, step int, newline string) string {
	lines := make([]string, len(keys))

	for i, key := range keys {
		lines[i] = strings.Repeat(" ", indent+i*step) + key + ":"
	}

	return strings.Join(lines, newline) + " " + spell(image, 0)
}

// unsafe is the refusal to change a text that is not understood.
func unsafe(node *yaml.Node) error {
	return fmt.Errorf("%w: line %d is not written in a way that could be changed safely", cluster.ErrRefused, node.Line)
}
