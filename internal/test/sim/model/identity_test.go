// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/jxskiss/base62"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestTheMachineIDIsMadeOfTheIdentity(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 2}, func(r rig) {
		seen := map[string]string{}

		for _, state := range r.Nodes() {
			raw, err := base62.DecodeString(state.Identity)
			if err != nil || len(raw) != 32 || hex.EncodeToString(raw[:16]) != state.MachineID {
				r.t.Errorf("%s has the machine ID %q and the identity %q (%x, %v)", state.Name, state.MachineID, state.Identity, raw, err)
			}

			if other, taken := seen[state.MachineID]; taken {
				r.t.Errorf("%s and %s share the machine ID %s", other, state.Name, state.MachineID)
			}

			seen[state.MachineID] = state.Name
		}
	})
}

// TestAnIdentityGoesWithTheStatePartition, and the UUID with the hardware.
func TestAnIdentityGoesWithTheStatePartition(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 2}, func(r rig) {
		before := r.node("worker-0")

		if err := r.WipeStateByHand("worker-0"); err != nil {
			r.t.Fatal(err)
		}

		r.until("worker-0", "down", time.Minute, down)
		r.until("worker-0", "ready", 10*time.Minute, ready)

		after := r.node("worker-0")
		if after.Identity == before.Identity || after.MachineID == before.MachineID || after.BootID == before.BootID {
			r.t.Errorf("wiped from %s, %s (boot %s) to %s, %s (boot %s)",
				before.Identity, before.MachineID, before.BootID, after.Identity, after.MachineID, after.BootID)
		}

		if after.UUID != before.UUID || after.Talos != before.Talos {
			r.t.Errorf("the hardware %s with Talos %s became %s with %s", before.UUID, before.Talos, after.UUID, after.Talos)
		}

		if err := r.CloneState("worker-0", "worker-1"); err != nil {
			r.t.Fatal(err)
		}

		if clone := r.node("worker-1"); clone.Identity != after.Identity || clone.MachineID != after.MachineID || clone.UUID == after.UUID {
			r.t.Errorf("cloned %+v as %+v", after, clone)
		}

		if err := r.SetUUID("worker-1", after.UUID); err != nil || r.node("worker-1").UUID != after.UUID {
			r.t.Errorf("the UUID is %s: %v", r.node("worker-1").UUID, err)
		}
	})
}
