// SPDX-License-Identifier: MPL-2.0

package readable_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

func TestPrintable_ShowsWhatATerminalWouldObey(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"Ønskede noder: 節点 – ok":     "Ønskede noder: 節点 – ok",
		"one\n\ttwo":                 "one\n\ttwo",
		"\x1b[2J\x1b]0;owned\a":      `\x1b[2J\x1b]0;owned\a`,
		"done\rfailed\b\x7f":         `done\rfailed\b\x7f`,
		"\u009b31m":                  `\u009b31m`,
		"cp\u202e0-rekrow":           `cp\u202e0-rekrow`,
		"a\u2028b":                   `a\u2028b`,
		"\xff\xfe":                   `\xff\xfe`,
		"\ufffd":                     "\ufffd",
		strings.Repeat("å", 2003):    strings.Repeat("å", 2000) + "... and 3 more characters",
		strings.Repeat("a\n", 2001):  strings.Repeat("a\n", 1999) + "a\n... and 2 more lines",
		strings.Repeat("\x1b", 2001): strings.Repeat(`\x1b`, 2000) + "... and 1 more characters",
	} {
		if got := readable.Printable(text); got != want {
			t.Errorf("%.60q is shown as %.60q, want %.60q", text, got, want)
		}

		if got := readable.Printable(want); len(text) < 100 && got != want {
			t.Errorf("%q, which is printable, is shown as %q", want, got)
		}
	}
}

func TestWord_StaysInItsLine(t *testing.T) {
	if got, want := readable.Word("run-1\n\tError: \x1b[1m"), `run-1\n\tError: \x1b[1m`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
