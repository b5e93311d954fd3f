// SPDX-License-Identifier: MPL-2.0

package ports

import (
	"context"
	"strconv"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// machine is what the adapter makes of everything it reads from a machine.
func (c *Client) machine(state model.NodeState) (cluster.Machine, error) {
	tag := ""

	talos, err := version.Parse(state.TalosTag)
	if err != nil {
		tag = state.TalosTag
	}

	machine := cluster.Machine{
		Address: state.Address, NodeName: state.Name, MachineID: state.MachineID, UUID: state.UUID, Role: cluster.Role(state.Role),
		Talos: talos, TalosTag: tag, Schematic: state.Schematic, Platform: state.Platform,
		SecureBoot: state.SecureBoot && !state.SecurityUnknown, BootUnknown: state.SecurityUnknown,
		BootedWithUKI: state.BootedWithUKI && !state.SecurityUnknown,
		BootID:        state.BootID, Stage: cluster.Stage(state.Stage), Ready: state.Ready,
		// The running system does not see what an installer has just written.
		UpgradePending: state.UpgradePending && !state.Armed,
	}

	for _, unmet := range state.Unmet {
		machine.Unmet = append(machine.Unmet, unmet.Name+": "+unmet.Reason)
	}

	if state.Role == model.ControlPlane {
		machine.PodsSince, machine.FilesVersion = state.BootedAt, strconv.Itoa(state.StaticPods[model.APIServerName].FilesVersion)
	}

	if c.admin() {
		machine.Config, err = c.cluster.summaries.of(state.Config)
		if err != nil {
			return cluster.Machine{}, err
		}
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

// etcd is etcd as one control plane sees it. Of a learner that is its status: it
// answers nothing else.
func (c *Client) etcd(ctx context.Context, address string, listed bool) (cluster.EtcdView, error) {
	status, err := c.cluster.world.EtcdStatus(ctx, address)
	if err != nil {
		return cluster.EtcdView{}, err
	}

	var (
		members   []model.EtcdMember
		noMembers error
	)

	if listed {
		members, noMembers = c.cluster.world.EtcdMembers(ctx, address)
	}

	if err := noMembers; err != nil && (!status.Learner || ctx.Err() != nil) {
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

	return view, nil
}
