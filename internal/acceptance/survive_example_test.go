// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"os"
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

		for _, example := range examples {
			content, err := os.ReadFile(example)
			if err != nil {
				t.Fatal(err)
			}

			w.raw(string(content))

			if run := w.run("validate", "-no-color"); run.exit != 0 {
				t.Errorf("%s: %s", example, run.output)
			}
		}
	}
}
