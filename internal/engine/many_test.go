// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestManyWorkersMoveSideBySide is about clusters so large, and so slow to
// answer, that all the looks before the cordons take longer than one turn waits
// for its guards.
func TestManyWorkersMoveSideBySide(t *testing.T) {
	const latency = 6 * time.Second

	for workers, together := range map[int]int{20: 19, 70: 60} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 3, Workers: workers, Seed: 41},
				Judging: []checker.Option{checker.MaxUnavailable(together)},
			}

			inCluster(t, given, func(r *rig) {
				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "StaticPods" {
						time.Sleep(latency)
					}

					return next(ctx)
				})

				begun := time.Now()
				r.Must(w, sharing(t, toLifecycle, fmt.Sprint(together)))
				r.At(toLifecycle)
				r.Once()

				calls, mutating := w.Client.Calls()
				t.Logf("it took %s, %d calls and %d changes", time.Since(begun).Round(time.Second), calls, mutating)
			})
		})
	}
}

// TestSlowMachinesHoldUpNobodyElse: the Talos API of a tenth of the workers takes its time
// for each answer. The others take as long as they do where all are quick.
func TestSlowMachinesHoldUpNobodyElse(t *testing.T) {
	slow := []string{"worker-3", "worker-13"}
	given := setup{
		Options: model.Options{ControlPlanes: 3, Workers: 20, Seed: 43},
		Judging: []checker.Option{checker.MaxUnavailable(5)},
	}

	// longest is the longest time that one of the others took.
	longest := func(latency time.Duration) (most float64) {
		inCluster(t, given, func(r *rig) {
			w := r.Worker("run-1")
			w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
				if slices.Contains(slow, call.Node) && slices.Contains([]string{"Machine", "Vitals", "Pull"}, call.Method) {
					time.Sleep(latency)
				}

				return next(ctx)
			})

			r.Must(w, sharing(t, toLifecycle, "25%"))
			r.At(toLifecycle)
			r.Once()

			for _, one := range ofRole(r.spans(), "worker") {
				if !slices.Contains(slow, one.node) {
					most = max(most, one.end-one.begin)
				}
			}
		})

		return most
	}

	const patience = 10

	if quick, beside := longest(0), longest(4*time.Second); beside > quick+patience {
		t.Errorf("one of the others took %.0f s beside slow machines, and %.0f s beside quick ones", beside, quick)
	}
}
