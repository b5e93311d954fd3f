// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// TestFollow_EndsWithTheRun that somebody else has begun, or at once where there is none.
func TestFollow_EndsWithTheRun(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		before func(r *rig) (after func())
		want   engine.FollowEnd
		least  time.Duration
		most   time.Duration
	}{
		"nobody runs": {before: func(*rig) func() { return func() {} }, want: engine.NobodyRuns, most: time.Second},
		"it ends": {before: func(r *rig) func() {
			ended := make(chan error, 1)
			run := r.Worker("run-1")

			go func() { ended <- run.Apply(context.Background(), to(toLifecycle)) }()

			time.Sleep(time.Minute)

			return func() {
				if err := <-ended; err != nil {
					t.Errorf("the run ended with %v", err)
				}
			}
		}, want: engine.RunEnded, least: 5 * time.Minute, most: time.Hour},
		"it was gone before": {before: func(r *rig) func() {
			if err := r.HoldLease("run-1"); err != nil {
				t.Fatal(err)
			}

			return func() {}
		}, want: engine.NobodyRuns, least: 30 * time.Second, most: 35 * time.Second},
		"it dies": {before: func(r *rig) func() {
			if err := r.HoldLease("run-1"); err != nil {
				t.Fatal(err)
			}

			go func() {
				time.Sleep(10 * time.Second)

				_ = r.HoldLease("run-1")
			}()

			return func() {}
		}, want: engine.RunDied, least: 40 * time.Second, most: 45 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				after := test.before(r)
				asked := r.Worker("asked")
				began, looks := time.Now(), 0

				end, err := asked.Engine.Follow(context.Background(), func(context.Context) error {
					looks++

					return nil
				})
				if took := time.Since(began); err != nil || end != test.want || took < test.least || took > test.most || looks == 0 {
					t.Errorf("it ended with %q after %s and %d looks, %v; want %q after %s to %s", end, took, looks, err, test.want, test.least, test.most)
				}

				after()

				if _, changed := asked.Client.Calls(); changed != 0 {
					t.Errorf("%d calls changed something", changed)
				}
			})
		})
	}
}

// TestFollow_OutlastsAnAPIServerThatIsAway, as the run does that it follows, and not one that
// refuses.
func TestFollow_OutlastsAnAPIServerThatIsAway(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		if err := r.HoldLease("run-1"); err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		asked := r.Worker("asked")

		end, err := asked.Engine.Follow(context.Background(), func(context.Context) error {
			if time.Since(began) < 10*time.Minute {
				return cluster.ErrUnreachable
			}

			return nil
		})
		if err != nil || end != engine.NobodyRuns || time.Since(began) < 10*time.Minute+20*time.Second {
			t.Errorf("it ended with %q after %s: %v", end, time.Since(began), err)
		}

		if _, err := asked.Engine.Follow(context.Background(), func(context.Context) error { return cluster.ErrDenied }); !errors.Is(err, cluster.ErrDenied) {
			t.Errorf("it ended with %v", err)
		}

		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()

		if _, err := asked.Engine.Follow(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}

		denied := r.Worker("denied")
		denied.Client.Intercept(withCall("Lease", cluster.ErrDenied))

		_, err = denied.Engine.Follow(context.Background(), func(context.Context) error { return nil })
		if failed := failure(t, err, cluster.ErrDenied, ""); !strings.Contains(failed.Remedy, "get, create and patch leases") {
			t.Errorf("it says %s", failed.Detail())
		}
	})
}
