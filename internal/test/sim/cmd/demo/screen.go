// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// mood is how a line is to be read, and on a terminal, coloured.
type mood int

const (
	plain mood = iota
	// quiet is context: overviews, Terraform's own words.
	quiet
	// busy is a node that is on its way.
	busy
	// good is a node, or a check, that is where it should be.
	good
	// bad is what should not happen.
	bad
	// heading begins a chapter.
	heading
)

// escape is the ANSI sequence of a mood; empty for none.
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
	mutex  sync.Mutex
	out    io.Writer
	colour bool
}

func newScreen(out *os.File) *screen {
	return &screen{out: out, colour: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()

	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// Write passes text through, for the progress of builds.
func (s *screen) Write(text []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	return s.out.Write(text)
}

// line writes one line in a mood.
func (s *screen) line(as mood, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if escape := as.escape(); s.colour && escape != "" {
		text = escape + text + "\x1b[0m"
	}

	// There is nobody to tell that the terminal is gone.
	_, _ = fmt.Fprintln(s, text)
}

// chapter begins a part of the demo.
func (s *screen) chapter(format string, args ...any) { s.line(heading, "\n== "+format, args...) }
