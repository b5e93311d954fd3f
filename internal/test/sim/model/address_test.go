// SPDX-License-Identifier: MPL-2.0

package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestMachineWithManyAddresses(t *testing.T) {
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

func TestAddressesOfBothKinds(t *testing.T) {
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
