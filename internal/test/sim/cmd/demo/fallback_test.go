// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPageOfAFallbackIsKept if it says what to do, and refused if it does not.
func TestPageOfAFallbackIsKept(t *testing.T) {
	t.Parallel()

	const advice = `node_overrides = { "worker-1" = { retry_boot_id = "b2" } }`

	for page, want := range map[string]bool{
		"<h2>What to do now</h2>set node_overrides = { &#34;worker-1&#34; = { retry_boot_id = &#34;b2&#34; } }": true,
		"<h2>What to do now</h2>set node_overrides = { &#34;worker-1&#34; = { retry_boot_id = &#34;b1&#34; } }": false,
		"set node_overrides = { &#34;worker-1&#34; = { retry_boot_id = &#34;b2&#34; } }":                        false,
	} {
		report := filepath.Join(t.TempDir(), "upgrade.html")
		if err := os.WriteFile(report, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}

		kept, err := (&play{given: variables{ReportPath: report}}).keepPage(advice)
		if (err == nil) != want {
			t.Errorf("the page %q: got %v", page, err)
		}

		if content, _ := os.ReadFile(kept); want && string(content) != page {
			t.Errorf("what was kept is %q, want %q", content, page)
		}
	}
}

func TestFlagsHaveOneOfTheirValues(t *testing.T) {
	t.Parallel()

	if err := oneOf("story", "fallback", "roll", "fallback"); err != nil {
		t.Errorf("got %v", err)
	}

	err := oneOf("story", "happy", "roll", "fallback")
	if want := `-story is "happy", want roll or fallback`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
