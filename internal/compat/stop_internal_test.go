// SPDX-License-Identifier: MPL-2.0

package compat

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestReadStops_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ line, says string }{
		"a field too few": {"1.13.1 | withdrawn | was broken | Choose another.", "4 fields"},
		"another when":    {"1.13.1 | always | was broken | Choose another. | x#1", `"always" is none of withdrawn`},
		"no version":      {"newest | withdrawn | was broken | Choose another. | x#1", "newest"},
	} {
		if got, err := readStops("# a comment\n\n" + test.line + "\n"); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, %v; want an error that says %q", name, got, err, test.says)
		}
	}
}

// TestNewest_SkipsWhatWasWithdrawn also where that is the last of its line. It changes the list, so nothing runs beside it.
func TestNewest_SkipsWhatWasWithdrawn(t *testing.T) {
	all := releases
	t.Cleanup(func() { releases = all })

	releases = "talos 1.13.0 1.13.1\n"

	if got, found := NewestTalos(minor(13)); !found || !got.Equal(version.MustParse("1.13.0")) {
		t.Errorf("got %s, %t, want 1.13.0", got, found)
	}

	releases = "talos 1.13.1\n"

	if got, found := NewestTalos(minor(13)); found {
		t.Errorf("got %s, want none", got)
	}
}
