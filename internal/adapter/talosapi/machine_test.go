// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestMachine_ReadsEverythingAnUpgradeNeeds(t *testing.T) {
	for _, talos := range []string{"1.11.5", "1.12.6", "1.13.2", "1.14.0"} {
		t.Run(talos, func(t *testing.T) {
			inBubble(t, model.Options{Talos: talos, SecureBoot: true}, func(r *rig) {
				state, err := r.world.Node("cp-1")
				if err != nil {
					r.Fatal(err)
				}

				got := r.machine(r.client(""), cp1)

				if got.Address != cp1 || got.NodeName != "cp-1" || got.Role != cluster.ControlPlane || got.Talos.String() != talos ||
					got.Schematic != schematic || got.Platform != "metal" || !got.SecureBoot || !got.Settled() || got.UpgradePending {
					r.Errorf("observed %+v", got)
				}

				if got.UUID != state.UUID || got.BootID != state.BootID || got.UUID == "" || got.BootID == "" {
					r.Errorf("UUID %q and boot ID %q, want %q and %q", got.UUID, got.BootID, state.UUID, state.BootID)
				}

				if got.MachineID != state.MachineID || len(got.MachineID) != 32 {
					r.Errorf("machine ID %q, want %q", got.MachineID, state.MachineID)
				}

				if got.Config == nil || got.Config.InstallImage == "" || len(got.Config.Images) != len(cluster.Components(cluster.ControlPlane)) {
					r.Errorf("machine configuration %+v", got.Config)
				}

				if worker := r.machine(r.client(""), worker0); worker.Role != cluster.Worker {
					r.Errorf("role of the worker: %q", worker.Role)
				}
			})
		})
	}
}

// TestMachine_TellsWhereItsKernelArgumentsComeFrom: from the UKI of the installed image, or from the bootloader.
func TestMachine_TellsWhereItsKernelArgumentsComeFrom(t *testing.T) {
	for name, test := range map[string]struct {
		options     model.Options
		booted, has bool
	}{
		"GRUB":                    {options: model.Options{Platform: "aws"}},
		"a UKI":                   {options: model.Options{Platform: "aws", UKI: true}, booted: true},
		"GRUB that reads the UKI": {options: model.Options{Platform: "aws", GrubUseUKICmdline: true}, has: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, test.options, func(r *rig) {
				got := r.machine(r.client(""), worker0)
				if got.Platform != "aws" || got.BootedWithUKI != test.booted || got.Config == nil || got.Config.UKIArguments != test.has {
					r.Errorf("platform %q, booted with a UKI %t, configuration %+v", got.Platform, got.BootedWithUKI, got.Config)
				}
			})
		})
	}
}

// TestMachine_UnparsableVersionIsReported: a vendor may name its builds freely, and the node answers nevertheless.
func TestMachine_UnparsableVersionIsReported(t *testing.T) {
	for tag, want := range map[string]string{"acme-2026.11": "acme-2026.11", "v1.13.2+acme": "", "v1.13.2-acme": ""} {
		inBubble(t, model.Options{Talos: "1.13.2", TalosTag: tag}, func(r *rig) {
			if got := r.machine(r.client(""), worker0); got.TalosTag != want || got.Talos.IsZero() != (want != "") || got.BootID == "" {
				r.Errorf("%s: Talos %s, tag %q, boot ID %q", tag, got.Talos, got.TalosTag, got.BootID)
			}
		})
	}
}

func TestMachine_TakesFewRoundTrips(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		r.machine(r.client(""), worker0)

		total := 0
		for _, count := range r.log.calls("worker-0") {
			total += count
		}

		if total == 0 || total > 12 {
			r.Errorf("%d calls for one machine: %v", total, r.log.calls("worker-0"))
		}
	})
}

// TestMachine_AllOfALookIsOfOneBoot has a node with an install pending reboot before each call
// of a look in turn, and before none: whatever the look returns is of one boot, and so is the
// next one, which knows of it.
func TestMachine_AllOfALookIsOfOneBoot(t *testing.T) {
	const mostCalls = 14

	for nth := range int32(mostCalls + 1) {
		inBubble(t, model.Options{QuickReboots: true}, func(r *rig) {
			c := r.client("")
			before := r.machine(c, worker0)

			r.prepare(c, worker0)

			var calls atomic.Int32

			meanwhile := func(call wire.Call) {
				if call.Node != "worker-0" || calls.Add(1) != nth {
					return
				}

				if err := r.world.RebootByHand("worker-0", model.RebootForce); err != nil {
					r.Error(err)
				}

				r.until("worker-0", "in another boot", func(state model.NodeState) bool { return state.Reachable && state.BootID != before.BootID })
			}
			r.meanwhile.Store(&meanwhile)

			found, err := c.Machine(r.Context(), worker0, nil, cluster.Everything)
			old := found.BootID == before.BootID && found.Talos.Equal(before.Talos) && found.Schematic == before.Schematic && found.NodeName == before.NodeName

			switch {
			case errors.Is(err, cluster.ErrUnreachable):
				// It was asked while it was down.
				found = before
			case err != nil || !old && !r.isNow(found):
				r.Errorf("a reboot before call %d: %+v, %v, which is neither of the old boot nor of the new one", nth, found, err)
			}

			if calls.Load() >= nth && nth > 0 {
				r.until("worker-0", "in another boot", func(state model.NodeState) bool { return state.Reachable && state.BootID != before.BootID })
			}

			var again cluster.Machine

			r.until("worker-0", "asked again", func(model.NodeState) bool {
				again, err = c.Machine(r.Context(), worker0, &found, cluster.Everything)

				return !errors.Is(err, cluster.ErrUnreachable)
			})

			if err != nil || !r.isNow(again) {
				r.Errorf("a reboot before call %d, known before: %+v, %v, which is not of the new boot", nth, again, err)
			}
		})
	}
}

// isNow reports whether a look at the worker is of its current boot.
func (r *rig) isNow(found cluster.Machine) bool {
	state, err := r.world.Node("worker-0")

	return err == nil && found.BootID == state.BootID && found.Talos.String() == state.Talos && found.Schematic == state.Schematic
}

// TestMachine_OfAnotherBootTakesNothingFromTheOneBefore: neither of a node that comes back
// between two looks nor of one that was seen on its way down, ready or not.
func TestMachine_OfAnotherBootTakesNothingFromTheOneBefore(t *testing.T) {
	for name, talos := range map[string]string{"legacy": "1.12.6", "lifecycle": "1.13.2", "with a resource for the schematic": "1.14.0"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{QuickReboots: true, Talos: talos}, func(r *rig) {
				c := r.client("")
				known := r.machine(c, worker0)

				// What the machine says now is not what was known about it.
				known.NodeName, known.Talos, known.Schematic, known.Config = "of-before", version.Version{}, "of-before", &cluster.MachineConfig{}

				r.fault("worker-0", model.StepBoot, model.EffectNotReady)

				if err := c.Reboot(r.Context(), worker0, cluster.RebootDefault); err != nil {
					r.Fatal(err)
				}

				var (
					down cluster.Machine
					err  error
				)

				// The status of a machine follows its stage a moment later.
				r.until("worker-0", "seen on its way down", func(model.NodeState) bool {
					down, err = c.Machine(r.Context(), worker0, &known, cluster.Everything)

					return err != nil || down.Stage != known.Stage
				})

				if err != nil || down.BootID != known.BootID || down.Schematic != known.Schematic || down.Stage != cluster.StageRebooting {
					r.Fatalf("on its way down: %+v, %v, want what is known of its boot", down, err)
				}

				r.until("worker-0", "running again", func(state model.NodeState) bool {
					return state.BootID != known.BootID && state.Reachable && state.Stage == model.StageRunning
				})

				for seen, before := range map[string]*cluster.Machine{"running": &known, "on its way down": &down} {
					found, err := c.Machine(r.Context(), worker0, before, cluster.Everything)
					if err != nil || !r.isNow(found) || found.NodeName != "worker-0" || found.Config.InstallImage == "" || found.Settled() {
						r.Errorf("last seen %s: %+v, %v; want it as it is", seen, found, err)
					}
				}
			})
		})
	}
}

func TestMachine_LeavesOutWhatTheCredentialsMayNotRead(t *testing.T) {
	for suffix, roles := range map[string][]string{"-reader": {"os:reader"}, "-operator": {"os:operator"}} {
		inBubble(t, model.Options{}, func(r *rig) {
			c := r.client(suffix)

			got := r.machine(c, worker0)
			if got.Config != nil || got.BootID != "" {
				r.Errorf("%s: configuration %v and boot ID %q, want neither", suffix, got.Config, got.BootID)
			}

			if got.Talos.String() != "1.13.2" || got.UUID == "" || len(got.MachineID) != 32 || !got.Settled() {
				r.Errorf("%s: observed %+v", suffix, got)
			}

			if !slices.Equal(c.Roles(), roles) {
				r.Errorf("%s: roles %v, want %v", suffix, c.Roles(), roles)
			}

			if _, err := c.Kubeconfig(r.Context()); !errors.Is(err, cluster.ErrDenied) {
				r.Errorf("%s: kubeconfig: %v, want it denied", suffix, err)
			}
		})
	}
}

func TestMachine_ClusterIsKnownToEveryRole(t *testing.T) {
	for _, suffix := range []string{"", "-reader"} {
		inBubble(t, model.Options{}, func(r *rig) {
			c := r.client(suffix)

			id, err := c.ClusterID(r.Context())
			if err != nil || id == "" || id != r.world.ClusterID() {
				r.Errorf("cluster ID %q, %v; want %q", id, err, r.world.ClusterID())
			}

			members, err := c.Members(r.Context())
			if err != nil {
				r.Fatal(err)
			}

			roles := map[cluster.Role]int{}

			for _, member := range members {
				roles[member.Role]++

				if member.Hostname == "" || len(member.Addresses) != 1 {
					r.Errorf("member %+v", member)
				}
			}

			if roles[cluster.ControlPlane] != 3 || roles[cluster.Worker] != 1 {
				r.Errorf("members by role: %v", roles)
			}
		})
	}
}

func TestEtcd_IsSeenFromOneMember(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		view, err := c.Etcd(r.Context(), cp0, true)
		if err != nil {
			r.Fatal(err)
		}

		if len(view.Members) != 3 || view.Members[0].Name == "" || len(view.Members[0].PeerAddresses) != 1 {
			r.Errorf("members %+v", view.Members)
		}

		status := view.Status
		if status.MemberID == 0 || status.Leader == 0 || status.Term == 0 || status.Index == 0 || status.Applied == 0 || status.Version == "" {
			r.Errorf("status %+v", status)
		}

		if _, err := c.Etcd(r.Context(), worker0, true); !errors.Is(err, cluster.ErrUnsupported) {
			r.Errorf("etcd of a worker: %v, want it unsupported", err)
		}
	})
}

func TestEtcd_LeadershipMovesAway(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		leader := func() uint64 {
			view, err := c.Etcd(r.Context(), cp0, true)
			if err != nil {
				r.Fatal(err)
			}

			return view.Status.Leader
		}

		before := leader()

		for _, address := range []string{cp0, cp1, "10.5.0.4"} {
			if view, err := c.Etcd(r.Context(), address, true); err != nil || view.Status.MemberID != before {
				continue
			}

			if err := c.ForfeitLeadership(r.Context(), address); err != nil {
				r.Fatal(err)
			}
		}

		if after := leader(); after == before || after == 0 {
			r.Errorf("leader %x before and %x after", before, after)
		}
	})
}

func TestEtcd_LostQuorumIsNamed(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{
			{Node: "cp-1", Step: model.StepBoot, Effect: model.EffectNeverReturns},
			{Node: "cp-2", Step: model.StepBoot, Effect: model.EffectNeverReturns},
		})

		for _, address := range []string{cp1, "10.5.0.4"} {
			if err := c.Reboot(r.Context(), address, cluster.RebootDefault); err != nil {
				r.Fatal(err)
			}
		}

		r.until("cp-1", "down", isDown)
		r.until("cp-2", "down", isDown)

		if _, err := c.Etcd(r.Context(), cp0, true); !errors.Is(err, cluster.ErrQuorum) {
			r.Errorf("etcd without quorum: %v, want it named", err)
		}

		if _, err := c.Machine(r.Context(), cp0, nil, cluster.Everything); err != nil {
			r.Errorf("the machine that is left: %v", err)
		}

		started := time.Now()

		if _, err := c.Machine(r.Context(), cp1, nil, cluster.Everything); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("a machine that is gone: %v, want it unreachable", err)
		}

		if took := time.Since(started); took > 20*time.Second {
			r.Errorf("it took %s to see that a machine is gone", took)
		}
	})
}

func struck(node string, step model.Step, effect model.Effect) model.Fault {
	return model.Fault{Node: node, Step: step, Effect: effect, Times: 1}
}

func TestVitals_AreThoseOfTheNode(t *testing.T) {
	disk := cluster.DiskSpace{Size: model.DiskSize, Available: model.DiskFree}
	clock := cluster.TimeSync{Synced: true}

	for name, test := range map[string]struct {
		talos  string
		faults []model.Fault
		disk   *cluster.DiskSpace
		time   *cluster.TimeSync
		why    string
	}{
		"nothing wrong":    {disk: &disk, time: &clock},
		"an older version": {talos: "1.11.5", disk: &disk, time: &clock},
		"a newer version":  {talos: "1.14.0", disk: &disk, time: &clock},
		"a full disk": {
			faults: []model.Fault{struck("worker-0", model.StepDisk, model.EffectFull)},
			disk:   &cluster.DiskSpace{Size: model.DiskSize, Available: model.FullDisk}, time: &clock,
		},
		"a disk that nobody can read": {faults: []model.Fault{struck("worker-0", model.StepDisk, model.EffectUnreadable)}, time: &clock, why: "input/output error"},
		"a clock on its own":          {faults: []model.Fault{struck("worker-0", model.StepClock, model.EffectUnsynced)}, disk: &disk, time: &cluster.TimeSync{}},
		"a clock that is not kept": {
			faults: []model.Fault{struck("worker-0", model.StepClock, model.EffectDisabled)},
			disk:   &disk, time: &cluster.TimeSync{Synced: true, Disabled: true},
		},
		"a clock that nobody can read": {faults: []model.Fault{struck("worker-0", model.StepClock, model.EffectUnreadable)}, disk: &disk},
		"neither": {faults: []model.Fault{
			struck("worker-0", model.StepDisk, model.EffectUnreadable), struck("worker-0", model.StepClock, model.EffectUnreadable),
		}, why: "input/output error"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{Talos: test.talos}, func(r *rig) {
				r.world.SetFaults(test.faults)

				for _, suffix := range []string{"", wire.ContextReader} {
					vitals, err := r.client(suffix).Vitals(r.Context(), worker0)
					if err != nil {
						r.Fatal(err)
					}

					if (vitals.Disk == nil) != (test.disk == nil) || test.disk != nil && *vitals.Disk != *test.disk {
						r.Errorf("disk %+v, want %+v", vitals.Disk, test.disk)
					}

					if (vitals.Time == nil) != (test.time == nil) || test.time != nil && *vitals.Time != *test.time {
						r.Errorf("clock %+v, want %+v", vitals.Time, test.time)
					}

					if (vitals.DiskError == nil) != (test.why == "") || test.why != "" && !strings.Contains(vitals.DiskError.Error(), test.why) {
						r.Errorf("the disk is not known because of %v, want %q", vitals.DiskError, test.why)
					}

					if vitals.TimeError != nil {
						r.Errorf("the clock is not known because of %v, want no reason", vitals.TimeError)
					}
				}
			})
		})
	}
}

func TestVitals_ThatCredentialsMayNotReadAreLeftOut(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		vitals, err := r.client(wire.ContextBackup).Vitals(r.Context(), worker0)
		if err != nil || vitals.Disk != nil || vitals.Time != nil {
			r.Errorf("%+v, %v; want nothing and no error", vitals, err)
		}

		for what, why := range map[string]error{"disk": vitals.DiskError, "clock": vitals.TimeError} {
			if !errors.Is(why, cluster.ErrDenied) || !strings.Contains(why.Error(), worker0) {
				r.Errorf("%s: %v, want permission denied on %s", what, why, worker0)
			}
		}
	})
}

func TestVitals_OfASilentNodeAreAnError(t *testing.T) {
	for name, test := range map[string]struct {
		context string
		faults  []model.Fault
		want    error
	}{
		"no API":                        {faults: []model.Fault{struck("worker-0", model.StepObserve, model.EffectUnreachable)}, want: cluster.ErrUnreachable},
		"no endpoint":                   {context: wire.ContextDead, want: cluster.ErrUnreachable},
		"an old certificate":            {context: wire.ContextExpired, want: cluster.ErrCredentials},
		"an endpoint that asks nobody":  {context: wire.ContextWorker, want: cluster.ErrDenied},
		"a certificate of someone else": {context: wire.ContextForeign, want: cluster.ErrCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{}, func(r *rig) {
				r.world.SetFaults(test.faults)

				address := worker0
				if test.context == wire.ContextWorker {
					address = cp0
				}

				vitals, err := r.client(test.context).Vitals(r.Context(), address)
				if !errors.Is(err, test.want) || vitals != (cluster.Vitals{}) {
					r.Errorf("%+v, %v; want %v", vitals, err, test.want)
				}
			})
		})
	}

	inBubble(t, model.Options{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()

		if _, err := r.client("").Vitals(ctx, worker0); !errors.Is(err, context.Canceled) {
			r.Errorf("cancelled: %v", err)
		}
	})
}

func TestMachine_BootModeThatIsNotToldIsUnknown(t *testing.T) {
	inBubble(t, model.Options{SecureBoot: true}, func(r *rig) {
		r.world.SetFaults([]model.Fault{struck("worker-0", model.StepSecurityState, model.EffectUnreadable)})

		if got := r.machine(r.client(""), worker0); !got.BootUnknown || got.SecureBoot {
			r.Errorf("secure boot %t, unknown %t; want it unknown", got.SecureBoot, got.BootUnknown)
		}

		if got := r.machine(r.client(""), cp0); got.BootUnknown || !got.SecureBoot {
			r.Errorf("secure boot %t, unknown %t; want it on", got.SecureBoot, got.BootUnknown)
		}
	})
}

func TestConfigure_BringsTheInstallerAlong(t *testing.T) {
	for name, options := range map[string]model.Options{
		"before 1.13":         {Talos: "1.12.6"},
		"1.13":                {Talos: "1.13.2"},
		"1.14 with v1alpha1":  {Talos: "1.14.0"},
		"1.14 with documents": {Talos: "1.14.0", Documents: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, options, func(r *rig) {
				c := r.client("")
				before := r.machine(c, worker0).Config

				if !before.Installs || before.InstallImage == "" {
					r.Fatalf("configuration %+v", before)
				}

				text := r.config("worker-0")
				change := cluster.ImageChange{Component: cluster.Installer, From: before.InstallImage, To: nextImage}

				for range 2 {
					if err := c.Configure(r.Context(), worker0, change); err != nil {
						r.Fatal(err)
					}
				}

				if got, want := r.config("worker-0"), strings.Replace(text, change.From, change.To, 1); got != want {
					r.Errorf("the configuration became\n%s\nwant\n%s", got, want)
				}

				r.applies("worker-0", 1)

				if got := r.machine(c, worker0).Config; got.InstallImage != nextImage || !got.Installs {
					r.Errorf("%+v is read, want %s", got, nextImage)
				}
			})
		})
	}
}

func TestConfigure_AddsNoInstallSection(t *testing.T) {
	inBubble(t, model.Options{Talos: "1.13.4"}, func(r *rig) {
		err := r.world.SetConfigByHand("worker-0", func(old string) (string, error) {
			return strings.Replace(old, "  install:\n", "  sysctls:\n", 1), nil
		})
		if err != nil {
			r.Fatal(err)
		}

		c := r.client("")
		if config := r.machine(c, worker0).Config; config.Installs || config.InstallImage != "" {
			r.Fatalf("configuration %+v", config)
		}

		err = c.Configure(r.Context(), worker0, cluster.ImageChange{Component: cluster.Installer, To: nextImage})
		if !errors.Is(err, cluster.ErrNotFound) || cluster.Heals(err) || !strings.Contains(err.Error(), "machine.install") {
			r.Errorf("%v, want no place for it found", err)
		}

		r.applies("worker-0", 0)
	})
}
