// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// ApplyConfiguration implements machine.MachineServiceServer. Readers get as
// far as here, because a machine without a configuration takes one of anybody.
func (m *machineService) ApplyConfiguration(
	ctx context.Context, request *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfigurationResponse, error) {
	if !rolesOf(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}

	mode, known := applyModes()[request.GetMode()]
	if !known {
		return nil, status.Errorf(codes.InvalidArgument, "unsupported mode %d", request.GetMode())
	}

	reply, err := m.world.ApplyConfig(ctx, m.node, request.GetData(), mode, request.GetDryRun())
	if err != nil {
		return nil, statusOf(err)
	}

	answer := &machine.ApplyConfiguration{Mode: request.GetMode(), ModeDetails: reply.Details, Warnings: reply.Warnings}

	for used, name := range applyModes() {
		if name == reply.Mode {
			answer.Mode = used
		}
	}

	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{answer}}, nil
}

func applyModes() map[machine.ApplyConfigurationRequest_Mode]model.ApplyMode {
	return map[machine.ApplyConfigurationRequest_Mode]model.ApplyMode{
		machine.ApplyConfigurationRequest_REBOOT:    model.ApplyReboot, //nolint:staticcheck // up to Talos 1.13
		machine.ApplyConfigurationRequest_AUTO:      model.ApplyAuto,
		machine.ApplyConfigurationRequest_NO_REBOOT: model.ApplyNoReboot,
		machine.ApplyConfigurationRequest_STAGED:    model.ApplyStaged,
		machine.ApplyConfigurationRequest_TRY:       model.ApplyTry,
	}
}
