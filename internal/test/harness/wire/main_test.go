// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for what outlives all bubbles; a bubble finds by itself what
// outlives its test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
