// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestInstall_UpgradeByPullInstallAndReboot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Schematic: schematic}, func(r rig) {
		before := r.node("worker-0")
		r.pullAndInstall("worker-0", factoryImage)

		armed := r.node("worker-0")
		if armed.Talos != "1.13.2" || armed.BootID != before.BootID || !armed.Armed || armed.Next != "B" {
			r.t.Fatalf("an installation changes what runs: %+v", armed)
		}

		after := r.reboot("worker-0")
		if after.Talos != "1.13.4" || after.Schematic != schematic || after.BootID == before.BootID || after.Booted != "B" || after.Armed {
			r.t.Fatalf("after the reboot: %+v", after)
		}

		if after.Installs != 1 || after.Reboots != 1 {
			r.t.Fatalf("installs %d, reboots %d", after.Installs, after.Reboots)
		}

		boots := r.log.of("worker-0", history.KindBoot)
		if len(boots) != 1 || boots[0].Detail["cause"] != "upgrade" || boots[0].Detail["fallback"] != "false" {
			r.t.Fatalf("boots: %+v", boots)
		}

		if took := r.Now(); took < 100*time.Second || took > 5*time.Minute {
			r.t.Fatalf("took %s", took)
		}
	})
}

func TestInstall_ImageIsCachedForAnHour(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		pull := func() time.Duration {
			start := r.Now()
			if _, err := r.Pull(r.t.Context(), "worker-0", factoryImage, nil); err != nil {
				r.t.Fatal(err)
			}

			return r.Now() - start
		}

		first, second := pull(), pull()
		time.Sleep(61 * time.Minute)

		_, err := r.Install(r.t.Context(), "worker-0", factoryImage, nil)
		third := pull()

		if first < 30*time.Second || second > 2*time.Second || third < 30*time.Second {
			r.t.Fatalf("pulls took %s, %s and, after an hour, %s", first, second, third)
		}

		if !errors.Is(err, model.ErrImageMissing) {
			r.t.Fatalf("install of an image that was dropped: %v", err)
		}
	})
}

func TestInstall_RefusesHostsOutsideItsRange(t *testing.T) {
	for _, test := range []struct {
		host, image, text string
		exit              int
	}{
		{"1.10.3", factoryImage, "host version 1.10.3 is too old to upgrade to Talos 1.13.4", 1},
		{"1.15.0", factoryImage, "host version 1.15.0 is too new to downgrade to Talos 1.13.4", 1},
		{"1.11.0", strings.Replace(factoryImage, "1.13.4", "1.14.1", 1), "host version 1.11.0 is too old", 4},
	} {
		inWorld(t, model.Options{ControlPlanes: 1, Talos: test.host}, func(r rig) {
			if _, err := r.Pull(r.t.Context(), "cp-0", test.image, nil); err != nil {
				r.t.Fatal(err)
			}

			var output strings.Builder

			exit, err := r.Install(r.t.Context(), "cp-0", test.image, func(line string) { output.WriteString(line + "\n") })
			if err != nil || exit != test.exit || !strings.Contains(output.String(), test.text) {
				r.t.Fatalf("host %s: exit %d, %v, output %q", test.host, exit, err, output.String())
			}

			if r.node("cp-0").Armed {
				r.t.Fatal("a refusal wrote a slot")
			}
		})
	}
}

func TestInstall_GenericLosesTheSchematicAndIsGoneFrom114(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Schematic: schematic}, func(r rig) {
		r.pullAndInstall("worker-0", "ghcr.io/siderolabs/installer:v1.13.4")

		if after := r.reboot("worker-0"); after.Schematic != "" || after.Platform != "metal" {
			r.t.Fatalf("schematic %q, platform %q", after.Schematic, after.Platform)
		}

		_, err := r.Pull(r.t.Context(), "worker-0", "ghcr.io/siderolabs/installer:v1.14.1", nil)
		if !errors.Is(err, model.ErrImageNotFound) {
			r.t.Fatalf("pull of an image that was never published: %v", err)
		}
	})
}

// TestInstall_UKIBringsItsPlatform: if the bootloader takes the kernel arguments from the UKI, the machine runs on
// the platform of the image; if it has its own, the platform stays.
func TestInstall_UKIBringsItsPlatform(t *testing.T) {
	const generic, ownBuild = "ghcr.io/siderolabs/installer", "registry.example.com/aws-installer"

	for name, test := range map[string]struct {
		options     model.Options
		image, want string
	}{
		"GRUB":                     {model.Options{}, generic + ":v1.13.4", "aws"},
		"a UKI":                    {model.Options{UKI: true}, generic + ":v1.13.4", "metal"},
		"GRUB that reads the UKI":  {model.Options{GrubUseUKICmdline: true}, generic + ":v1.13.4", "metal"},
		"documents":                {model.Options{Talos: "1.14.0", Documents: true}, factoryImage[:len(factoryImage)-len("1.13.4")] + "1.14.1", "metal"},
		"a UKI of a factory":       {model.Options{UKI: true}, factoryImage, "metal"},
		"a UKI of the platform":    {model.Options{UKI: true}, "factory.talos.dev/aws-installer/" + schematic + ":v1.13.4", "aws"},
		"a UKI of somebody's own":  {model.Options{UKI: true}, ownBuild + ":v1.13.4", "aws"},
		"no UKI in the image":      {model.Options{Talos: "1.8.4", UKI: true}, generic + ":v1.9.5", "aws"},
		"always with secure boot":  {model.Options{Talos: "1.8.4", SecureBoot: true}, "factory.talos.dev/installer-secureboot/" + schematic + ":v1.9.5", "metal"},
		"the first line with UKIs": {model.Options{Talos: "1.9.5", UKI: true}, generic + ":v1.10.0", "metal"},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.ControlPlanes, test.options.Workers, test.options.Platform = 1, 1, "aws"
			inWorld(t, test.options, func(r rig) {
				if r.node("worker-0").Platform != "aws" {
					r.t.Fatalf("it begins on platform %q", r.node("worker-0").Platform)
				}

				r.pullAndInstall("worker-0", test.image)

				if after := r.reboot("worker-0"); after.Platform != test.want {
					r.t.Fatalf("platform %q, want %q", after.Platform, test.want)
				}
			})
		})
	}
}

func TestInstall_RunsOnWhenItsCallerGoesAway(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		if _, err := r.Pull(r.t.Context(), "cp-0", factoryImage, nil); err != nil {
			r.t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()

		if _, err := r.Install(ctx, "cp-0", factoryImage, nil); !errors.Is(err, context.DeadlineExceeded) {
			r.t.Fatalf("install: %v", err)
		}

		if _, err := r.Install(r.t.Context(), "cp-0", "", nil); !errors.Is(err, model.ErrInstallInProgress) {
			r.t.Fatalf("second install meanwhile: %v", err)
		}

		r.until("cp-0", "armed", time.Minute, func(s model.NodeState) bool { return s.Armed && !s.Installing })

		if _, err := r.Install(r.t.Context(), "cp-0", "", nil); !errors.Is(err, model.ErrImageRequired) {
			r.t.Fatalf("question with an empty image afterwards: %v", err)
		}
	})
}

func TestInstall_SecondWithoutRebootDestroysTheFallback(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}})
		r.pullAndInstall("worker-0", factoryImage)
		r.pullAndInstall("worker-0", factoryImage)

		state := r.node("worker-0")
		if state.Slots[0].Talos != "1.13.4" || state.Slots[1].Talos != "1.13.4" {
			r.t.Fatalf("the system that ran is still there: %+v", state.Slots)
		}

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "dead", 5*time.Minute, func(s model.NodeState) bool { return s.Dead })
	})
}

func TestInstall_FallbackBootsTheOldSystemAndSaysSo(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}})

		before := r.node("worker-0")
		r.pullAndInstall("worker-0", factoryImage)

		after := r.reboot("worker-0")
		if after.Talos != "1.13.2" || after.BootID == before.BootID || after.Booted != "A" || after.UpgradePending {
			r.t.Fatalf("after the fallback: %+v", after)
		}

		boots := r.log.of("worker-0", history.KindBoot, history.KindDown)
		if len(boots) != 4 || boots[1].Detail["talos"] != "1.13.4" || boots[2].Detail["by"] != "machine" ||
			boots[3].Detail["fallback"] != "true" || boots[3].Detail["boot_id"] == boots[1].Detail["boot_id"] {
			r.t.Fatalf("boots: %+v", boots)
		}

		r.pullAndInstall("worker-0", factoryImage)

		if again := r.reboot("worker-0"); again.Talos != "1.13.4" {
			r.t.Fatalf("second try: %+v", again)
		}
	})
}

func TestInstall_MachineThatNeverReturnsIsRepairedByANewScript(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNeverReturns, Times: 1}})
		r.pullAndInstall("worker-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootPowercycle); err != nil {
			r.t.Fatal(err)
		}

		time.Sleep(45 * time.Minute)

		if state := r.node("worker-0"); state.Up || !state.Dead {
			r.t.Fatalf("after 45 minutes: %+v", state)
		}

		if len(r.Members()) != 1 {
			r.t.Fatal("discovery still lists a machine that was silent for 45 minutes")
		}

		r.SetFaults(nil)

		if state := r.until("worker-0", "ready", 5*time.Minute, ready); state.Talos != "1.13.4" {
			r.t.Fatalf("after the repair: %+v", state)
		}
	})
}

func TestInstall_RollbackBootsTheOtherSlot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		if err := r.Rollback(r.t.Context(), "worker-0"); !errors.Is(err, model.ErrRefused) {
			r.t.Fatalf("rollback of a machine with one system: %v", err)
		}

		r.pullAndInstall("worker-0", factoryImage)
		r.reboot("worker-0")

		if err := r.Rollback(r.t.Context(), "worker-0"); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "down", time.Minute, down)

		if state := r.until("worker-0", "ready", 5*time.Minute, ready); state.Talos != "1.13.2" {
			r.t.Fatalf("after the rollback: %+v", state)
		}
	})
}

func TestInstall_UnpinnedComponentsFollowTalosAtBoot(t *testing.T) {
	for _, test := range []struct {
		unpinned bool
		want     string
	}{{false, "1.34.2"}, {true, "1.36.0"}} {
		inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Kubernetes: "1.34.2", Unpinned: test.unpinned}, func(r rig) {
			if got := r.node("worker-0").Kubelet.Version; got != "1.34.2" {
				r.t.Fatalf("before: %s", got)
			}

			if got := r.reboot("worker-0").Kubelet.Version; got != test.want {
				r.t.Fatalf("unpinned %t: got %s, want %s", test.unpinned, got, test.want)
			}
		})
	}
}

func TestInstall_SecureBootMachineRefusesAnUnsignedImage(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, SecureBoot: true}, func(r rig) {
		r.pullAndInstall("worker-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "dead", 5*time.Minute, func(s model.NodeState) bool { return s.Dead })
	})
}

func TestInstall_SameSeedSameHistory(t *testing.T) {
	run := func(seed uint64) string {
		var text string

		inWorld(t, model.Options{ControlPlanes: 3, Workers: 2, Seed: seed}, func(r rig) {
			for _, name := range []string{"worker-0", "cp-0"} {
				r.pullAndInstall(name, factoryImage)
				r.reboot(name)
			}

			synctest.Wait()

			text = r.log.text()
		})

		return text
	}

	if first, second := run(7), run(7); first != second {
		t.Fatalf("one seed, two histories:\n%s\n---\n%s", first, second)
	}

	if run(7) == run(8) {
		t.Fatal("two seeds, one history")
	}
}
