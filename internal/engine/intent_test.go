// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestIntentAloneDoesNotArmTheNode: the journal takes so long to be written that
// the guards are asked again, and then do not hold. Nothing was installed, so
// the turn has no more patience than before, and leaves nothing behind.
func TestIntentAloneDoesNotArmTheNode(t *testing.T) {
	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 51}}, func(r *rig) {
				var (
					once  sync.Once
					begun time.Time
				)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					err := next(ctx)

					if call.Method == "WriteJournal" && !stamps(call) {
						once.Do(func() {
							r.World().SetFaults(silent("cp-2"))
							time.Sleep(15 * time.Second)

							begun = time.Now()
						})
					}

					return err
				})

				_ = failure(t, w.Apply(context.Background(), bare(to(hop.to))), engine.ErrGuard, "worker-0")

				if took := time.Since(begun); took > 7*time.Minute {
					t.Errorf("it took %s to give up", took)
				}

				r.Sound()
				r.stopped("worker-0", false)
				r.Tidy()
			})
		})
	}
}

// TestJournalIsNotWrittenOnALeaseThatRanOutMeanwhile: a turn waits for another
// one that writes the journal, for longer than the lease lasts.
func TestJournalIsNotWrittenOnALeaseThatRanOutMeanwhile(t *testing.T) {
	inCluster(t, pairs(59), func(r *rig) {
		var (
			stalled atomic.Bool
			writes  atomic.Int32
		)

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch {
			case call.Method == "WriteJournal" && !stamps(call) && writes.Add(1) == 1:
				stalled.Store(true)
				time.AfterFunc(time.Minute, func() { stalled.Store(false) })
				time.Sleep(40 * time.Second)

				return fmt.Errorf("written too late: %w", cluster.ErrUnreachable)
			case call.Method == "WriteLease" && stalled.Load():
				return fmt.Errorf("no leases: %w", cluster.ErrUnreachable)
			}

			return next(ctx)
		})

		r.Must(w, sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()
	})
}
