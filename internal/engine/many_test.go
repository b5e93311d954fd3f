// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
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
					if call.Method == "ComponentPods" {
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
