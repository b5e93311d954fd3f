// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The installer's output is for an error message: its end is what matters, and
// a runaway installer must not fill the memory.
const (
	keptLines  = 20
	keptLength = 400
)

// lines puts the chunks of an output together again and keeps its last lines.
type lines struct {
	// most is how many lines are kept, longest how many characters of each; zero
	// is [keptLines] and [keptLength].
	most, longest int
	// skips, when not nil, tells which lines are not kept.
	skips func(line string) bool

	complete []string
	partial  string
}

func (l *lines) write(chunk string) {
	// Characters have up to four bytes, and what is no text is taken out later.
	room := 2 * utf8.UTFMax * cmp.Or(l.longest, keptLength)

	for {
		head, tail, found := strings.Cut(chunk, "\n")
		l.partial += head[:min(len(head), max(0, room-len(l.partial)))]

		if !found {
			return
		}

		l.finish()

		chunk = tail
	}
}

func (l *lines) finish() {
	text := shorten(legible(l.partial), cmp.Or(l.longest, keptLength))
	if text != "" && (l.skips == nil || !l.skips(text)) {
		l.complete = append(l.complete, text)
	}

	if excess := len(l.complete) - cmp.Or(l.most, keptLines); excess > 0 {
		l.complete = l.complete[excess:]
	}

	l.partial = ""
}

// last are the lines kept, oldest first.
func (l *lines) last() []string {
	l.finish()

	return l.complete
}

// legible is a line as it may stand in a message: without the colours, movements
// and titles of a terminal (ECMA-48), and with a mark for what is no text.
func legible(line string) string {
	if strings.ContainsRune(line, '\x1b') {
		line = regexp.MustCompile(`\x1b(\[[\x30-\x3f]*[\x20-\x2f]*[\x40-\x7e]|\][^\x07\x1b]*(\x07|\x1b\\)?|[\x40-\x5a\x5c\x5e\x5f])`).ReplaceAllString(line, "")
	}

	line = strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		default:
			return r
		}
	}, strings.ToValidUTF8(line, string(utf8.RuneError)))

	return strings.TrimSpace(withoutSecrets(line))
}

// withoutSecrets takes out of the URLs in a line what may be a secret there: who
// asks, with a password perhaps, and what is asked beside the path.
func withoutSecrets(line string) string {
	if !strings.Contains(line, "://") {
		return line
	}

	line = regexp.MustCompile(`://[^/?#\s"']*@`).ReplaceAllString(line, "://...@")

	return regexp.MustCompile(`(://[^?#\s"']*)\?[^#\s"']*`).ReplaceAllString(line, "$1?...")
}

func clip(text string) string { return shorten(text, keptLength) }

// shorten is the beginning of a text, at most that many characters.
func shorten(text string, most int) string {
	for i := range text {
		if most == 0 {
			return text[:i]
		}

		most--
	}

	return text
}
