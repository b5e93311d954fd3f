// SPDX-License-Identifier: MPL-2.0

// Package readable makes texts that people read of names, numbers and what others
// wrote.
package readable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// printableLine is how long a line may be that a person reads, in characters,
	// and maxPrintable a whole text, in lines.
	printableLine = 2000
	maxPrintable  = 2000
)

// Escaped is a text as it may be shown or stored, whoever wrote it: what a terminal
// obeys instead of showing it is spelled out. Line breaks and tabs stay, and a text
// without anything of the kind stays as it is.
func Escaped(text string) string {
	var shown strings.Builder

	shown.Grow(len(text))

	for at, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[at:]); {
		case ' ' <= r && r <= '~':
			// Nearly all there is; the tables of what cannot be printed are slow.
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

// Printable is a text that is [Escaped], and cut where it is too long to be read.
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

// Word is [Printable] for what stands within a line, such as a name.
func Word(text string) string {
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(Printable(text))
}

// cut is a line no longer than a person reads.
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

// MaxNames is how many names a text lists that may be about every node.
const MaxNames = 10

// List writes names in a row: "a, b, c", and of very many the first alone.
func List(names []string) string {
	if more := len(names) - MaxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:MaxNames], ", "), more)
	}

	return strings.Join(names, ", ")
}

// QuotedList writes all names in a row, in quotation marks: `"a", "b"`.
func QuotedList(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = strconv.Quote(name)
	}

	return strings.Join(texts, ", ")
}

// Times is how often something was done: "once", "3 times".
func Times(count int) string {
	if count == 1 {
		return "once"
	}

	return fmt.Sprintf("%d times", count)
}

// OneLine is the text without line breaks, and of one that has more characters than
// that only the beginning.
func OneLine(text string, most int) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		return string(line[:most]) + "..."
	}

	return string(line)
}
