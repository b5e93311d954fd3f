// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// widest is how long lines get if the terminal is wide enough.
const widest = 110

// mood is how a line is meant and, on a terminal, coloured.
type mood int

const (
	plain mood = iota
	// quiet is context.
	quiet
	// busy is a node that is being upgraded.
	busy
	// good is a node, or a check, that is where it should be.
	good
	// bad is what should not happen.
	bad
	// heading begins a chapter.
	heading
)

// escape returns the ANSI sequence of a mood; empty for none.
func (m mood) escape() string {
	switch m {
	case quiet:
		return "\x1b[2m"
	case busy:
		return "\x1b[33m"
	case good:
		return "\x1b[32m"
	case bad:
		return "\x1b[1;31m"
	case heading:
		return "\x1b[1m"
	case plain:
		return ""
	default:
		return ""
	}
}

// screen writes whole lines from several goroutines, coloured on a terminal.
type screen struct {
	*toolchain.Terminal

	colour bool
}

func newScreen(out *os.File) *screen {
	terminal := toolchain.NewTerminal(out)

	return &screen{Terminal: terminal, colour: terminal.Watched() && os.Getenv("NO_COLOR") == ""}
}

// line writes one line in a mood.
func (s *screen) line(as mood, format string, args ...any) {
	s.hang(as, "", fmt.Sprintf(format, args...))
}

// hang writes a text in a mood. What does not fit into a line goes below it, next to the lead.
func (s *screen) hang(as mood, lead, text string) {
	room := widest
	if width := s.Width(); width > 0 {
		room = min(room, width)
	}

	lines := wrap(lead, text, room)

	if escape := as.escape(); s.colour && escape != "" {
		for index := range lines {
			lines[index] = escape + lines[index] + "\x1b[0m"
		}
	}

	// If the terminal is gone, nobody reads the error.
	_, _ = fmt.Fprintln(s, strings.Join(lines, "\n"))
}

// copy writes a line as it is, for people to copy: the terminal may wrap it, but knows that it is one line.
func (s *screen) copy(line string) { _, _ = fmt.Fprintln(s, line) }

// tell writes an entry.
func (s *screen) tell(told entry) { s.hang(told.mood, told.lead(), told.what) }

// chapter begins a part of the demo.
func (s *screen) chapter(format string, args ...any) { s.line(heading, "\n== "+format, args...) }

// lead returns the node and how long it was out of service, in columns.
func (e entry) lead() string {
	switch {
	case e.node == "":
		return ""
	case e.took == "":
		return fmt.Sprintf("%-8s  ", e.node)
	default:
		return fmt.Sprintf("%-8s  %6s  ", e.node, e.took)
	}
}

// wrap splits the text into lines that are no longer than the room, except for longer words.
func wrap(lead, text string, room int) []string {
	indent := utf8.RuneCountInString(lead)
	// Next to a lead that leaves no room, nothing could be read.
	if indent > room/2 {
		indent = 2
	}

	lines := []string{lead}
	empty := true

	for word := range strings.SplitSeq(text, " ") {
		last := &lines[len(lines)-1]

		switch {
		case empty:
			*last += word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= room:
			*last += " " + word
		default:
			lines = append(lines, strings.Repeat(" ", indent)+word)
		}

		empty = false
	}

	return lines
}
