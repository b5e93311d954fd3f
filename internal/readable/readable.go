// SPDX-License-Identifier: MPL-2.0

// Package readable formats names, numbers and foreign text for people.
package readable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// printableLine is the maximum length of a line, in characters, and maxPrintable the maximum length of a text, in
	// lines.
	printableLine = 2000
	maxPrintable  = 2000
)

// Escaped returns the text with invalid bytes and with control and formatting characters escaped, so that it can be
// shown in a terminal or stored, whoever wrote it. Line breaks and tabs stay. Any other text is returned unchanged.
func Escaped(text string) string {
	var shown strings.Builder

	shown.Grow(len(text))

	for at, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[at:]); {
		case ' ' <= r && r <= '~':
			// This is the fast path for nearly all text: the tables for unprintable characters are slow.
			shown.WriteByte(text[at])
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&shown, `\x%02x`, text[at])
		case r != '\t' && r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			shown.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			shown.WriteRune(r)
		}
	}

	return shown.String()
}

// Printable returns the text [Escaped], and truncated if it is too long to be read.
func Printable(text string) string {
	lines := strings.Split(text, "\n")
	hidden := len(lines) - maxPrintable

	if hidden > 0 {
		lines = lines[:maxPrintable]
	}

	for index, line := range lines {
		lines[index] = Escaped(cut(line))
	}

	text = strings.Join(lines, "\n")
	if hidden > 0 {
		text += fmt.Sprintf("\n... and %d more lines", hidden)
	}

	return text
}

// Word is [Printable] for text within a line, such as a name.
func Word(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Printable(text))
}

// cut truncates a line to printableLine characters.
func cut(line string) string {
	count := 0

	for at := range line {
		if count == printableLine {
			return line[:at] + fmt.Sprintf("... and %d more characters", utf8.RuneCountInString(line[at:]))
		}

		count++
	}

	return line
}

// MaxNames is the maximum number of names in a list that may contain every node.
const MaxNames = 10

// List joins names: "a, b, c". Of more than [MaxNames], only the first are listed, with the number of the others.
func List(names []string) string {
	if more := len(names) - MaxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:MaxNames], ", "), more)
	}

	return strings.Join(names, ", ")
}

// QuotedList joins all names, in quotation marks: `"a", "b"`.
func QuotedList(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = strconv.Quote(name)
	}

	return strings.Join(texts, ", ")
}

// Times returns a count as "once" or "3 times".
func Times(count int) string {
	if count == 1 {
		return "once"
	}

	return fmt.Sprintf("%d times", count)
}

// OneLine returns the text without line breaks, truncated to the given number of characters.
func OneLine(text string, most int) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		return string(line[:most]) + "..."
	}

	return string(line)
}
