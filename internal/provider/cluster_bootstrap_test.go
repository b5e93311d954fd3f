// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// bootClock is a clock on which nothing but pauses takes time. Each of them is told.
type bootClock struct {
	engine.Clock

	now    time.Time
	paused func(until time.Time)
}

func (c *bootClock) Now() time.Time { return c.now }

func (c *bootClock) Sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	c.paused(c.now)

	return ctx.Err()
}

// WithTimeout ends with the pause in which the time is used up.
func (c *bootClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := context.WithCancel(ctx)
	until, told := c.now.Add(d), c.paused

	c.paused = func(now time.Time) {
		told(now)

		if !now.Before(until) {
			cancel()
		}
	}

	return bounded, cancel
}

// TestFirstApplyWaitsForAClusterThatComesUp: machines that were bootstrapped a moment ago
// take minutes until they answer.
func TestFirstApplyWaitsForAClusterThatComesUp(t *testing.T) {
	none := func(*fakeCluster) {}

	for name, test := range map[string]struct {
		before, after func(*fakeCluster)
		limit         time.Duration
		// waits is how long it waits.
		waits time.Duration
	}{
		"it answers":                           {none, none, time.Hour, 0},
		"nothing answers yet":                  {func(f *fakeCluster) { f.down = cluster.ErrUnreachable }, func(f *fakeCluster) { f.down = nil }, time.Hour, time.Minute},
		"the Kubernetes API does not, yet":     {func(f *fakeCluster) { f.kubernetesDown = cluster.ErrUnreachable }, func(f *fakeCluster) { f.kubernetesDown = nil }, time.Hour, time.Minute},
		"it never answers":                     {func(f *fakeCluster) { f.down = cluster.ErrUnreachable }, none, time.Hour, bootstrapPatience},
		"it never answers within the limit":    {func(f *fakeCluster) { f.down = cluster.ErrUnreachable }, none, 2 * time.Minute, 2 * time.Minute},
		"it refuses, which no waiting changes": {func(f *fakeCluster) { f.down = cluster.ErrDenied }, none, time.Hour, 0},
		"the certificate has expired":          {func(f *fakeCluster) { f.down = cluster.ErrCredentials }, none, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			test.before(fake)

			began := time.Date(2026, 3, 14, 1, 0, 0, 0, time.UTC)
			clock := &bootClock{now: began, paused: func(now time.Time) {
				if now.Sub(began) >= time.Minute {
					test.after(fake)
				}
			}}

			clusters := fake.clusters(t)
			clusters.settings.clock, clusters.settings.patience = clock, bootstrapPatience

			left := clusters.await(t.Context(), "", test.limit)
			if waited := clock.now.Sub(began); waited != test.waits || left != max(test.limit-waited, 1) {
				t.Errorf("it waited %s, want %s; %s of %s are left", waited, test.waits, left, test.limit)
			}
		})
	}
}

// TestReportWithoutAPlaceFailsThePlan: and where nothing is to be done, nobody draws one.
func TestReportWithoutAPlaceFailsThePlan(t *testing.T) {
	directory := t.TempDir()
	foreign := filepath.Join(directory, "letter.html")

	if err := os.WriteFile(foreign, []byte("Dear Sir or Madam"), 0o600); err != nil {
		t.Fatal(err)
	}

	single, roll := outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"}

	for name, test := range map[string]struct {
		path, talos string
		want        []outcome
	}{
		"a directory":              {directory, "1.13.4", []outcome{{diag.SeverityError, "it is a directory"}, single}},
		"a device":                 {os.DevNull, "1.13.4", []outcome{{diag.SeverityError, "it is a device, a pipe or a socket, and no file"}, single}},
		"somebody else's file":     {foreign, "1.13.4", []outcome{{diag.SeverityError, "it is there already and is no report of this provider"}, single}},
		"a file that can be":       {filepath.Join(directory, "made", "later", "report.html"), "1.13.4", []outcome{single, roll}},
		"nothing is to be drawn":   {foreign, "1.12.6", nil},
		"it is not known yet what": {"", "1.13.4", []outcome{single, roll}},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired(test.talos, "")
			model.ReportPath = types.StringValue(test.path)

			if test.path == "" {
				model.ReportPath = types.StringUnknown()
			}

			_, diagnostics := planned(t, threeNodes("1.12.6", "1.34.2").clusters(t), nil, model)
			check(t, diagnostics, test.want...)

			if _, err := os.Stat(filepath.Join(directory, "made")); err == nil {
				t.Error("the plan made a directory")
			}
		})
	}
}
