// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// Machine is the truth about a machine, as far as the contract asks for it.
type Machine struct {
	// Name is that of its Kubernetes node.
	Name         string
	ControlPlane bool
	// Addresses are all of its addresses; it answers under the first one.
	Addresses []string
	// MachineID is what both APIs tell of its /etc/machine-id.
	MachineID, UUID, BootID string
	// Kubelet is a version without v.
	Kubelet string
	// Images are what its static pods run; nil for a worker.
	Images map[cluster.Component]string
}

// FromModel is the truth about the machines of a simulated cluster.
func FromModel(world *model.World) []Machine {
	states := world.Nodes()
	machines := make([]Machine, 0, len(states))

	for _, state := range states {
		machine := Machine{
			Name: state.Name, ControlPlane: state.Role == model.ControlPlane, Addresses: []string{state.Address},
			MachineID: state.MachineID, UUID: state.UUID, BootID: state.BootID, Kubelet: state.Kubelet.Version,
		}

		for name, pod := range state.StaticPods {
			if machine.Images == nil {
				machine.Images = map[cluster.Component]string{}
			}

			machine.Images[cluster.Component(name)] = pod.Image
		}

		machines = append(machines, machine)
	}

	return machines
}
