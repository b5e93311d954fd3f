// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for what outlives all bubbles; a bubble finds by itself what
// outlives its test.
func TestMain(m *testing.M) {
	// A bubble is mostly garbage; collecting it less often saves a third of the time.
	const seldom = 400

	debug.SetGCPercent(seldom)
	goleak.VerifyTestMain(m)
}
