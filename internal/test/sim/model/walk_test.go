// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// TestMachineWalksThroughAllMinors is about a machine that is brought from 1.10
// to 1.15 minor by minor, by the API that its version has.
func TestMachineWalksThroughAllMinors(t *testing.T) {
	const factory = "factory.talos.dev/metal-installer/" + model.EmptySchematic

	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.10.7", Kubernetes: "1.33.4"}, func(r rig) {
		for _, image := range []string{
			"ghcr.io/siderolabs/installer:v1.11.5", "ghcr.io/siderolabs/installer:v1.12.6", "ghcr.io/siderolabs/installer:v1.13.4",
			factory + ":v1.14.1", factory + ":v1.15.0",
		} {
			before := r.node("worker-0")

			if model.AtLeast(before.Talos, 1, 13) {
				r.pullAndInstall("worker-0", image)
				r.reboot("worker-0")
			} else {
				r.legacy("worker-0", model.LegacyOptions{Image: image})
				r.until("worker-0", "down", 3*time.Minute, down)
				r.until("worker-0", "ready", 5*time.Minute, ready)
			}

			after := r.node("worker-0")
			if after.Image != image || after.BootID == before.BootID || after.Kubelet.Version != "1.33.4" {
				t.Fatalf("after %s: %+v", image, after)
			}
		}

		if state := r.node("worker-0"); state.Talos != "1.15.0" || state.Installs != 5 || state.Reboots != 5 {
			t.Errorf("in the end: %+v", state)
		}
	})
}
