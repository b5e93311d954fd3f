// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// fastClock is the engine's clock over the one of a simulation that runs fast.
type fastClock struct{ *model.ScaledClock }

func (c fastClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Real(d))
}

// TestNothingLeaks runs outside of any bubble: a bubble would hide what goes on
// after the end.
func TestNothingLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())

	const factor = 2000

	clock := model.NewScaledClock(factor)

	for name, cancelled := range map[string]bool{"to the end": false, "cancelled": true} {
		given := setup{Options: model.Options{ControlPlanes: 1, Workers: 1, Clock: clock}}
		r := newRig(t, given)
		client := r.Client("run-1")
		w := engine.New(engine.Options{Talos: client, Kubernetes: client, Removals: client, Manifests: client, Workloads: client, Run: "run-1", Clock: fastClock{clock}})

		ctx, cancel := context.WithCancel(context.Background())
		if cancelled {
			time.AfterFunc(clock.Real(2*time.Minute), cancel)
		}

		_, err := w.Upgrade(ctx, to(toLifecycle))
		cancel()
		r.Stop()

		if (err != nil) != cancelled {
			t.Errorf("%s: the upgrade ended with %v", name, err)
		}
	}
}
