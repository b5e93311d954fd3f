// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// logChunk is how many bytes of a log come in one message, whatever lines they
// are of.
const logChunk = 1000

// Logs implements machine.MachineServiceServer for the services of Talos. Those
// of containers are not simulated, nor is following a log.
func (m *machineService) Logs(request *machine.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if request.GetNamespace() != constants.SystemContainerdNamespace && request.GetId() != model.KubeletName {
		return status.Errorf(codes.Unknown, "container %q not found", request.GetId())
	}

	if request.GetFollow() {
		return status.Error(codes.Unimplemented, "following a log is not simulated")
	}

	lines, err := m.world.Logs(stream.Context(), m.node, request.GetId(), int(request.GetTailLines()))
	if err != nil {
		return statusOf(err)
	}

	text := strings.Join(append(lines, ""), "\n")

	for chunk := range slices.Chunk([]byte(text), logChunk) {
		if err := stream.Send(&common.Data{Bytes: chunk}); err != nil {
			return err
		}
	}

	return nil
}
