// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestDisk_ImagesWithAVolumeOfTheirOwn(t *testing.T) {
	whole, own := &model.Disk{Size: model.DiskSize, Available: model.DiskFree}, &model.Disk{Size: model.ContainerdSize, Available: model.ContainerdFree}

	for name, test := range map[string]struct {
		effect           model.Effect
		disk, containerd *model.Disk
	}{
		"at rest":              {model.EffectPressure, whole, own},
		"full for themselves":  {model.EffectFull, whole, &model.Disk{Size: model.ContainerdSize, Available: model.FullDisk}},
		"that cannot be read ": {model.EffectUnreadable, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			faults := troubled("worker-0", model.StepDisk, test.effect, 0)

			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, ContainerdVolume: true, Faults: faults}, func(r rig) {
				got, err := r.Vitals(r.t.Context(), "worker-0")
				if want := (model.Vitals{Disk: test.disk, Containerd: test.containerd, Time: &model.Clocking{Synced: true}}); err != nil || !reflect.DeepEqual(got, want) {
					r.t.Errorf("got %+v, %v", got, err)
				}
			})
		})
	}
}

func TestDisk_Stalls(t *testing.T) {
	const patience = time.Minute

	for name, test := range map[string]struct {
		lasts   time.Duration
		happens func(rig)
		after   time.Duration // until the answer
		want    error
		disk    bool
	}{
		"keeps its caller waiting until that gives up": {after: patience, want: context.DeadlineExceeded},
		"answers in the end":                           {lasts: 20 * time.Second, after: 20 * time.Second, disk: true},
		"answers when the script is replaced":          {happens: func(r rig) { r.SetFaults(nil) }, after: 10 * time.Second, disk: true},
		"goes on under a script that says the same": {
			happens: func(r rig) { r.SetFaults(troubled("worker-0", model.StepDisk, model.EffectStall, 0)) },
			after:   patience, want: context.DeadlineExceeded,
		},
		"loses its caller when the machine goes": {
			happens: func(r rig) {
				if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootForce); err != nil {
					r.t.Error(err)
				}
			},
			after: 10 * time.Second, want: model.ErrConnectionLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: troubled("worker-0", model.StepDisk, model.EffectStall, test.lasts)}, func(r rig) {
				if state := r.node("worker-0"); state.Vitals.Disk != nil || state.Vitals.Time == nil || !state.Ready {
					r.t.Errorf("the machine: %+v", state)
				}

				if test.happens != nil {
					time.AfterFunc(10*time.Second, func() { test.happens(r) })
				}

				ctx, cancel := context.WithTimeout(r.t.Context(), patience)
				defer cancel()

				begun := time.Now()

				got, err := r.Vitals(ctx, "worker-0")
				if !errors.Is(err, test.want) || got.Time == nil || (got.Disk != nil) != test.disk {
					r.t.Errorf("got %+v, %v", got, err)
				}

				if took := time.Since(begun).Round(time.Second); took < test.after || took > test.after+2*time.Second {
					r.t.Errorf("it took %s", took)
				}
			})
		})
	}
}

func TestVitals_OfAMachine(t *testing.T) {
	disk, clock := &model.Disk{Size: model.DiskSize, Available: model.DiskFree}, &model.Clocking{Synced: true}

	for name, test := range map[string]struct {
		step   model.Step
		effect model.Effect
		want   model.Vitals
	}{
		"of a healthy machine":           {model.StepDisk, model.EffectPressure, model.Vitals{Disk: disk, Time: clock}},
		"of a full disk":                 {model.StepDisk, model.EffectFull, model.Vitals{Disk: &model.Disk{Size: model.DiskSize, Available: 100 << 20}, Time: clock}},
		"of a disk that cannot be read":  {model.StepDisk, model.EffectUnreadable, model.Vitals{Time: clock}},
		"of a clock that is not synced":  {model.StepClock, model.EffectUnsynced, model.Vitals{Disk: disk, Time: &model.Clocking{}}},
		"of a clock without a server":    {model.StepClock, model.EffectDisabled, model.Vitals{Disk: disk, Time: &model.Clocking{Synced: true, Disabled: true}}},
		"of a clock that cannot be read": {model.StepClock, model.EffectUnreadable, model.Vitals{Disk: disk}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: troubled("worker-0", test.step, test.effect, 0)}, func(r rig) {
				if got, err := r.Vitals(r.t.Context(), "worker-0"); err != nil || !reflect.DeepEqual(got, test.want) {
					r.t.Errorf("got %+v, %v", got, err)
				}

				r.SetFaults(nil)

				got, err := r.Vitals(r.t.Context(), "worker-0")
				if want := (model.Vitals{Disk: disk, Time: clock}); err != nil || !reflect.DeepEqual(got, want) {
					r.t.Errorf("afterwards: %+v, %v", got, err)
				}
			})
		})
	}
}

func TestVitals_OfAMachineThatIsDown(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.kill("worker-0")

		if got, err := r.Vitals(r.t.Context(), "worker-0"); err == nil {
			r.t.Errorf("got %+v", got)
		}
	})
}

func TestVitals_WithoutTimeAMachineConfirmsNoUpgrade(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1}, func(r rig) {
		r.pullAndInstall("worker-0", factoryImage)

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		r.SetFaults(troubled("worker-0", model.StepClock, model.EffectUnsynced, 0))
		time.Sleep(10 * time.Minute)

		state := r.node("worker-0")
		if state.Ready || !state.UpgradePending || len(state.Unmet) != 1 || state.Unmet[0] != (model.Condition{Name: "time", Reason: "time is not synced"}) {
			r.t.Errorf("without time: %+v", state)
		}

		r.SetFaults(nil)
		r.until("worker-0", "ready", 2*time.Second, ready)
	})
}

func TestVitals_KubeletReportsPressureWhileItRuns(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Faults: troubled("worker-0", model.StepDisk, model.EffectPressure, 0)}, func(r rig) {
		if !r.node("worker-0").DiskPressure || r.node("cp-0").DiskPressure {
			r.t.Errorf("at the beginning: %+v", r.node("worker-0"))
		}

		if _, err := r.Reboot(r.t.Context(), "worker-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		if state := r.until("worker-0", "down", time.Minute, down); state.DiskPressure {
			r.t.Errorf("of a machine that is down: %+v", state)
		}

		if state := r.until("worker-0", "ready", 5*time.Minute, ready); !state.DiskPressure {
			r.t.Errorf("after its boot: %+v", state)
		}
	})
}

func TestVitals_SecurityStateMayBeUnknown(t *testing.T) {
	faults := troubled("worker-0", model.StepSecurityState, model.EffectUnreadable, 0)

	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, SecureBoot: true, Faults: faults}, func(r rig) {
		if state := r.node("worker-0"); !state.SecurityUnknown || !state.SecureBoot || r.node("cp-0").SecurityUnknown {
			r.t.Errorf("got %+v", state)
		}

		r.SetFaults(nil)

		if r.node("worker-0").SecurityUnknown {
			r.t.Error("it is unknown afterwards")
		}
	})
}
