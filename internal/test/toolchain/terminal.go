// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Terminal writes whole lines from several goroutines. Where somebody watches, the last
// line is a status, which the next one replaces; elsewhere there is no status.
type Terminal struct {
	mutex sync.Mutex
	out   io.Writer
	// width is how many columns there are; nil where nobody watches.
	width  func() int
	status string
}

// NewTerminal writes to a file, which may be a terminal.
func NewTerminal(file *os.File) *Terminal {
	descriptor := int(file.Fd())
	if !term.IsTerminal(descriptor) || os.Getenv("TERM") == "dumb" {
		return NewPlain(file)
	}

	return &Terminal{out: file, width: func() int {
		// Narrow enough for every terminal that does not say.
		const usual = 80

		if width, _, err := term.GetSize(descriptor); err == nil && width > 0 {
			return width
		}

		return usual
	}}
}

// NewPlain writes where nobody watches.
func NewPlain(out io.Writer) *Terminal { return &Terminal{out: out} }

// Watched tells whether somebody watches.
func (t *Terminal) Watched() bool { return t.width != nil }

// Width is how many columns there are; zero is no bound.
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

	// In one piece, so that nothing flickers.
	_, err := fmt.Fprintf(t.out, "\r\x1b[K%s%s", lines, t.visible())

	return len(lines), err
}

// Status replaces the status; an empty one is none.
func (t *Terminal) Status(text string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if t.width == nil || text == t.status {
		return
	}

	t.status = text
	// There is nobody to tell that the terminal is gone.
	_, _ = fmt.Fprintf(t.out, "\r\x1b[K%s", t.visible())
}

// visible is what of the status fits: a character in the last column would wrap.
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

// progress is where builds say how far they are.
type progress interface {
	io.Writer
	// Watched tells whether a status is seen.
	Watched() bool
	Status(text string)
}
