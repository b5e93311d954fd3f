// SPDX-License-Identifier: MPL-2.0

package say

import (
	"errors"
	"strings"
)

// Sentence is the text with a capital at its beginning and a full stop.
func Sentence(text string) string {
	if text == "" {
		return ""
	}

	if first := text[0]; first >= 'a' && first <= 'z' && len(text) > 1 {
		text = string(first-'a'+'A') + text[1:]
	}

	return WithFullStop(text)
}

// WithFullStop is the text with a full stop, unless it has an end already: what a guard
// says may be whole sentences.
func WithFullStop(text string) string {
	if strings.HasSuffix(text, "?") || strings.HasSuffix(text, ".") {
		return text
	}

	return text + "."
}

// LastSeen is what a wait saw last before it ended, if it saw anything.
func LastSeen(err error) string {
	var ended *WaitError
	if !errors.As(err, &ended) || ended.Seen == "" {
		return ""
	}

	return "; last seen: " + ended.Seen
}

// InterruptedPrefix is how [Interrupted] begins.
const InterruptedPrefix = "It was interrupted "

// Interrupted says what was going on when a run was interrupted by what ended its context, and what was
// seen last. An error that has nothing to do with the interruption is said as well.
func Interrupted(ended error, activity string, err error) string {
	text := WithFullStop(InterruptedPrefix + "while " + activity + LastSeen(err))

	if !errors.Is(err, ended) {
		text += " " + Sentence(err.Error())
	}

	return text
}
