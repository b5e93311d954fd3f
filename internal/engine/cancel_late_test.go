// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestCancelIsHeardAfterAFailureToo: the Kubernetes API hangs while a run that
// failed looks at the cluster for the last time.
func TestCancelIsHeardAfterAFailureToo(t *testing.T) {
	given := setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}}}}

	inCluster(t, given, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		var failed, hung atomic.Bool

		cancelled := time.Time{}

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Install" {
				failed.Store(true)

				return next(ctx)
			}

			if !failed.Load() || call.Method != "Nodes" && call.Method != "WriteLease" {
				return next(ctx)
			}

			if !hung.Swap(true) {
				cancelled = time.Now().Add(2 * time.Second)
				time.AfterFunc(2*time.Second, cancel)
			}

			<-ctx.Done()

			return context.Cause(ctx)
		})

		if err := w.Apply(ctx, to(toLifecycle)); err == nil {
			t.Fatal("the run succeeded")
		}

		if !hung.Load() || ctx.Err() == nil {
			t.Fatal("it was not cancelled after its failure")
		}

		if took := time.Since(cancelled); took > cancelMost {
			t.Errorf("it took %s to return", took)
		}
	})
}

// TestCancelInTheRecordOfAnIntentLeavesNothing: the node was never asked.
func TestCancelInTheRecordOfAnIntentLeavesNothing(t *testing.T) {
	for name, from := range map[string]string{"lifecycle": fromLifecycle, "legacy": fromLegacy} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: from}}, func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "WriteJournal" {
						return next(ctx)
					}

					err := next(ctx)

					for _, entry := range r.Journal().Entries {
						if entry.Phase == cluster.PhaseIntent {
							cancel()
						}
					}

					return err
				})

				if err := w.Apply(ctx, to(toLifecycle)); err == nil {
					t.Fatal("the run succeeded")
				}

				r.Sound()
				r.leftClean()

				if len(r.Journal().Entries) > 0 || len(r.Judge.Of(history.KindInstall)) > 0 {
					t.Errorf("the journal holds %+v", r.Journal().Entries)
				}

				if w.FailedNodes() != "" {
					t.Errorf("failed nodes are %q", w.FailedNodes())
				}

				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}
