// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"testing"
)

// TestSpan_TextsArePrintable, whatever a node wrote into them.
func TestSpan_TextsArePrintable(t *testing.T) {
	if got, want := shortened("kubelet \x1b[2J\xff", textMost), "kubelet \\x1b[2J\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
