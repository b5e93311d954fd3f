// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestUpgrade_OfAnEndpointThroughTheOthers(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")
		before := r.machine(c, cp0)

		if err := c.PullToInstall(r.Context(), cp0, nextImage); err != nil {
			r.Fatal(err)
		}

		if done, err := c.Install(r.Context(), cp0, nextImage); err != nil || done.Exit != 0 || len(done.Output) == 0 {
			r.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Reboot(r.Context(), cp0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", isDown)

		if _, err := c.Machine(r.Context(), cp0, nil, cluster.Everything); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("while it is down: %v, want only unreachable", err)
		}

		if _, err := c.Machine(r.Context(), cp1, nil, cluster.Everything); err != nil {
			r.Errorf("another node while an endpoint is down: %v", err)
		}

		r.until("cp-0", "back", isUp)

		if after := r.machine(c, cp0); after.BootID == before.BootID || after.Talos.String() != "1.13.4" || after.Schematic != schematic {
			r.Errorf("afterwards: %+v", after)
		}
	})
}

func TestUpgrade_LegacyOfAnOldNode(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.12.6"}, func(r *rig) {
		c := r.client("")

		if _, err := c.Install(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrUnsupported) {
			r.Errorf("install: %v, want it unsupported", err)
		}

		if _, err := c.InstallerIdle(r.Context(), worker0); !errors.Is(err, cluster.ErrUnsupported) {
			r.Errorf("installer: %v, want it unsupported", err)
		}

		if err := c.Pull(r.Context(), worker0, nextImage, cluster.LegacyAPI); err != nil {
			r.Fatal(err)
		}

		result, err := c.Upgrade(r.Context(), worker0, nextImage, cluster.RebootPowercycle, nil)
		if err != nil || result.Exit != 0 {
			r.Fatalf("the upgrade ended with %+v, %v", result, err)
		}

		if installs := r.log.count("worker-0", history.KindInstall); installs != 1 {
			r.Errorf("the call returned after %d installs, want it to wait for the installer", installs)
		}

		r.until("worker-0", "down", isDown)
		r.until("worker-0", "back", isUp)

		if after := r.machine(c, worker0); after.Talos.String() != "1.13.4" {
			r.Errorf("afterwards: Talos %s", after.Talos)
		}
	})
}

func TestUpgrade_MissingImageIsNamed(t *testing.T) {
	const missing = "ghcr.io/siderolabs/installer:v1.14.0"

	for _, talos := range []string{"1.12.6", "1.13.2"} {
		inBubble(t, model.Options{Talos: talos}, func(r *rig) {
			c := r.client("")
			api := r.machine(c, worker0).UpgradeAPI()

			if err := c.Pull(r.Context(), worker0, missing, api); !errors.Is(err, cluster.ErrNotFound) {
				r.Errorf("Talos %s: pull: %v, want it not found", talos, err)
			}

			if api != cluster.LegacyAPI {
				return
			}

			if _, err := c.Upgrade(r.Context(), worker0, missing, cluster.RebootDefault, nil); !errors.Is(err, cluster.ErrNotFound) {
				r.Errorf("Talos %s: upgrade: %v, want it not found", talos, err)
			}
		})
	}
}

// TestUpgrade_LegacyRefusalIsNoLostReply: the node refuses because an etcd member did not answer it in time, and
// passes that code on to us.
func TestUpgrade_LegacyRefusalIsNoLostReply(t *testing.T) {
	for name, test := range map[string]struct {
		node, says string
	}{
		"a member that is silent": {"cp-0", "is not healthy; all members must be healthy"},
		"its own etcd":            {"cp-1", "failed to create etcd client"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{Talos: "1.12.6"}, func(r *rig) {
				if name == "its own etcd" {
					r.world.SetFaults([]model.Fault{{Node: test.node, Step: model.StepBoot, Effect: model.EffectEtcdDown, Times: 1}})

					if _, err := r.world.Reboot(r.Context(), test.node, model.RebootDefault); err != nil {
						r.Fatal(err)
					}

					r.until(test.node, "down", isDown)
					r.until(test.node, "reachable", func(state model.NodeState) bool { return state.Reachable && state.Stage == model.StageRunning })
				} else {
					r.world.SetFaults([]model.Fault{{Node: test.node, Step: model.StepEtcd, Effect: model.EffectSilent}})
				}

				_, err := r.client("").Upgrade(r.Context(), cp1, nextImage, cluster.RebootDefault, nil)
				if !errors.Is(err, cluster.ErrRefused) || errors.Is(err, cluster.ErrOutcomeUnknown) || !strings.Contains(err.Error(), test.says) {
					r.Errorf("%v, want it refused and to say %q", err, test.says)
				}
			})
		})
	}
}

// TestUpgrade_InstallThatWasNotStartedIsRefused: the node could not make a container.
func TestUpgrade_InstallThatWasNotStartedIsRefused(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectNotStarted, Times: 1}})

		if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
			r.Fatal(err)
		}

		if _, err := c.Install(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "failed to create container") {
			r.Errorf("%v, want it refused and named", err)
		}

		if done, err := c.Install(r.Context(), worker0, nextImage); err != nil || done.Exit != 0 {
			r.Errorf("once more: %+v, %v", done, err)
		}
	})
}

func TestUpgrade_ImageThatWasNotPulledIsRefused(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		if _, err := r.client("").Install(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrRefused) {
			r.Errorf("%v, want it refused", err)
		}
	})
}

func TestUpgrade_DigestOfAnImageIsTheOneOfTheNode(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		want, err := r.world.PushImage(nextImage, "")
		if err != nil {
			r.Fatal(err)
		}

		if digest, err := c.ImageDigest(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("before it was pulled: %q, %v", digest, err)
		}

		if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
			r.Fatal(err)
		}

		if _, err := r.world.PushImage(nextImage, ""); err != nil {
			r.Fatal(err)
		}

		if digest, err := c.ImageDigest(r.Context(), worker0, nextImage); err != nil || digest != want {
			r.Errorf("it has %q, %v, want %s", digest, err, want)
		}
	})
}

func TestUpgrade_FailingInstallerIsAResult(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}})

		if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
			r.Fatal(err)
		}

		if done, err := c.Install(r.Context(), worker0, nextImage); err != nil || done.Exit == 0 || len(done.Output) == 0 {
			r.Errorf("%+v, %v; want an exit code and what the installer said", done, err)
		}
	})
}

// unknown fails the test unless the error leaves open what a call to a node that went silent has done.
func (r *rig) unknown(what string, err error) {
	r.Helper()

	if !errors.Is(err, cluster.ErrUnreachable) || !errors.Is(err, cluster.ErrOutcomeUnknown) {
		r.Errorf("%s: %v, want unreachable and outcome unknown", what, err)
	}
}

func TestUpgrade_LostReplyIsUnknownAndNotRepeated(t *testing.T) {
	lost := func(step model.Step) []model.Fault {
		return []model.Fault{{Node: "worker-0", Step: step, Effect: model.EffectConnectionLost, Times: 1}}
	}

	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults(lost(model.StepPull))
		r.unknown("pull", c.PullToInstall(r.Context(), worker0, nextImage))

		r.world.SetFaults(lost(model.StepInstall))

		_, err := c.Install(r.Context(), worker0, nextImage)
		r.unknown("install", err)

		if count := r.log.count("worker-0", history.KindInstall); count != 1 {
			r.Errorf("%d installs, want one", count)
		}

		r.world.SetFaults(lost(model.StepReboot))
		r.unknown("reboot", c.Reboot(r.Context(), worker0, cluster.RebootDefault))

		r.until("worker-0", "down", isDown)
		r.until("worker-0", "back", isUp)

		if after := r.machine(c, worker0); after.Talos.String() != "1.13.4" {
			r.Errorf("afterwards: Talos %s", after.Talos)
		}
	})

	inBubble(t, model.Options{Talos: "1.12.6"}, func(r *rig) {
		r.world.SetFaults(lost(model.StepLegacyUpgrade))

		_, err := r.client("").Upgrade(r.Context(), worker0, nextImage, cluster.RebootDefault, nil)
		r.unknown("legacy upgrade", err)
	})
}

// TestUpgrade_FailedInstallerBehindALegacyCallIsSeen: the call was accepted long before, and only the events of the
// node show the failure.
func TestUpgrade_FailedInstallerBehindALegacyCallIsSeen(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.12.6"}, func(r *rig) {
		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}})

		result, err := r.client("").Upgrade(r.Context(), worker0, nextImage, cluster.RebootDefault, nil)
		if err != nil || result.Exit == 0 || len(result.Output) == 0 {
			r.Errorf("got %+v, %v; want the installer's failure", result, err)
		}
	})
}

// TestUpgrade_NodeThatGoesDownSilentlyLeavesTheOutcomeOpen: its events break off before they show how the installer
// ended.
func TestUpgrade_NodeThatGoesDownSilentlyLeavesTheOutcomeOpen(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.12.6"}, func(r *rig) {
		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepPull, Effect: model.EffectUnreachable, Times: 1, For: 3 * time.Minute}})

		_, err := r.client("").Upgrade(r.Context(), worker0, nextImage, cluster.RebootDefault, nil)
		r.unknown("legacy upgrade", err)
	})
}

func TestUpgrade_BusyInstallerIsSeenAndLeftAlone(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if idle, err := c.InstallerIdle(r.Context(), worker0); err != nil || !idle {
			r.Errorf("before: idle %t, %v", idle, err)
		}

		if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
			r.Fatal(err)
		}

		// The caller gives up; the installer goes on.
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()

		if _, err := c.Install(ctx, worker0, nextImage); !errors.Is(err, cluster.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			r.Errorf("install: %v, want outcome unknown and the caller's deadline", err)
		}

		if idle, err := c.InstallerIdle(r.Context(), worker0); err != nil || idle {
			r.Errorf("meanwhile: idle %t, %v", idle, err)
		}

		if _, err := c.Install(r.Context(), worker0, nextImage); !errors.Is(err, cluster.ErrBusy) {
			r.Errorf("a second install: %v, want busy", err)
		}

		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()

		for range 60 {
			<-ticker.C

			if idle, err := c.InstallerIdle(r.Context(), worker0); err == nil && idle {
				if count := r.log.count("worker-0", history.KindInstall); count != 1 {
					r.Errorf("%d installs, want one", count)
				}

				return
			}
		}

		r.Error("the installer never ended")
	})
}

func TestUpgrade_UnreachableNodeIsNeverTakenForArmed(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable}})

		// The fault strikes at the first look at the node.
		if _, err := c.Machine(r.Context(), worker0, nil, cluster.Everything); err != nil && !errors.Is(err, cluster.ErrUnreachable) {
			r.Fatal(err)
		}

		r.until("worker-0", "unreachable", func(state model.NodeState) bool { return !state.Reachable })

		for what, call := range map[string]func() error{
			"install": func() error { _, err := c.Install(r.Context(), worker0, nextImage); return err },
			"reboot":  func() error { return c.Reboot(r.Context(), worker0, cluster.RebootDefault) },
		} {
			if err := call(); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
				r.Errorf("%s: %v, want only unreachable", what, err)
			}
		}
	})
}

func TestRollback_ReturnsToThePreviousSystem(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if err := r.client("-operator").Rollback(r.Context(), worker0); !errors.Is(err, cluster.ErrDenied) {
			r.Errorf("with too few rights: %v", err)
		}

		if err := c.Rollback(r.Context(), worker0); !errors.Is(err, cluster.ErrRefused) || !strings.Contains(err.Error(), "label does not exist") {
			r.Errorf("without a previous system: %v, want it refused", err)
		}

		if err := c.PullToInstall(r.Context(), worker0, nextImage); err != nil {
			r.Fatal(err)
		}

		if done, err := c.Install(r.Context(), worker0, nextImage); err != nil || done.Exit != 0 {
			r.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Reboot(r.Context(), worker0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("worker-0", "down", isDown)
		r.until("worker-0", "back", isUp)

		for _, step := range []struct {
			effect model.Effect
			want   []error
		}{
			{model.EffectFail, []error{cluster.ErrRefused}},
			{model.EffectConnectionLost, []error{cluster.ErrOutcomeUnknown, cluster.ErrUnreachable}},
		} {
			r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepRollback, Effect: step.effect, Times: 1}})

			err := c.Rollback(r.Context(), worker0)
			for _, want := range step.want {
				if !errors.Is(err, want) {
					r.Errorf("%s: %v, want %v", step.effect, err, want)
				}
			}

			if errors.Is(err, cluster.ErrRefused) != (step.effect == model.EffectFail) {
				r.Errorf("%s: %v", step.effect, err)
			}
		}

		r.until("worker-0", "down", isDown)

		// A node that does not answer was not told to do anything.
		if err := c.Rollback(r.Context(), worker0); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("while it is down: %v, want only unreachable", err)
		}

		r.until("worker-0", "back", isUp)

		if after := r.machine(c, worker0); after.Talos.String() != "1.13.2" {
			r.Errorf("afterwards: Talos %s", after.Talos)
		}

		if calls := r.log.calls("worker-0")["/machine.MachineService/Rollback"]; calls != 4 {
			r.Errorf("the node saw %d calls, want 4", calls)
		}
	})
}

// TestMachine_TellsWhatTheUpgradeTagNames: the entry before an install, which is the one that
// runs after a rollback, until the machine is ready.
func TestMachine_TellsWhatTheUpgradeTagNames(t *testing.T) {
	for name, test := range map[string]struct {
		options model.Options
		tag     string
	}{
		"GRUB":    {model.Options{}, "A"},
		"sd-boot": {model.Options{UKI: true}, "talos-v1.13.2.efi"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, test.options, func(r *rig) {
				c := r.client("")

				if before := r.machine(c, worker0); before.UpgradePending || before.UpgradeTag != "" {
					r.Errorf("before the install: %+v", before)
				}

				r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepBoot, Effect: model.EffectNotReady, Talos: "1.13.4"}})
				r.install(c, worker0)
				r.until("worker-0", "down", isDown)
				r.until("worker-0", "running", func(s model.NodeState) bool { return s.Reachable && s.Stage == model.StageRunning })

				if after := r.machine(c, worker0); after.Talos.String() != "1.13.4" || !after.UpgradePending || after.UpgradeTag != test.tag {
					r.Errorf("with the new system: %+v", after)
				}

				if err := c.Rollback(r.Context(), worker0); err != nil {
					r.Fatal(err)
				}

				r.until("worker-0", "down", isDown)
				r.until("worker-0", "up", func(s model.NodeState) bool { return s.Reachable })

				booting := r.machine(c, worker0)
				if booting.Talos.String() != "1.13.2" || booting.Ready || !booting.UpgradePending || booting.UpgradeTag != test.tag {
					r.Errorf("rolled back, and not ready: %+v", booting)
				}

				r.until("worker-0", "ready", isUp)

				if after := r.machine(c, worker0); after.UpgradePending || after.UpgradeTag != "" {
					r.Errorf("rolled back, and ready: %+v", after)
				}
			})
		})
	}
}

func TestRollback_OfAnEndpointThroughTheOthers(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		if err := c.PullToInstall(r.Context(), cp0, nextImage); err != nil {
			r.Fatal(err)
		}

		if done, err := c.Install(r.Context(), cp0, nextImage); err != nil || done.Exit != 0 {
			r.Fatalf("install: %+v, %v", done, err)
		}

		if err := c.Rollback(r.Context(), cp0); err != nil {
			r.Fatal(err)
		}

		time.Sleep(10 * time.Minute)

		if after := r.machine(c, cp0); after.Talos.String() != "1.13.2" || after.UpgradePending {
			r.Errorf("afterwards: %+v", after)
		}

		if view, err := c.Etcd(r.Context(), cp0, true); err != nil || view.Status.Version != "3.6.9" {
			r.Errorf("its etcd: %+v, %v", view, err)
		}
	})
}
