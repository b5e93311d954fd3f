// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestReboot_TakesOverAnUnfinishedBoot(t *testing.T) {
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

func TestReboot_ThatFailsChangesNothing(t *testing.T) {
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

func TestReboot_PowercycleTakesLongerThanKexec(t *testing.T) {
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

func TestReboot_EndsARunningInstallerWithoutWriting(t *testing.T) {
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

func TestReboot_UnreachableMachineRunsTheNewSystem(t *testing.T) {
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

// causes returns why a machine booted, each time with the version.
func (r rig) causes(name string) []string {
	var list []string
	for _, event := range r.log.of(name, history.KindBoot) {
		list = append(list, event.Detail["cause"]+" "+event.Detail["talos"])
	}

	return list
}

// wantCauses compares the causes of the boots.
func (r rig) wantCauses(name string, want ...string) {
	r.t.Helper()

	if got := r.causes(name); !slices.Equal(got, want) {
		r.t.Errorf("%s booted because of %q, want %q", name, got, want)
	}
}

func TestRollback_ReturnsToThePreviousSystem(t *testing.T) {
	for name, upgrade := range map[string]func(rig){
		"installed beside the running system": func(r rig) {
			r.pullAndInstall("worker-0", factoryImage)
			r.reboot("worker-0")
		},
		"by the legacy API": func(r rig) {
			r.SetKubernetes(&face{})

			if _, err := r.LegacyUpgrade(r.t.Context(), "worker-0", model.LegacyOptions{Image: factoryImage}); err != nil {
				r.t.Fatal(err)
			}

			r.until("worker-0", "down", 5*time.Minute, down)
			r.until("worker-0", "ready", 5*time.Minute, ready)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
				upgrade(r)

				if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
					r.t.Fatal(err)
				}

				r.until("worker-0", "down", time.Minute, down)

				if state := r.until("worker-0", "ready", 5*time.Minute, ready); state.Talos != "1.13.2" {
					r.t.Errorf("afterwards it runs %s", state.Talos)
				}

				r.wantCauses("worker-0", "upgrade 1.13.4", "rollback 1.13.2")

				// A reboot long after that has the cause reboot.
				r.reboot("worker-0")
				r.wantCauses("worker-0", "upgrade 1.13.4", "rollback 1.13.2", "reboot 1.13.2")
			})
		})
	}
}

func TestRollback_WithoutAPreviousSystemIsRefused(t *testing.T) {
	for text, secure := range map[string]bool{`cannot rollback to "B", label does not exist`: false, "previous UKI not found": true} {
		inWorld(t, model.Options{ControlPlanes: 1, SecureBoot: secure}, func(r rig) {
			if err := r.Rollback(r.t.Context(), "cp-0"); !errors.Is(err, model.ErrRefused) || err.Error() != text {
				r.t.Errorf("%v, want %q", err, text)
			}

			time.Sleep(time.Minute)

			if state := r.node("cp-0"); !ready(state) || state.Reboots != 0 {
				r.t.Errorf("afterwards: %+v", state)
			}
		})
	}
}

func TestRollback_DoneTwiceIsUndone(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.pullAndInstall("worker-0", factoryImage)
		r.reboot("worker-0")

		for range 2 {
			if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
				r.t.Fatal(err)
			}
		}

		r.until("worker-0", "down", time.Minute, down)

		if state := r.until("worker-0", "ready", 5*time.Minute, ready); state.Talos != "1.13.4" {
			r.t.Errorf("afterwards it runs %s", state.Talos)
		}

		r.wantCauses("worker-0", "upgrade 1.13.4", "reboot 1.13.4")
	})
}

// TestRollback_DuringARebootIsWhatThatBoots, although the rollback starts no reboot itself.
func TestRollback_DuringARebootIsWhatThatBoots(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.pullAndInstall("worker-0", factoryImage)
		r.reboot("worker-0")

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
			r.t.Fatal(err)
		}

		r.wantLog("worker-0", "machined", []string{"reboot sequence: start"}, []string{"locked"})
		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "ready", 5*time.Minute, ready)
		time.Sleep(10 * time.Minute)
		r.wantCauses("worker-0", "upgrade 1.13.4", "rollback 1.13.2")
	})
}

func TestRollback_Faults(t *testing.T) {
	for effect, want := range map[model.Effect]struct {
		err   error
		text  string
		boots []string
	}{
		model.EffectFail:           {model.ErrRefused, "previous UKI not found", []string{"upgrade 1.13.4", "reboot 1.13.4"}},
		model.EffectConnectionLost: {model.ErrConnectionLost, "EOF", []string{"upgrade 1.13.4", "rollback 1.13.2"}},
	} {
		t.Run(string(effect), func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
				r.pullAndInstall("worker-0", factoryImage)
				r.reboot("worker-0")
				r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepRollback, Effect: effect, Times: 1}})

				err := r.Rollback(r.t.Context(), "worker-0")
				if !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
					r.t.Errorf("%v, want %v with %q", err, want.err, want.text)
				}

				// A call that fails without an effect does not reboot by itself: somebody has to.
				if effect == model.EffectFail {
					time.Sleep(time.Minute)

					if state := r.node("worker-0"); !ready(state) || state.Reboots != 1 {
						r.t.Fatalf("after a refusal: %+v", state)
					}

					r.reboot("worker-0")
				} else {
					r.until("worker-0", "down", time.Minute, down)
					r.until("worker-0", "ready", 5*time.Minute, ready)
				}

				r.wantCauses("worker-0", want.boots...)
			})
		})
	}
}

// TestRollback_OfASystemThatWasNeverConfirmed: the META tag stays until the machine is ready, and names the entry
// before the upgrade, which runs after the rollback.
func TestRollback_OfASystemThatWasNeverConfirmed(t *testing.T) {
	for name, test := range map[string]struct {
		options model.Options
		tag     string
	}{
		"GRUB":    {model.Options{}, "A"},
		"sd-boot": {model.Options{UKI: true}, "talos-v1.13.2.efi"},
	} {
		t.Run(name, func(t *testing.T) { rollBackUnconfirmed(t, test.options, test.tag) })
	}
}

func rollBackUnconfirmed(t *testing.T, options model.Options, tag string) {
	t.Helper()

	options.ControlPlanes, options.Workers = 1, 1

	inWorld(t, options, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Talos: "v1.13.4"}})
		r.pullAndInstall("worker-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "running", 5*time.Minute, func(s model.NodeState) bool { return s.Stage == model.StageRunning })
		time.Sleep(10 * time.Minute)

		if state := r.node("worker-0"); state.Ready || !state.UpgradePending || state.UpgradeTag != tag {
			r.t.Fatalf("with a system that does not work: %+v", state)
		}

		if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "up with the old system", 5*time.Minute, func(s model.NodeState) bool { return s.Up && s.Talos == "1.13.2" })

		if state := r.node("worker-0"); !state.UpgradePending || state.UpgradeTag != tag {
			r.t.Errorf("before the old system is ready: %t, %q, want the tag %q", state.UpgradePending, state.UpgradeTag, tag)
		}

		r.until("worker-0", "ready", 5*time.Minute, ready)
		r.wantCauses("worker-0", "upgrade 1.13.4", "rollback 1.13.2")

		if state := r.node("worker-0"); state.UpgradePending || state.UpgradeTag != "" {
			r.t.Errorf("once it is ready: %t, %q", state.UpgradePending, state.UpgradeTag)
		}
	})
}

// TestRollback_MayFallForwardBeforeItIsReady: if machined fails while the META tag is set, the other system boots,
// which after a rollback is the newer one.
func TestRollback_MayFallForwardBeforeItIsReady(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Talos: "1.13.2", Times: 1}})
		r.pullAndInstall("worker-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "up with the new system", 5*time.Minute, func(s model.NodeState) bool { return s.Up && s.Talos == "1.13.4" })

		if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "ready", 10*time.Minute, ready)
		r.wantCauses("worker-0", "upgrade 1.13.4", "rollback 1.13.2", "fallback 1.13.4")
	})
}

// TestInstall_TagNamesTheEntryBefore: the entries of sd-boot are files, which get a number if one of the same
// version exists.
func TestInstall_TagNamesTheEntryBefore(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, UKI: true}, func(r rig) {
		for _, want := range []string{"talos-v1.13.2.efi", "Talos-v1.13.4.efi", "Talos-v1.13.4~1.efi", "Talos-v1.13.4~2.efi"} {
			r.pullAndInstall("worker-0", factoryImage)

			if tag := r.node("worker-0").UpgradeTag; tag != want {
				r.t.Errorf("the tag is %q, want %q", tag, want)
			}

			r.reboot("worker-0")
		}
	})
}

func TestRollback_OfASystemThatHasNotBootedYet(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.pullAndInstall("worker-0", factoryImage)

		if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
			r.t.Fatal(err)
		}

		if state := r.node("worker-0"); state.Armed || state.Next != "A" {
			r.t.Errorf("at once: %+v", state)
		}

		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "ready", 5*time.Minute, ready)
		r.wantCauses("worker-0", "rollback 1.13.2")
	})
}
