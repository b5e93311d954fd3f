// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"strings"
	"sync"
	"testing"
)

// TestAccEveryConfigurationIsValid wants each block of HCL in the pages, and each example, to be valid for the
// command line and the schema.
func TestAccEveryConfigurationIsValid(t *testing.T) {
	j := newJudge(t)

	snippets, err := collect(j.root)
	if err != nil {
		t.Fatal(err)
	}

	var (
		mutex     sync.Mutex
		validated int
		without   []string
	)

	t.Run("snippet", func(t *testing.T) {
		for _, s := range snippets {
			t.Run(s.String(), func(t *testing.T) {
				t.Parallel()

				found, err := j.validate(t.Context(), t.TempDir(), s)
				if err != nil {
					t.Fatalf("%s: %v\n%s", s, err, hint)
				}

				if len(found.taken) > 0 {
					t.Logf("completed with %s", strings.Join(found.taken, ", "))
				}

				mutex.Lock()
				defer mutex.Unlock()

				if found.without == "" {
					validated++
				} else {
					without = append(without, s.String()+": "+found.without)
				}
			})
		}
	})

	t.Logf("%s %s: %d of %d validated, %d only parsed", j.cli.Name, j.cli.Version, validated, len(snippets), len(without))

	for _, which := range without {
		t.Log("only parsed: " + which)
	}

	// If nothing were collected, nothing would be found to be wrong.
	if validated < 20 {
		t.Errorf("only %d configurations were found and validated", validated)
	}
}
