// SPDX-License-Identifier: MPL-2.0

package compat_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestStops_AreOfTheReleasesThatTheyName(t *testing.T) {
	t.Parallel()

	for talos, want := range map[string][]compat.StopWhen{
		"1.13.0": nil, "1.13.1": {compat.Withdrawn}, "1.13.2": nil,
		"1.9.0": {compat.Running}, "1.9.2": {compat.Running}, "1.9.3": nil, "1.8.4": nil,
		"1.13.9": {compat.BootsUKI}, "1.13.10": nil,
	} {
		var got []compat.StopWhen
		for _, stop := range compat.Stops(version.MustParse(talos)) {
			got = append(got, stop.When)

			// They are put together to sentences.
			if stop.Reason == "" || strings.HasSuffix(stop.Reason, ".") || !strings.HasSuffix(stop.Remedy, ".") || !strings.Contains(stop.Source, "#") {
				t.Errorf("%s: %+v", talos, stop)
			}
		}

		if !slices.Equal(got, want) || compat.IsWithdrawn(version.MustParse(talos)) != slices.Contains(want, compat.Withdrawn) {
			t.Errorf("%s: got %v, want %v", talos, got, want)
		}
	}
}

// TestStops_NoWayLeadsThroughWithdrawnReleases wherever nobody names one.
func TestStops_NoWayLeadsThroughWithdrawnReleases(t *testing.T) {
	t.Parallel()

	for _, line := range compat.Lines() {
		if newest, found := compat.NewestTalos(line.Talos); found && compat.IsWithdrawn(newest) {
			t.Errorf("the newest release of %s is %s, which was withdrawn", line.Talos, newest)
		}
	}
}
