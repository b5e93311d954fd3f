// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestRollThatOutlastsItsLimitIsAWarning(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

	for name, test := range map[string]struct {
		estimate time.Duration
		first    bool
		change   func(*clusterModel)
		expires  time.Time
		want     []outcome
		at       string
	}{
		"fits":               {4 * time.Hour, true, func(*clusterModel) {}, now.Add(5 * time.Hour), nil, ""},
		"nobody knows":       {0, true, limited("create", "1s"), now, nil, ""},
		"no certificate":     {time.Hour, true, func(*clusterModel) {}, time.Time{}, nil, ""},
		"limit of an update": {2 * time.Hour, true, limited("update", "1h"), time.Time{}, nil, ""},
		"limit not known": {24 * time.Hour, true, func(m *clusterModel) {
			m.Timeouts.Object = types.ObjectUnknown(timeoutTypes())
		}, time.Time{}, nil, ""},
		"longer than the default": {
			4*time.Hour + time.Minute, true, func(*clusterModel) {},
			time.Time{},
			[]outcome{{diag.SeverityWarning, "about 4 hours 1 minute (an estimate from typical durations, not a promise), and timeouts.create is 4h."}},
			"timeouts",
		},
		"longer than the limit of a first apply": {
			time.Hour, true, limited("create", "30m"),
			time.Time{},
			[]outcome{{diag.SeverityWarning, "timeouts.create is 30m"}},
			"timeouts",
		},
		"longer than the limit of an update": {
			2 * time.Hour, false, limited("update", "1h"),
			time.Time{},
			[]outcome{{diag.SeverityWarning, "Raise timeouts.update"}},
			"timeouts",
		},
		"outlives the certificate": {
			time.Hour, false, func(*clusterModel) {}, now.Add(59 * time.Minute),
			[]outcome{{diag.SeverityWarning, `certificate of talosconfig context "demo" expires on 2026-11-21T12:59:00Z, and the upgrade takes about 1 hour`}},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", "")
			test.change(model)

			seen := observation{Observation: cluster.Observation{Taken: now}, name: `talosconfig context "demo"`, expires: test.expires}

			diagnostics := model.limitWarnings(t.Context(), seen, test.estimate, test.first)
			check(t, diagnostics, test.want...)

			for _, diagnostic := range diagnostics {
				if at := pathText(diagnostic); at != test.at {
					t.Errorf("points at %s, want %s", at, test.at)
				}
			}
		})
	}
}

// TestPlanLooksAtTheLimits: the estimate of any roll is longer than a second.
func TestPlanLooksAtTheLimits(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.expires = time.Now().Add(time.Second)

	plan := desired("1.13.4", "")
	limited("create", "1s")(plan)

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics,
		outcome{diag.SeverityWarning, "one control plane"},
		outcome{diag.SeverityWarning, "Rolling upgrade of 3 of 3 nodes"},
		outcome{diag.SeverityWarning, "timeouts.create is 1s"},
		outcome{diag.SeverityWarning, "expires on"})
}
