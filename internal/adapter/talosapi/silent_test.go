// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestSilentNodeCostsOneTimeout: it refuses nothing, and a question is given up. What
// would have changed it is tried through each endpoint, for as long as that dials, and has
// certainly not reached it.
func TestSilentNodeCostsOneTimeout(t *testing.T) {
	inBubble(t, model.Options{Silent: true}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable}})

		// It falls silent with the first question.
		for _, test := range []struct {
			what string
			most time.Duration
			call func() error
		}{
			{"observe", 11 * time.Second, func() error { _, err := c.Machine(r.Context(), worker0, nil); return err }},
			{"vitals", 11 * time.Second, func() error { _, err := c.Vitals(r.Context(), worker0); return err }},
			{"install", 61 * time.Second, func() error { _, err := c.Install(r.Context(), worker0, nextImage); return err }},
			{"reboot", 61 * time.Second, func() error { return c.Reboot(r.Context(), worker0, cluster.RebootDefault) }},
		} {
			// What an endpoint tried before does not help.
			time.Sleep(time.Minute)

			begun := time.Now()
			err := test.call()

			if took := time.Since(begun); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) || took > test.most {
				r.Errorf("%s: %v after %s, want it unreachable within %s", test.what, err, took, test.most)
			}
		}
	})
}

// TestSilentEndpointIsPassedOver: the others answer, and are asked first from then on.
func TestSilentEndpointIsPassedOver(t *testing.T) {
	inBubble(t, model.Options{Silent: true}, func(r *rig) {
		r.world.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}})

		if err := r.client("").Reboot(r.Context(), cp0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", isDown)

		c := r.client("")

		for number, most := range []time.Duration{11 * time.Second, time.Second, time.Second} {
			begun := time.Now()

			if _, err := c.Machine(r.Context(), worker0, nil); err != nil || time.Since(begun) > most {
				r.Errorf("look %d: %v after %s, want it within %s", number+1, err, time.Since(begun), most)
			}
		}
	})
}
