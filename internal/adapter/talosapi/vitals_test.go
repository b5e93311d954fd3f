// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/wire"
)

func struck(node string, step model.Step, effect model.Effect) model.Fault {
	return model.Fault{Node: node, Step: step, Effect: effect, Times: 1}
}

func TestVitalsAreThoseOfTheNode(t *testing.T) {
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

func TestVitalsThatTheCredentialsMayNotReadAreNotTold(t *testing.T) {
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

func TestVitalsOfASilentNodeAreAnError(t *testing.T) {
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

func TestAMachineThatDoesNotTellHowItBootedIsUnknown(t *testing.T) {
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

func TestConfigureBringsTheInstallerAlong(t *testing.T) {
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

func TestConfigureAddsNoInstallSection(t *testing.T) {
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
