// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Terminal writes whole lines from several goroutines. On a terminal the last line is a status, which the next status
// replaces; elsewhere there is no status.
type Terminal struct {
	mutex sync.Mutex
	out   io.Writer
	// width returns the number of columns; nil if the output is not a terminal.
	width  func() int
	status string
}

// NewTerminal returns a [Terminal] that writes to a file, which may be a terminal.
func NewTerminal(file *os.File) *Terminal {
	descriptor := int(file.Fd())
	if !term.IsTerminal(descriptor) || os.Getenv("TERM") == "dumb" {
		return NewPlain(file)
	}

	return &Terminal{out: file, width: func() int {
		// Narrow enough for every terminal that does not report its width.
		const usual = 80

		if width, _, err := term.GetSize(descriptor); err == nil && width > 0 {
			return width
		}

		return usual
	}}
}

// NewPlain returns a [Terminal] without a status.
func NewPlain(out io.Writer) *Terminal { return &Terminal{out: out} }

// Watched reports whether a status is shown.
func (t *Terminal) Watched() bool { return t.width != nil }

// Width returns the number of columns; 0 if there is no limit.
func (t *Terminal) Width() int {
	if t.width == nil {
		return 0
	}

	return t.width()
}

// Write writes whole lines above the status.
func (t *Terminal) Write(lines []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if t.status == "" {
		return t.out.Write(lines)
	}

	// In one write, so that nothing flickers.
	_, err := fmt.Fprintf(t.out, "\r\x1b[K%s%s", lines, t.visible())

	return len(lines), err
}

// Status replaces the status; an empty text removes it.
func (t *Terminal) Status(text string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if t.width == nil || text == t.status {
		return
	}

	t.status = text
	// If the terminal is gone, nobody reads an error.
	_, _ = fmt.Fprintf(t.out, "\r\x1b[K%s", t.visible())
}

// visible returns the part of the status that fits: a character in the last column would wrap.
func (t *Terminal) visible() string {
	const cut = "..."

	room, letters := t.width()-1, []rune(t.status)

	switch {
	case len(letters) <= room:
		return t.status
	case room <= len(cut):
		return string(letters[:max(room, 0)])
	default:
		return string(letters[:room-len(cut)]) + cut
	}
}

// progress is where builds report their progress.
type progress interface {
	io.Writer
	// Watched reports whether a status is shown.
	Watched() bool
	Status(text string)
}
