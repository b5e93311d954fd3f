// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// besideOneThatIsOff upgrades everything but worker-1, which is held and off, and
// returns how long that took and how often worker-1 was asked.
func besideOneThatIsOff(t *testing.T, workers, together int, silent bool) (length time.Duration, asked int64) {
	t.Helper()

	given := setup{
		Options: model.Options{
			ControlPlanes: 3, Workers: workers, Seed: 3, Silent: silent,
			Faults: []model.Fault{{Node: "worker-1", Step: model.StepObserve, Effect: model.EffectUnreachable}},
		},
		Judging: []checker.Option{checker.Held("worker-1"), checker.MaxUnavailable(together)},
	}

	inCluster(t, given, func(r *rig) {
		request := to(toLifecycle)
		request.Policy.Hold = map[string]bool{"worker-1": true}
		share, err := cluster.ParseShare(strconv.Itoa(together))
		if err != nil {
			t.Fatal(err)
		}

		request.Policy.MaxUnavailable = share

		var count atomic.Int64

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Node == "worker-1" {
				count.Add(1)
			}

			return next(ctx)
		})

		begun := r.World().Now()

		if err := w.Apply(context.Background(), request); err != nil {
			t.Fatalf("silent %t: %v\n%s", silent, err, r.Judge.Text())
		}

		length, asked = r.World().Now()-begun, count.Load()

		r.Sound()

		for _, state := range r.World().Nodes() {
			if state.Name != "worker-1" && (state.Talos != toLifecycle || state.Installs != 1) {
				t.Errorf("%s runs %s after %d installs", state.Name, state.Talos, state.Installs)
			}
		}
	})

	return length, asked
}

// TestSilentMachineCostsEachLookOneTimeout: a machine that is off refuses nothing, and
// whoever asks it waits. All others are asked meanwhile, and nothing is asked for more
// often because of it.
func TestSilentMachineCostsEachLookOneTimeout(t *testing.T) {
	const timeout = 10 * time.Second

	for name, test := range map[string]struct{ workers, together int }{
		"one by one":  {2, 1},
		"in parallel": {6, 3},
	} {
		t.Run(name, func(t *testing.T) {
			refusing, often := besideOneThatIsOff(t, test.workers, test.together, false)
			silent, asked := besideOneThatIsOff(t, test.workers, test.together, true)

			t.Logf("refusing: %s and %d questions, silent: %s and %d", refusing, often, silent, asked)

			if most := refusing + time.Duration(often)*timeout; silent <= refusing || silent > most || asked > often {
				t.Errorf("the upgrade took %s with %d questions to a machine that is silent, and %s with %d to one that refuses", silent, asked, refusing, often)
			}
		})
	}
}

// TestSilentMachineStopsTheRunInItsTime: one that does not come back uses up its own
// time, and not that of the run.
func TestSilentMachineStopsTheRunInItsTime(t *testing.T) {
	const limit = 30 * time.Minute

	for _, node := range []string{"worker-0", "cp-0"} {
		t.Run(node, func(t *testing.T) {
			off := model.Fault{Node: node, Step: model.StepBoot, Effect: model.EffectNeverReturns}

			inCluster(t, setup{Options: model.Options{Silent: true, Faults: []model.Fault{off}}}, func(r *rig) {
				request := to(toLifecycle)
				request.Policy.NodeTimeout = limit

				begun := r.World().Now()
				failed := failure(t, r.Worker("run-1").Apply(context.Background(), request), engine.ErrNeverReturned, node)

				// Before a control plane the workers had their turns.
				if took := r.World().Now() - begun; took > limit+15*time.Minute {
					t.Errorf("it took %s", took)
				}

				if !strings.Contains(failed.Seen, node+" did not come back online") {
					t.Error(failed)
				}

				r.Sound()
				r.World().SetFaults(nil)
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}
