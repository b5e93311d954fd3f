// SPDX-License-Identifier: MPL-2.0

package contract

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Machine is the truth about a machine, as far as the contract asks for it.
type Machine struct {
	// Name is that of its Kubernetes node.
	Name         string
	ControlPlane bool
	// Addresses are all of its addresses; it answers under the first one.
	Addresses []string
	// MachineID is what both APIs tell of its /etc/machine-id, UUID what its firmware
	// tells; empty where it tells nothing.
	MachineID, UUID, BootID string
	// Kubelet is a version without v.
	Kubelet string
	// Images are what its static pods run; nil for a worker.
	Images map[cluster.Component]string
	// Proxyless tells that its cluster runs no kube-proxy.
	Proxyless bool
}

// systemUUID is what its kubelet reports, which takes the machine ID for it where the
// firmware tells none.
func (m Machine) systemUUID() string { return cmp.Or(m.UUID, m.MachineID) }

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

// FromTalos are real machines as they say themselves: the truth for what is asked of
// Kubernetes. Each is named by all of its addresses.
func FromTalos(ctx context.Context, talos cluster.Talos, addresses [][]string) ([]Machine, error) {
	machines := make([]Machine, 0, len(addresses))
	proxyless := true

	for _, own := range addresses {
		said, err := talos.Machine(ctx, own[0], nil)
		if err != nil {
			return nil, err
		}

		machine := Machine{
			Name: said.NodeName, ControlPlane: said.Role == cluster.ControlPlane, Addresses: own,
			MachineID: said.MachineID, UUID: said.UUID, BootID: said.BootID, Images: map[cluster.Component]string{},
		}

		// Only control planes have a part in kube-proxy.
		if said.Config != nil && machine.ControlPlane && !said.Config.Disabled[cluster.Proxy] {
			proxyless = false
		}

		for _, component := range cluster.Components(said.Role) {
			if component == cluster.Proxy {
				continue
			}

			status, err := talos.Component(ctx, own[0], component)
			if err != nil {
				return nil, err
			}

			if component == cluster.Kubelet {
				machine.Kubelet = Tag(status.Image)
			} else {
				machine.Images[component] = status.Image
			}
		}

		machines = append(machines, machine)
	}

	for i := range machines {
		machines[i].Proxyless = proxyless
	}

	return machines, nil
}

// Tag is the version in a reference of an image, without v.
func Tag(image string) string {
	name, _, _ := strings.Cut(image, "@")

	return strings.TrimPrefix(name[strings.LastIndex(name, ":")+1:], "v")
}

// FromKubernetes are real machines as their kubelets say: the truth for what is asked
// of Talos.
func FromKubernetes(ctx context.Context, client kubernetes.Interface) ([]Machine, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	machines := make([]Machine, 0, len(nodes.Items))
	proxyless := !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Labels["k8s-app"] == string(cluster.Proxy) })

	for i := range nodes.Items {
		node := &nodes.Items[i]
		_, plane := node.Labels["node-role.kubernetes.io/control-plane"]

		machine := Machine{
			Name: node.Name, ControlPlane: plane, MachineID: node.Status.NodeInfo.MachineID, UUID: node.Status.NodeInfo.SystemUUID,
			BootID: node.Status.NodeInfo.BootID, Kubelet: strings.TrimPrefix(node.Status.NodeInfo.KubeletVersion, "v"), Images: map[cluster.Component]string{},
			Proxyless: proxyless,
		}

		if machine.UUID == machine.MachineID {
			machine.UUID = ""
		}

		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				machine.Addresses = append(machine.Addresses, address.Address)
			}
		}

		for j := range pods.Items {
			for _, component := range []cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler} {
				if pods.Items[j].Name == string(component)+"-"+node.Name {
					machine.Images[component] = pods.Items[j].Spec.Containers[0].Image
				}
			}
		}

		machines = append(machines, machine)
	}

	return machines, nil
}

// Machines is a fixture for the clauses about machines: an implementation and the
// truth about what is behind it.
type Machines struct {
	Adapter cluster.Talos
	Known   []Machine
}

// Talos is the implementation.
func (m Machines) Talos() cluster.Talos { return m.Adapter }

// Machines is the truth.
func (m Machines) Machines() []Machine { return m.Known }
