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

func TestImagesWithAVolumeOfTheirOwn(t *testing.T) {
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

func TestDiskThatStalls(t *testing.T) {
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
