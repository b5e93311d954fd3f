// SPDX-License-Identifier: MPL-2.0

package harness_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestRig_FourHoursTakeAMoment wants hours of virtual time to take hardly any real time.
func TestRig_FourHoursTakeAMoment(t *testing.T) {
	const workers, settle, long = 12, 15 * time.Minute, 4 * time.Hour

	began := time.Now()

	harness.Run(t, harness.Setup{Options: model.Options{ControlPlanes: 3, Workers: workers}}, func(r *harness.Rig) {
		request := harness.To(harness.ToLifecycle)
		request.Policy.Settle = settle

		begun := time.Now()

		r.Must(r.Worker("run-1"), request)
		r.At(harness.ToLifecycle)
		r.Once()

		if took := time.Since(begun); took < long {
			t.Errorf("the upgrade took %s of virtual time, want more than %s", took, long)
		}
	})

	t.Logf("%s of virtual time and more in %s", long, time.Since(began).Round(time.Millisecond))
}

// BenchmarkUpgrade measures one upgrade of three control planes and two workers over the ports, with a judge.
func BenchmarkUpgrade(b *testing.B) {
	var virtual time.Duration

	for b.Loop() {
		// A bubble needs a *testing.T, which a benchmark does not have.
		var t testing.T

		harness.Run(&t, harness.Setup{}, func(r *harness.Rig) {
			begun := time.Now()

			r.Must(r.Worker("run-1"), harness.To(harness.ToLifecycle))

			virtual += time.Since(begun)
		})

		if t.Failed() {
			b.Fatal("the upgrade failed")
		}
	}

	b.ReportMetric(virtual.Seconds()/b.Elapsed().Seconds(), "virtual-s/s")
}
