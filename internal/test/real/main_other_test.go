// SPDX-License-Identifier: MPL-2.0

//go:build !linux

package real

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()

	if os.Getenv("TALOSUPGRADE_REAL") != "" {
		fmt.Fprintln(os.Stderr, "make real: nothing was run: it needs Linux")
		os.Exit(1)
	}

	os.Exit(code)
}

func TestReal(t *testing.T) { t.Skip("it needs Linux") }
