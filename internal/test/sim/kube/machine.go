// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The roles of [Machine], spelled as Talos spells machine types.
const (
	RoleControlPlane = "controlplane"
	RoleWorker       = "worker"
)

// Machine is what this package needs to know about one machine of the simulated cluster.
type Machine struct {
	// Name is the name of its Kubernetes node.
	Name string
	// Role is RoleControlPlane or RoleWorker.
	Role    string
	Address string
	// Outer and Other are more of its addresses; empty for none.
	Outer, Other string
	// UUID is the hardware's, MachineID the /etc/machine-id of the system.
	UUID      string
	MachineID string
	Platform  string
	// Talos is the running version, without v; Schematic is the Image Factory schematic that it was built with, if
	// any.
	Talos, Schematic string
	// BootID changes with every kernel start.
	BootID  string
	Kubelet Kubelet
	// ConfigVersion counts the versions of the machine configuration since the machine booted.
	ConfigVersion int
	// StaticPods are those of a control plane, by component.
	StaticPods map[string]StaticPod
	// PodsReported is true once the kubelet has reported since the boot how they are.
	PodsReported bool
	// Proxy is the version of kube-proxy that runs there, without v; empty if none does.
	Proxy string
	// APIServerUp is true while the machine's kube-apiserver serves.
	APIServerUp bool
}

// Kubelet is the state of the kubelet on one machine.
type Kubelet struct {
	// Running is false while the machine is down or the service is stopped.
	Running bool
	// Ready is what the kubelet reports; it means nothing while the kubelet does not run.
	Ready bool
	// Version is without v.
	Version string
	// DiskPressure is true while the kubelet reports a full disk.
	DiskPressure bool
}

// StaticPod is a pod that the kubelet of a control plane runs without asking the API server.
type StaticPod struct {
	// Image and ConfigVersion are what the pod was made from; if Image is empty, there is no pod.
	Image         string
	ConfigVersion int
	// FilesVersion is the version of the files of an API server; 0 for all others.
	FilesVersion int
	// Ready is true while the pod serves.
	Ready bool
	// Started is when its container started; zero while it does not run.
	Started time.Time
	// Trouble is why the container does not run: "REASON: message"; empty if nothing is wrong.
	Trouble string
}

// World is the simulated cluster, as far as Kubernetes depends on it. Implementations are safe for concurrent use.
type World interface {
	// Machines returns the machines that exist now.
	Machines() []Machine
	// Machine returns one of them by its name.
	Machine(name string) (Machine, bool)
	// EtcdQuorum reports whether etcd can accept writes.
	EtcdQuorum() bool
	// OnChange makes the world call the function, outside of any lock, after each change of a machine; node is
	// empty if the change is not about one machine. cancel ends that.
	OnChange(changed func(node string)) (cancel func())
	// Manifests returns the objects that a control plane, by name, wants to exist: what Talos calls bootstrap
	// manifests. The caller may change them.
	Manifests(node string) []map[string]any
	// SetProxy sets the version, without v, of the kube-proxy that runs on a node.
	SetProxy(node, version string)
	// BlockedDrains names the nodes whose drain a PodDisruptionBudget has to block now.
	BlockedDrains() []string
	// RepliesAtRisk reports whether LoseReply may return true for some node.
	RepliesAtRisk() bool
	// LoseReply reports whether the answer to a request that just changed the node, its pods or its entry in the
	// journal has to be lost, and counts that it was.
	LoseReply(node string) bool
}

// Clock is the clock of the simulation; durations are simulated ones.
type Clock interface {
	Now() time.Time
	// Sleep returns nil after d, or the context's error if that ends first.
	Sleep(ctx context.Context, d time.Duration) error
}

// FromModel returns the model of a Talos cluster as the world of this package.
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
