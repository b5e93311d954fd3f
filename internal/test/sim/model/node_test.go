// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jxskiss/base62"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestNode_WithManyAddresses(t *testing.T) {
	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, ManyAddresses: true}, func(r rig) {
		members := r.Members()
		if got := members[1].Addresses; !slices.Equal(got, []string{"203.0.113.3", "10.5.0.3", "fd05::3"}) {
			r.t.Errorf("discovery has %q", got)
		}

		for _, address := range []string{"10.5.0.3", "fd05::3"} {
			if version, err := r.Version(r.t.Context(), address); err != nil || version != "1.13.2" {
				r.t.Errorf("%s: %q, %v", address, version, err)
			}
		}

		if _, err := r.Version(r.t.Context(), "203.0.113.3"); !errors.Is(err, model.ErrUnknownNode) {
			r.t.Errorf("from outside: %v", err)
		}
	})

	inWorld(t, model.Options{ControlPlanes: 1}, func(r rig) {
		if got := r.Members()[0].Addresses; !slices.Equal(got, []string{"10.5.0.2"}) {
			r.t.Errorf("a machine with one address has %q", got)
		}
	})
}

func TestNode_AddressesOfBothKinds(t *testing.T) {
	for name, test := range map[string]struct {
		six              bool
		address          string
		api, etcd, plane string // with their ports
	}{
		"of IPv4": {false, "10.5.0.2", "10.5.0.2:50000", "10.5.0.2:2379", "https://10.5.0.2:6443\n"},
		"of IPv6": {true, "fd05::2", "[fd05::2]:50000", "[fd05::2]:2379", "https://[fd05::2]:6443\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, model.Options{ControlPlanes: 1, IPv6: test.six, Faults: troubled("cp-0", model.StepEtcd, model.EffectSilent, 0)}, func(r rig) {
				if state := r.node(test.address); state.Name != "cp-0" || state.Address != test.address {
					r.t.Errorf("got %s at %s", state.Name, state.Address)
				}

				if config, err := r.MachineConfig("cp-0"); err != nil || !strings.Contains(string(config), test.plane) {
					r.t.Errorf("the configuration, %v:\n%s", err, config)
				}

				if _, err := r.EtcdStatus(r.t.Context(), "cp-0"); err == nil || !strings.Contains(err.Error(), "dial tcp "+test.etcd+":") {
					r.t.Errorf("etcd that is silent: %v", err)
				}

				r.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepObserve, Effect: model.EffectUnreachable}})

				if _, err := r.Version(r.t.Context(), "cp-0"); err == nil || !strings.Contains(err.Error(), "dial tcp "+test.api+":") {
					r.t.Errorf("a machine that is silent: %v", err)
				}
			})
		})
	}
}

func TestNode_MachineIDIsMadeOfTheIdentity(t *testing.T) {
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

// TestNode_IdentityGoesWithTheStatePartition, but the UUID belongs to the hardware.
func TestNode_IdentityGoesWithTheStatePartition(t *testing.T) {
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

// TestNode_WalksThroughAllMinors upgrades a machine from 1.10 to 1.15, minor by minor, with the API that its
// version has.
func TestNode_WalksThroughAllMinors(t *testing.T) {
	const factory = "factory.talos.dev/metal-installer/" + model.EmptySchematic

	inWorld(t, model.Options{ControlPlanes: 1, Workers: 1, Talos: "1.10.7", Kubernetes: "1.33.4"}, func(r rig) {
		for _, image := range []string{
			"ghcr.io/siderolabs/installer:v1.11.5", "ghcr.io/siderolabs/installer:v1.12.6", "ghcr.io/siderolabs/installer:v1.13.4",
			factory + ":v1.14.1", factory + ":v1.15.0",
		} {
			before := r.node("worker-0")

			if model.AtLeast(before.Talos, 1, 13) {
				r.pullAndInstall("worker-0", image)
				r.reboot("worker-0")
			} else {
				r.legacy("worker-0", model.LegacyOptions{Image: image})
				r.until("worker-0", "down", 3*time.Minute, down)
				r.until("worker-0", "ready", 5*time.Minute, ready)
			}

			after := r.node("worker-0")
			if after.Image != image || after.BootID == before.BootID || after.Kubelet.Version != "1.33.4" {
				t.Fatalf("after %s: %+v", image, after)
			}
		}

		if state := r.node("worker-0"); state.Talos != "1.15.0" || state.Installs != 5 || state.Reboots != 5 {
			t.Errorf("in the end: %+v", state)
		}
	})
}
