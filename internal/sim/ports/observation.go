// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// machine is what the adapter makes of everything it reads from a machine.
func (c *Client) machine(state model.NodeState) (cluster.Machine, error) {
	talos, err := version.Parse(state.Talos)
	if err != nil {
		return cluster.Machine{}, err
	}

	machine := cluster.Machine{
		Address: state.Address, NodeName: state.Name, UUID: state.UUID, Role: cluster.Role(state.Role),
		Talos: talos, Schematic: state.Schematic, Platform: state.Platform, SecureBoot: state.SecureBoot,
		BootID: state.BootID, Stage: cluster.Stage(state.Stage), Ready: state.Ready,
		// The running system does not see what an installer has just written.
		UpgradePending: state.UpgradePending && !state.Armed,
	}

	for _, unmet := range state.Unmet {
		machine.Unmet = append(machine.Unmet, unmet.Name+": "+unmet.Reason)
	}

	if c.admin() {
		machine.Config = &cluster.MachineConfig{InstallImage: state.InstallImage, Images: c.cluster.pins(state)}
	}

	return machine, nil
}

func (c *Client) admin() bool {
	for _, role := range c.roles {
		if role == "os:admin" {
			return true
		}
	}

	return false
}

// pins are the component images of a machine's configuration.
func (c *Cluster) pins(state model.NodeState) map[cluster.Component]string {
	if c.unpinned {
		return nil
	}

	return images(state)
}

// images are those of the components that a node runs.
func images(state model.NodeState) map[cluster.Component]string {
	found := map[cluster.Component]string{}

	for component, running := range map[cluster.Component]string{
		cluster.APIServer:         state.Components.APIServer,
		cluster.ControllerManager: state.Components.ControllerManager,
		cluster.Scheduler:         state.Components.Scheduler,
		cluster.Proxy:             state.Components.Proxy,
	} {
		if running != "" {
			found[component] = fmt.Sprintf("registry.k8s.io/%s:v%s", component, running)
		}
	}

	if state.Components.Kubelet != "" {
		found[cluster.Kubelet] = "ghcr.io/siderolabs/kubelet:v" + state.Components.Kubelet
	}

	return found
}

// etcd is etcd as one control plane sees it.
func (c *Client) etcd(ctx context.Context, address string) (cluster.EtcdView, error) {
	members, err := c.cluster.world.EtcdMembers(ctx, address)
	if err != nil {
		return cluster.EtcdView{}, err
	}

	status, err := c.cluster.world.EtcdStatus(ctx, address)
	if err != nil {
		return cluster.EtcdView{}, err
	}

	alarms, err := c.cluster.world.EtcdAlarms(ctx, address)
	if err != nil {
		return cluster.EtcdView{}, err
	}

	view := cluster.EtcdView{Status: cluster.EtcdStatus{
		MemberID: status.Member, Leader: status.Leader, Term: status.Term, Index: status.Index, Applied: status.Applied,
		Learner: status.Learner, Errors: status.Errors, DBSize: status.DBSize, Version: status.Version,
	}}

	for _, member := range members {
		view.Members = append(view.Members, cluster.EtcdMember{
			ID: member.ID, Name: member.Name, Learner: member.Learner, PeerAddresses: []string{member.Address},
		})
	}

	for _, alarm := range alarms {
		view.Alarms = append(view.Alarms, fmt.Sprintf("%s on member %x", alarm.Alarm, alarm.Member))
	}

	return view, nil
}

// componentPods lists the pods of the control plane and of kube-proxy. Those of
// a node that is away stay listed.
func (c *Cluster) componentPods() []cluster.ComponentPod {
	var pods []cluster.ComponentPod

	for _, state := range c.world.Nodes() {
		found := images(state)

		for _, component := range cluster.Components(cluster.Role(state.Role)) {
			if component == cluster.Kubelet || found[component] == "" {
				continue
			}

			pods = append(pods, cluster.ComponentPod{
				Node: state.Name, Component: component, Image: found[component],
				Ready: state.Kubelet.Running && (component != cluster.APIServer || state.APIServerUp),
			})
		}
	}

	return pods
}
