// SPDX-License-Identifier: MPL-2.0

package say

import (
	"errors"
	"strings"
)

// Sentence returns the text with a capital letter at its beginning and a full stop.
func Sentence(text string) string {
	if text == "" {
		return ""
	}

	if first := text[0]; first >= 'a' && first <= 'z' && len(text) > 1 {
		text = string(first-'a'+'A') + text[1:]
	}

	return WithFullStop(text)
}

// WithFullStop returns the text with a full stop, unless it ends in one or in a question mark: the text of a
// guard may be whole sentences.
func WithFullStop(text string) string {
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, ".") {
		return text
	}

	return text + "."
}

// LastSeen returns what a wait saw last before it ended, if it saw anything.
func LastSeen(err error) string {
	var ended *WaitError
	if !errors.As(err, &ended) || ended.Seen == "" {
		return ""
	}

	return "; last seen: " + ended.Seen
}

// InterruptedPrefix is the beginning of texts of [Interrupted].
const InterruptedPrefix = "It was interrupted "

// Interrupted says what was going on when the end of its context interrupted a run, and what was seen last. An
// error that has nothing to do with the interruption is added.
func Interrupted(ended error, activity string, err error) string {
	text := WithFullStop(InterruptedPrefix + "while " + activity + LastSeen(err))

	if !errors.Is(err, ended) {
		text += " " + Sentence(err.Error())
	}

	return text
}
