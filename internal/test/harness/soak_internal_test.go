// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"strings"
	"testing"
	"time"
)

func TestSoak_LengthAndSeedAreReadFromTheEnvironment(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "1h": time.Hour, "2m30s": 150 * time.Second} {
		if got, err := parseSoak(text); err != nil || got != want {
			t.Errorf("soak %q: %s, %v, want %s", text, got, err, want)
		}
	}

	for _, text := range []string{"1", "an hour", "-5m", "0s"} {
		if _, err := parseSoak(text); err == nil || !strings.Contains(err.Error(), EnvSoak) || !strings.Contains(err.Error(), "1h") {
			t.Errorf("soak %q: %v, want an error with the variable and an example", text, err)
		}
	}

	for text, want := range map[string]uint64{"": usualSeed, "0": 0, "18446744073709551615": 1<<64 - 1} {
		if got, err := parseSeed(text); err != nil || got != want {
			t.Errorf("seed %q: %d, %v, want %d", text, got, err, want)
		}
	}

	for _, text := range []string{"-1", "0x7", "dice", "18446744073709551616"} {
		if _, err := parseSeed(text); err == nil || !strings.Contains(err.Error(), EnvSeed) {
			t.Errorf("seed %q: %v, want an error with the variable", text, err)
		}
	}
}

func TestSoak_CommandRepeatsOneCase(t *testing.T) {
	got := repeating("sweep", "TestA/b_c", 7, "x; y's")
	want := `TALOSUPGRADE_SEED=7 TALOSUPGRADE_ONLY='x; y'\''s' go test -count=1 -v -run '^TestA$/^b_c$' ./internal/test/harness/sweep`

	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
