// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestRecent_PlanHasTheTimeThatItsLimitSays: a refresh uses the limit in state, and the plan after it the one in the
// configuration. The error of the refresh is used again only if the plan cannot do better.
func TestRecent_PlanHasTheTimeThatItsLimitSays(t *testing.T) {
	for name, test := range map[string]struct {
		takes         time.Duration
		refresh, plan time.Duration
		want          int
	}{
		"same limit, too short":      {30 * time.Second, 5 * time.Second, 5 * time.Second, 1},
		"lower limit":                {30 * time.Second, 5 * time.Second, 3 * time.Second, 1},
		"raised limit":               {30 * time.Second, 5 * time.Second, time.Minute, 2},
		"raised limit, in good time": {time.Second, 5 * time.Second, time.Minute, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				shared := testSettings()
				shared.Dial = func(ctx context.Context, _ *Settings, _ Credentials, _ string, _ KubeconfigCache) (*Connection, error) {
					dials++

					select {
					case <-ctx.Done():
						return nil, cluster.Ended(ctx)
					case <-time.After(test.takes):
						return nil, cluster.ErrUnreachable
					}
				}

				clusters := NewClusters(shared, Credentials{})

				within := func(limit time.Duration, observe func(context.Context, string) (Observation, error)) {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()

					if _, err := observe(ctx, ""); err == nil {
						t.Error("there is no error")
					}
				}

				within(test.refresh, clusters.Observe)
				within(test.plan, clusters.Recent)

				if dials != test.want {
					t.Errorf("the cluster was observed %d times, want %d", dials, test.want)
				}
			})
		})
	}
}
