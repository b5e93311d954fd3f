// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Reboot implements machine.MachineServiceServer.
func (m *machineService) Reboot(ctx context.Context, request *machine.RebootRequest) (*machine.RebootResponse, error) {
	mode := model.RebootDefault

	switch request.GetMode() {
	case machine.RebootRequest_POWERCYCLE:
		mode = model.RebootPowercycle
	case machine.RebootRequest_FORCE:
		mode = model.RebootForce
	case machine.RebootRequest_DEFAULT:
	}

	actor, err := m.world.Reboot(ctx, m.node, mode)
	if err != nil {
		return nil, statusOf(err)
	}

	return &machine.RebootResponse{Messages: []*machine.Reboot{{ActorId: actor}}}, nil
}

// Rollback implements machine.MachineServiceServer.
func (m *machineService) Rollback(ctx context.Context, _ *machine.RollbackRequest) (*machine.RollbackResponse, error) {
	if err := m.world.Rollback(ctx, m.node); err != nil {
		return nil, statusOf(err)
	}

	return &machine.RollbackResponse{Messages: []*machine.Rollback{{}}}, nil
}

// Upgrade implements machine.MachineServiceServer: the upgrade of all versions
// of Talos, which drains and reboots by itself.
func (m *machineService) Upgrade(ctx context.Context, request *machine.UpgradeRequest) (*machine.UpgradeResponse, error) {
	options := model.LegacyOptions{
		Image: request.GetImage(), Preserve: request.GetPreserve(), Stage: request.GetStage(), Force: request.GetForce(),
	}

	if request.GetRebootMode() == machine.UpgradeRequest_POWERCYCLE {
		options.Mode = model.RebootPowercycle
	}

	actor, err := m.world.LegacyUpgrade(ctx, m.node, options)
	if err != nil {
		return nil, statusOf(err)
	}

	return &machine.UpgradeResponse{Messages: []*machine.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

// ImagePull implements machine.MachineServiceServer.
func (m *machineService) ImagePull(ctx context.Context, request *machine.ImagePullRequest) (*machine.ImagePullResponse, error) {
	if request.GetReference() == "" {
		return nil, status.Error(codes.InvalidArgument, "image reference is empty")
	}

	into, err := namespaceOf(kubeletContainerd(request.GetNamespace()))
	if err != nil {
		return nil, err
	}

	if _, err := pull(ctx, m.world, m.node, request.GetReference(), into, nil); err != nil {
		return nil, pullStatus(err)
	}

	return &machine.ImagePullResponse{Messages: []*machine.ImagePull{{}}}, nil
}
