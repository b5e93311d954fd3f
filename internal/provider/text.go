// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// sentence turns an error text into a sentence. A first word that is more than
// letters may be a name, such as cp-0 or talos_version, and stays as it is, as
// does one of the names.
func sentence(text string, names ...string) string {
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

// hanging is the text of an element of a list, in which lines below the first,
// such as those of a log, are indented: the command line wraps all others.
func hanging(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// about is a summary that names its cluster, where that has a name: the command
// line folds warnings whose summaries are the same.
func about(summary, name string) string {
	if name == "" {
		return summary
	}

	return summary + " (" + name + ")"
}

// namesMost is how many names a text lists.
const namesMost = 10

// nameList are the names, and how many more there are than a person reads.
func nameList(names []string) string {
	hidden := len(names) - namesMost
	if hidden <= 0 {
		return strings.Join(names, ", ")
	}

	return strings.Join(names[:namesMost], ", ") + " and " + strconv.Itoa(hidden) + " more"
}

// durationText prints a duration as people write it: 30m, not 30m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}

	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}

	return text
}
