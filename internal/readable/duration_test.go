// SPDX-License-Identifier: MPL-2.0

package readable_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

func TestDurationsArePrintedAsPeopleWriteThem(t *testing.T) {
	for want, duration := range map[string]time.Duration{
		"30m": 30 * time.Minute, "1h30m": 90 * time.Minute, "4h": 4 * time.Hour, "90s": 90 * time.Second, "10m30s": 630 * time.Second,
	} {
		got := readable.Duration(duration)
		if parsed, err := time.ParseDuration(got); err != nil || parsed != duration {
			t.Errorf("%s does not read back: %s", duration, got)
		}

		if want != "90s" && got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
