// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// A machine that loses its power during an install boots once, with the system that it had, whichever API started
// the install.
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

// What a machine unpacked onto its disk just before it lost its power during an install is damaged, however often
// it is removed and downloaded again. What it downloads into memory is not.
func TestPower_LostLeavesTheDiskWithoutTheInstaller(t *testing.T) {
	fault := model.Fault{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectPowerLost, Times: 1}

	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: []model.Fault{fault}}, func(r rig) {
		before := r.node("worker-0")

		if _, err := r.Pull(r.t.Context(), "worker-0", factoryImage, nil); err != nil {
			t.Fatal(err)
		}

		if _, err := r.Install(r.t.Context(), "worker-0", factoryImage, nil); !errors.Is(err, model.ErrConnectionLost) {
			t.Fatalf("the install ended with %v", err)
		}

		r.until("worker-0", "back", time.Hour, func(n model.NodeState) bool { return n.Up && n.BootID != before.BootID })

		list, err := r.Images(r.t.Context(), "worker-0", model.NamespaceSystem)
		if err != nil {
			t.Fatal(err)
		}

		for _, image := range list {
			if err := r.RemoveImage(r.t.Context(), "worker-0", image.Name, model.NamespaceSystem); err != nil {
				t.Fatal(err)
			}
		}

		for _, store := range []struct {
			namespace model.ImageNamespace
			want      error
		}{{model.NamespaceSystem, model.ErrImageDamaged}, {model.NamespaceOwn, nil}} {
			if _, err := r.PullInto(r.t.Context(), "worker-0", factoryImage, store.namespace, nil); err != nil {
				t.Fatal(err)
			}

			if exit, err := r.InstallFrom(r.t.Context(), "worker-0", factoryImage, store.namespace, nil); !errors.Is(err, store.want) || exit != 0 {
				t.Errorf("the install from %s ended with %d, %v; want %v", store.namespace, exit, err, store.want)
			}
		}
	})
}
