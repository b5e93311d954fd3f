// SPDX-License-Identifier: MPL-2.0

package talosapi

import "strings"

// The installer's output is for an error message: its end is what matters, and
// a runaway installer must not fill the memory.
const (
	keptLines  = 20
	keptLength = 400
)

// lines puts the chunks of an output together again and keeps its last lines.
type lines struct {
	complete []string
	partial  string
}

func (l *lines) write(chunk string) {
	for {
		head, tail, found := strings.Cut(chunk, "\n")
		l.partial = clip(l.partial + head)

		if !found {
			return
		}

		l.finish()

		chunk = tail
	}
}

func (l *lines) finish() {
	if text := strings.TrimSpace(l.partial); text != "" {
		l.complete = append(l.complete, text)
	}

	if len(l.complete) > keptLines {
		l.complete = l.complete[len(l.complete)-keptLines:]
	}

	l.partial = ""
}

// last are the lines kept, oldest first.
func (l *lines) last() []string {
	l.finish()

	return l.complete
}

func clip(text string) string {
	if len(text) <= keptLength {
		return text
	}

	return strings.ToValidUTF8(text[:keptLength], "")
}
