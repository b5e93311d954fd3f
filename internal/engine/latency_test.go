// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestLatency_ATurnWaitsForFewAnswers: machines that take long to answer make a roll of a hundred
// nodes longer by what each turn asks one after the other, and by no more. With answers of 20 s, no
// look is ever younger than that since its first question.
func TestLatency_ATurnWaitsForFewAnswers(t *testing.T) {
	t.Parallel()

	const (
		controlPlanes, workers, together = 5, 95, 9
		// turns are those of the control planes, and of the workers by as many as move together.
		turns = controlPlanes + (workers+together-1)/together
		// answers are those that a turn waits for: 7.5 with answers of 2 s and 7.8 with those of 20 s.
		answers = 8
	)

	// roll is how long the roll takes, and how often machines were asked.
	roll := func(latency time.Duration) (took time.Duration, asked int) {
		given := setup{Options: model.Options{ControlPlanes: controlPlanes, Workers: workers, Seed: 67}, Judging: []checker.Option{checker.MaxUnavailable(together)}}

		inCluster(t, given, func(r *rig) {
			w := r.Worker("run-1")
			w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
				if call.Method == "Machine" && latency > 0 {
					if err := engine.RealClock().Sleep(ctx, latency); err != nil {
						return err
					}
				}

				return next(ctx)
			})

			r.Must(w, sharing(t, toLifecycle, "10%"))
			took = r.World().Now()
			asked, _ = w.Client.Calls()
			r.At(toLifecycle)
			r.Once()
		})

		return took, asked
	}

	quick, asked := roll(0)

	for _, latency := range []time.Duration{2 * time.Second, 20 * time.Second} {
		slow, askedSlowly := roll(latency)
		waited := (slow - quick).Seconds() / (turns * latency.Seconds())
		t.Logf("with answers of %s: %s instead of %s, %.1f answers a turn, %d calls instead of %d", latency, slow.Round(time.Second), quick.Round(time.Second), waited, askedSlowly, asked)

		if waited > answers {
			t.Errorf("with answers of %s, a turn waits for %.1f of them, want %d at most", latency, waited, answers)
		}

		if askedSlowly > asked {
			t.Errorf("with answers of %s, %d calls are made, and %d where they take no time", latency, askedSlowly, asked)
		}
	}
}
