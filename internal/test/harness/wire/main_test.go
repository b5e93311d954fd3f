// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain checks for goroutines that outlive all bubbles. A bubble itself checks for those that outlive its test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
