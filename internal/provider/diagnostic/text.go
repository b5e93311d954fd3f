// SPDX-License-Identifier: MPL-2.0

package diagnostic

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sentence turns an error text into a sentence. The first word keeps its spelling if it is one of the names, or
// contains more than letters and so may be a name, such as cp-0 or talos_version.
func Sentence(text string, names ...string) string {
	if text == "" {
		return text
	}

	word, _, _ := strings.Cut(text, " ")
	word = strings.TrimRight(word, ",:;.")

	if !slices.Contains(names, word) && !strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }) {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}

	if !strings.HasSuffix(text, ".") {
		text += "."
	}

	return text
}

// hanging indents the lines of a list element after the first, such as those of a log: the command line wraps all
// lines that are not indented.
func hanging(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// About adds the name of the cluster, if it has one, to a summary: the command line folds warnings with the same
// summary.
func About(summary, name string) string {
	if name == "" {
		return summary
	}

	return summary + " (" + name + ")"
}

// Paragraph returns a text of several lines unchanged, such as the message of a compiler with its mark below the
// source, and any other as a sentence in which the names keep their spelling.
func Paragraph(text string, names ...string) string {
	if strings.Contains(text, "\n") {
		return text
	}

	return Sentence(text, names...)
}
