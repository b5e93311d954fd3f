// SPDX-License-Identifier: MPL-2.0

package wire_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestSilentMachineLetsCallersWait: as a proxy does that gets no answer to its dialling.
// Who calls after that is refused at once, until it tries again.
func TestSilentMachineLetsCallersWait(t *testing.T) {
	off := model.Fault{Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable}

	inBubble(t, model.Options{ControlPlanes: 1, Workers: 1, Silent: true, Faults: []model.Fault{off}}, func(r *rig) {
		const worker = "10.5.0.3"

		c := r.client("")

		// The first question is what silences it.
		_, _ = r.version(c, worker)

		for _, want := range []time.Duration{20 * time.Second, 0} {
			begun := time.Now()

			_, err := r.version(c, worker)
			r.wantCode("a silent machine", err, codes.Unavailable, "dial tcp 10.5.0.3:50000: i/o timeout")

			if took := time.Since(begun).Round(time.Second); took != want {
				r.Errorf("it took %s, want %s", took, want)
			}
		}

		r.world.SetFaults(nil)
		time.Sleep(time.Minute)

		if version, err := r.version(c, worker); err != nil || version != "v1.13.2" {
			r.Errorf("when it answers again: %q, %v", version, err)
		}
	})
}

// TestSilentEndpointIsDialledUntilTheCallerGivesUp: nothing refuses the connection.
func TestSilentEndpointIsDialledUntilTheCallerGivesUp(t *testing.T) {
	off := model.Fault{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}

	inBubble(t, model.Options{ControlPlanes: 1, Silent: true, Faults: []model.Fault{off}}, func(r *rig) {
		c := r.client("")

		if err := c.Reboot(r.at("10.5.0.2")); err != nil {
			r.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		begun := time.Now()

		_, err := c.Version(r.within(7 * time.Second))
		r.wantCode("a machine that is off", err, codes.DeadlineExceeded, "")

		if took := time.Since(begun); took != 7*time.Second {
			r.Errorf("it took %s", took)
		}
	})
}
