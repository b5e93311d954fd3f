// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestSameSeedTellsTheSameStory is what every other test of this kind leans on:
// a failure can be had again.
func TestSameSeedTellsTheSameStory(t *testing.T) {
	const repetitions = 5

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			var first string

			for range repetitions {
				inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 33}}, func(r *rig) {
					r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})
					r.Must(r.Worker("run-1"), to(hop.to))

					// What happens at one and the same instant has no order.
					lines := strings.Split(r.Judge.Text(), "\n")
					slices.Sort(lines)

					if story := strings.Join(lines, "\n"); first == "" {
						first = story
					} else if story != first {
						t.Errorf("another story:\n%s\nthan before:\n%s", story, first)
					}
				})
			}
		})
	}
}
