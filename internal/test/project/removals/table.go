// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// line is a minor version with its feature gates, and with the flags of its components.
type line struct {
	release string
	gates   map[string]state
	flags   map[string]map[string]bool
}

const gateHead = `# The feature gates of Kubernetes, by minor version: name, first and last minor version of the
# table that has it in one way, and the value that it is locked to there. Written by make removals
# from the sources of these releases, one of each minor version:
#
`

const flagHead = `# The flags that components of Kubernetes had and have no more: component, name, and the last
# minor version that has it. Written by make removals from the sources of these releases, one of
# each minor version:
#
`

// begin returns the beginning of a table.
func begin(head string, lines []line) *strings.Builder {
	text := &strings.Builder{}
	text.WriteString(head)

	for _, one := range lines {
		fmt.Fprintf(text, "release %s\n", one.release)
	}

	return text
}

// writeFlags writes the table of flags.
func writeFlags(to io.Writer, lines []line) error {
	text := begin(flagHead, lines)
	newest := lines[len(lines)-1]

	for _, component := range slices.Sorted(maps.Keys(newest.flags)) {
		last := map[string]string{}

		for _, one := range lines {
			for name := range one.flags[component] {
				last[name] = minorOf(one.release)
			}
		}

		for _, name := range slices.Sorted(maps.Keys(last)) {
			if !newest.flags[component][name] {
				fmt.Fprintf(text, "%s %s %s\n", component, name, last[name])
			}
		}
	}

	_, err := io.WriteString(to, text.String())

	return err
}

// writeGates writes the table of feature gates.
func writeGates(to io.Writer, lines []line) error {
	text := begin(gateHead, lines)

	names := map[string]bool{}

	for _, one := range lines {
		for name := range one.gates {
			names[name] = true
		}
	}

	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, span := range spansOf(name, lines) {
			fmt.Fprintf(text, "%s %s-%s%s\n", name, span.first, span.last, span.lock())
		}
	}

	_, err := io.WriteString(to, text.String())

	return err
}

// span is a range of minor versions that have a gate in the same state.
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

// spansOf returns the spans of one gate, in order.
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
