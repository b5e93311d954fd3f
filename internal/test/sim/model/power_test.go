// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// A machine that loses its power while it installs boots once, with the system that it had,
// whichever API it was asked by.
func TestPower_LostInALegacyUpgradeIsOneBoot(t *testing.T) {
	fault := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectPowerLost, Times: 1}

	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.12.2", Faults: []model.Fault{fault}}, func(r rig) {
		before := r.node("worker-0")

		if _, err := r.LegacyUpgrade(r.t.Context(), "worker-0", model.LegacyOptions{Image: factoryImage}); err != nil {
			t.Fatal(err)
		}

		r.until("worker-0", "back", time.Hour, func(n model.NodeState) bool { return n.Up && n.BootID != before.BootID })

		back := r.node("worker-0")
		if back.Talos != "1.12.2" {
			t.Errorf("it runs %s", back.Talos)
		}

		time.Sleep(10 * time.Minute)

		if now := r.node("worker-0"); now.BootID != back.BootID {
			t.Error("it has booted twice")
		}
	})
}
