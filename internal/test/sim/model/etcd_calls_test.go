// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// intact reports whether a snapshot ends with its own checksum.
func intact(snapshot []byte) bool {
	const sector = 512

	if len(snapshot)%sector != sha256.Size {
		return false
	}

	body := snapshot[:len(snapshot)-sha256.Size]

	return sha256.Sum256(body) == [sha256.Size]byte(snapshot[len(body):])
}

// snapshot takes a snapshot, and returns how long that took.
func (r rig) snapshot(name string) (taken []byte, length time.Duration, err error) {
	var to bytes.Buffer

	begun := time.Now()
	err = r.EtcdSnapshot(r.t.Context(), name, &to)

	return to.Bytes(), time.Since(begun), err
}

func TestEtcd_Snapshot(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 2, Workers: 1}, func(r rig) {
		first, length, err := r.snapshot("cp-0")
		if err != nil || len(first) != model.SnapshotSize+sha256.Size || !intact(first) || length < 2*time.Second || length > 6*time.Second {
			r.t.Fatalf("%d bytes in %s, %v", len(first), length, err)
		}

		again, _, err := r.snapshot("cp-0")
		if err != nil || len(again) != len(first) || bytes.Equal(first, again) {
			r.t.Errorf("seconds later: %d bytes, %v, the same %t", len(again), err, bytes.Equal(first, again))
		}

		if other, _, err := r.snapshot("cp-1"); err != nil || bytes.Equal(first, other) {
			r.t.Errorf("another member gave the same: %v", err)
		}

		if none, _, err := r.snapshot("worker-0"); !errors.Is(err, model.ErrNotControlPlane) || len(none) > 0 {
			r.t.Errorf("a worker: %d bytes, %v", len(none), err)
		}
	})
}

func TestEtcd_SnapshotFaults(t *testing.T) {
	const whole = model.SnapshotSize + sha256.Size

	for effect, test := range map[model.Effect]struct {
		want  error
		size  int
		whole bool
		least time.Duration
	}{
		model.EffectFail:           {model.ErrRefused, 0, false, 0},
		model.EffectCut:            {nil, model.SnapshotSize / 2, false, time.Second},
		model.EffectConnectionLost: {model.ErrConnectionLost, model.SnapshotSize / 2, false, time.Second},
		model.EffectCorrupt:        {nil, whole, false, time.Second},
		model.EffectStall:          {nil, whole, true, 20 * time.Minute},
	} {
		t.Run(string(effect), func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
				fault := model.Fault{Node: "cp-0", Step: model.StepEtcdSnapshot, Effect: effect, Times: 1}
				if effect == model.EffectStall {
					fault.For = 20 * time.Minute
				}

				r.SetFaults([]model.Fault{fault})

				got, length, err := r.snapshot("cp-0")
				if !errors.Is(err, test.want) || len(got) != test.size || intact(got) != test.whole || length < test.least {
					r.t.Errorf("%d bytes in %s, intact %t: %v", len(got), length, intact(got), err)
				}

				said := r.log.of("cp-0", history.KindSnapshot)
				if len(said) != 1 || said[0].Detail["whole"] != strconv.FormatBool(test.whole) || said[0].Detail["bytes"] != strconv.Itoa(test.size) {
					r.t.Errorf("the history says %v", said)
				}

				if got, _, err := r.snapshot("cp-0"); err != nil || !intact(got) {
					r.t.Errorf("the next one: %v", err)
				}
			})
		})
	}
}

// refusing is a disk that is full.
type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

func TestEtcd_SnapshotThatBreaksOff(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 3}, func(r rig) {
		noRoom := errors.New("no space left on device")
		if err := r.EtcdSnapshot(r.t.Context(), "cp-0", refusing{noRoom}); !errors.Is(err, noRoom) {
			r.t.Errorf("without room: %v", err)
		}

		r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepEtcdSnapshot, Effect: model.EffectStall}})

		if err := r.RebootByHand("cp-0", model.RebootDefault); err != nil {
			r.t.Fatal(err)
		}

		got, _, err := r.snapshot("cp-0")
		if !errors.Is(err, model.ErrConnectionLost) || intact(got) {
			r.t.Errorf("of a machine that goes down: %d bytes, %v", len(got), err)
		}

		for _, said := range r.log.of("cp-0", history.KindSnapshot) {
			if said.Detail["whole"] != "false" {
				r.t.Errorf("the history says %v", said)
			}
		}
	})
}
