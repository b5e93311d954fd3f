// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// line is a release line with its feature gates.
type line struct {
	release string
	gates   map[string]state
}

const head = `# The feature gates of Kubernetes, by release line: name, first and last release line of the
# table that has it in one way, and the value that it is locked to there. Written by make removals
# from the sources of these releases, one of each release line:
#
`

// write writes the table.
func write(to io.Writer, lines []line) error {
	var text strings.Builder

	text.WriteString(head)

	for _, one := range lines {
		fmt.Fprintf(&text, "release %s\n", one.release)
	}

	names := map[string]bool{}

	for _, one := range lines {
		for name := range one.gates {
			names[name] = true
		}
	}

	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, span := range spansOf(name, lines) {
			fmt.Fprintf(&text, "%s %s-%s%s\n", name, span.first, span.last, span.lock())
		}
	}

	_, err := io.WriteString(to, text.String())

	return err
}

// span are release lines after one another that have a gate in the same way.
type span struct {
	state

	first, last string
}

func (s span) lock() string {
	if !s.locked {
		return ""
	}

	return fmt.Sprintf(" %t", s.value)
}

// spansOf are those of one gate, in order.
func spansOf(name string, lines []line) []span {
	var (
		spans  []span
		before bool
	)

	for _, one := range lines {
		found, there := one.gates[name]
		minor := minorOf(one.release)

		switch last := len(spans) - 1; {
		case there && before && spans[last].state == found:
			spans[last].last = minor
		case there:
			spans = append(spans, span{state: found, first: minor, last: minor})
		}

		before = there
	}

	return spans
}
