// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// FromModel shows the model of a Talos cluster to this package.
func FromModel(world *model.World) World { return modelWorld{world} }

type modelWorld struct{ world *model.World }

func (w modelWorld) Machines() []Machine {
	nodes := w.world.KubeStates()
	machines := make([]Machine, 0, len(nodes))

	for _, node := range nodes {
		machines = append(machines, fromState(node))
	}

	return machines
}

func (w modelWorld) Machine(name string) (Machine, bool) {
	node, err := w.world.KubeState(name)
	if err != nil || node.Name != name {
		return Machine{}, false
	}

	return fromState(node), true
}

func fromState(node model.KubeState) Machine {
	return Machine{
		Name: node.Name, Role: string(node.Role), Address: node.Address, Outer: node.Outer, Other: node.Other, UUID: node.UUID, MachineID: node.MachineID,
		Platform: node.Platform, Talos: node.Talos, Schematic: node.Schematic, BootID: node.BootID,
		Kubelet: Kubelet{
			Running: node.Kubelet.Running, Ready: node.Kubelet.Ready, Version: node.Kubelet.Version, DiskPressure: node.DiskPressure,
		},
		ConfigVersion: node.ConfigVersion,
		StaticPods:    staticPods(node.StaticPods),
		PodsReported:  node.PodsReported,
		Proxy:         node.Components.Proxy,
		APIServerUp:   node.APIServerUp,
	}
}

func staticPods(states map[string]model.StaticPod) map[string]StaticPod {
	pods := make(map[string]StaticPod, len(states))

	for component, state := range states {
		pods[component] = StaticPod{
			Image: state.PodImage, ConfigVersion: state.PodConfigVersion, FilesVersion: state.PodFilesVersion,
			Ready: state.Ready, Started: state.Started, Trouble: state.Trouble,
		}
	}

	return pods
}

func (w modelWorld) Manifests(node string) []map[string]any {
	state, err := w.world.Node(node)
	if err != nil {
		return nil
	}

	return modelManifests(state)
}

func modelManifests(state model.NodeState) []map[string]any {
	var objects []map[string]any
	for _, manifest := range bootstrap.Render(state) {
		objects = append(objects, manifest.Objects...)
	}

	return objects
}

func (w modelWorld) SetProxy(node, version string) { w.world.SetProxy(node, version) }

func (w modelWorld) EtcdQuorum() bool { return w.world.EtcdQuorum() }

func (w modelWorld) OnChange(changed func(node string)) (cancel func()) {
	return w.world.OnChange(changed)
}

func (w modelWorld) BlockedDrains() []string {
	var blocked []string

	for _, fault := range w.world.FaultsFor(model.StepDrain) {
		if fault.Effect != model.EffectBlockedByBudget {
			continue
		}

		for _, node := range w.world.KubeStates() {
			if fault.Node == model.AnyNode || fault.Node == node.Name {
				blocked = append(blocked, node.Name)
			}
		}
	}

	slices.Sort(blocked)

	return slices.Compact(blocked)
}

func (w modelWorld) RepliesAtRisk() bool { return len(w.world.FaultsFor(model.StepPatch)) > 0 }

func (w modelWorld) LoseReply(node string) bool {
	_, struck := w.world.TakeFault(node, model.StepPatch, model.EffectConnectionLost)

	return struck
}
