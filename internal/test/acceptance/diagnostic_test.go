// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"slices"
	"strings"
	"testing"
)

// diagnostic is one that the CLI printed.
type diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
	Snippet  struct {
		Context string `json:"context"`
		Code    string `json:"code"`
	} `json:"snippet"`
}

// String is the diagnostic as one text.
func (d diagnostic) String() string {
	return d.Severity + ": " + d.Summary + "\n" + d.Detail + "\n" + d.Snippet.Code
}

// mustPoint fails the test unless the CLI shows one of the lines of the
// configuration with the diagnostic.
func (d diagnostic) mustPoint(t *testing.T, lines ...string) {
	t.Helper()

	if !slices.Contains(lines, strings.TrimSpace(d.Snippet.Code)) {
		t.Errorf("it points at %q, want one of %q:\n%s", d.Snippet.Code, lines, d)
	}
}
