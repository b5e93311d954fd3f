// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBootID_IsReadWithoutItsLineEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boot_id")

	if got := readBootID(file); got != "" {
		t.Errorf("of no file: %q", got)
	}

	if err := os.WriteFile(file, []byte("2f1c8a34-7d1e-4b39-9d53-7c1de0a1b0c5\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if got := readBootID(file); got != "2f1c8a34-7d1e-4b39-9d53-7c1de0a1b0c5" {
		t.Errorf("got %q", got)
	}
}
