// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestRebootTakesOverAnUnfinishedBoot(t *testing.T) {
	for seed := range uint64(8) {
		inWorld(t, model.Options{ControlPlanes: 3, Seed: seed}, func(r rig) {
			if _, err := r.Reboot(r.t.Context(), "cp-1", model.RebootDefault); err != nil {
				r.t.Fatal(err)
			}

			r.until("cp-1", "down", time.Minute, down)
			r.until("cp-1", "kubelet up", 5*time.Minute, func(s model.NodeState) bool { return s.Kubelet.Running })

			if _, err := r.Reboot(r.t.Context(), "cp-1", model.RebootDefault); err != nil {
				r.t.Fatal(err)
			}

			for {
				time.Sleep(100 * time.Millisecond)

				state := r.node("cp-1")
				if !state.Up {
					break
				}

				if state.Stage != model.StageRebooting {
					r.t.Fatalf("seed %d: a machine on its way down is %s", seed, state.Stage)
				}
			}

			r.until("cp-1", "ready", 5*time.Minute, ready)

			if boots := r.log.of("cp-1", history.KindBoot); len(boots) != 2 {
				r.t.Fatalf("seed %d: %d boots", seed, len(boots))
			}
		})
	}
}

func TestRebootThatFailsChangesNothing(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepReboot, Effect: model.EffectFail, Times: 1}})

		if _, err := r.Reboot(r.t.Context(), "cp-0", model.RebootDefault); err == nil {
			r.t.Fatal("no error")
		}

		time.Sleep(time.Minute)

		if state := r.node("cp-0"); !ready(state) || state.Reboots != 0 {
			r.t.Fatalf("afterwards: %+v", state)
		}
	})
}

func TestPowercycleTakesLongerThanKexec(t *testing.T) {
	took := func(mode model.RebootMode) (length time.Duration) {
		inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
			if _, err := r.Reboot(r.t.Context(), "worker-0", mode); err != nil {
				r.t.Fatal(err)
			}

			r.until("worker-0", "down", time.Minute, down)
			r.until("worker-0", "ready", 5*time.Minute, ready)

			length = r.Now()
		})

		return length
	}

	if kexec, firmware := took(model.RebootDefault), took(model.RebootPowercycle); firmware < kexec+15*time.Second {
		t.Fatalf("kexec %s, firmware %s", kexec, firmware)
	}
}

func TestRebootEndsARunningInstallerWithoutWriting(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		if _, err := r.Pull(r.t.Context(), "worker-0", factoryImage, nil); err != nil {
			r.t.Fatal(err)
		}

		time.AfterFunc(time.Second, func() {
			if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootForce); err != nil {
				r.t.Error(err)
			}
		})

		if _, err := r.Install(r.t.Context(), "worker-0", factoryImage, nil); !errors.Is(err, model.ErrConnectionLost) {
			r.t.Fatalf("install: %v", err)
		}

		if state := r.until("worker-0", "ready", 5*time.Minute, ready); state.Talos != "1.13.2" || state.Installing {
			r.t.Fatalf("afterwards: %+v", state)
		}
	})
}

func TestMachineThatIsUnreachableAfterItsBootRunsTheNewSystem(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{
			Node: "worker-0", Step: model.StepBoot, Effect: model.EffectUnreachable, Times: 1, For: 4 * time.Minute,
		}})
		r.pullAndInstall("worker-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "ready behind a silent API", 4*time.Minute, func(s model.NodeState) bool {
			return s.Up && !s.Reachable && s.Ready && s.Talos == "1.13.4"
		})
		r.until("worker-0", "reachable", 4*time.Minute, ready)
	})
}
