// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"path/filepath"
	"testing"
)

// TestAccExamplesAreValid holds the examples of the resource, and those of what to
// do when an upgrade fails, to the schema and to what contradicts itself.
func TestAccExamplesAreValid(t *testing.T) {
	full(t)

	w := newWorkspace(t)

	for _, pattern := range []string{"resources/talosupgrade_cluster/*.tf", "guides/when-an-upgrade-fails/*.tf"} {
		examples, err := filepath.Glob(filepath.Join("..", "..", "examples", filepath.FromSlash(pattern)))
		if err != nil || len(examples) == 0 {
			t.Fatalf("%s: %d examples, %v", pattern, len(examples), err)
		}

		w.validates(examples)
	}
}
