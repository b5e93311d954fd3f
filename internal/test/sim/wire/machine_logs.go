// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
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

// Dmesg implements machine.MachineServiceServer. Following it is not simulated.
func (m *machineService) Dmesg(request *machine.DmesgRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if request.GetFollow() || request.GetTail() {
		return status.Error(codes.Unimplemented, "following the kernel's log is not simulated")
	}

	messages, err := m.world.Dmesg(stream.Context(), m.node)
	if err != nil {
		return statusOf(err)
	}

	for _, said := range messages {
		line := fmt.Sprintf("%s: %7s: [%s]: %s\n", said.Facility, said.Priority, said.At.UTC().Format(time.RFC3339Nano), said.Text)
		if err := stream.Send(&common.Data{Bytes: []byte(line)}); err != nil {
			return err
		}
	}

	return nil
}
