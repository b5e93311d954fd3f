// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"testing"
)

// TestTextsOfASpanArePrintable, whatever a node wrote into them.
func TestTextsOfASpanArePrintable(t *testing.T) {
	if got, want := shortened("kubelet \x1b[2J\xff", textMost), "kubelet \\x1b[2J\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
