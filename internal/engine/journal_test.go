// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestJournal_OneWriteForManyUpgrades: where a write of the journal takes its time, the
// upgrades that wait for it share the next one, also when writes fail.
func TestJournal_OneWriteForManyUpgrades(t *testing.T) {
	const (
		workers = 24
		slow    = 15 * time.Second
	)

	for name, failing := range map[string]bool{"slow": false, "slow, and every third one fails": true} {
		t.Run(name, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 1, Workers: workers, Seed: 3},
				Judging: []checker.Option{checker.MaxUnavailable(workers / 2)},
			}

			inCluster(t, given, func(r *rig) {
				writes := 0
				w := r.Worker("run-1")

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "WriteJournal" {
						return next(ctx)
					}

					writes++
					failed := failing && writes%3 == 0

					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(slow):
					}

					if failed {
						return errors.Join(cluster.ErrUnreachable, errors.New("the API server is busy"))
					}

					return next(ctx)
				})

				r.Must(w, sharing(t, toLifecycle, "50%"))
				r.At(toLifecycle)
				r.Once()

				entries := len(r.Judge.Of(history.KindJournal))
				if entries < 3*workers || writes > entries/2 {
					t.Errorf("%d writes for %d changes of entries, want at most half as many", writes, entries)
				}
			})
		})
	}
}
