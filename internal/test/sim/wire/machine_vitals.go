// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	rootSize  = 72 << 20  // bytes, of which none are free
	stateSize = 100 << 20 // bytes
	stateFree = 92 << 20  // bytes
)

// Mounts implements machine.MachineServiceServer: sizes are in bytes, and like
// those of a real machine not all of the file systems have one.
func (m *machineService) Mounts(ctx context.Context, _ *emptypb.Empty) (*machine.MountsResponse, error) {
	vitals, err := m.world.Vitals(ctx, m.node)
	if err != nil {
		return nil, statusOf(err)
	}

	if vitals.Disk == nil {
		return nil, status.Error(codes.Unknown, "open /proc/mounts: input/output error")
	}

	return &machine.MountsResponse{Messages: []*machine.Mounts{{Stats: mountsOf(vitals)}}}, nil
}

// mountsOf are the mounts of a machine. What is bound into /var, and the images
// of containers, show the size of the file system below them.
func mountsOf(vitals model.Vitals) []*machine.MountStat {
	const ephemeral, volume, containerd = "/dev/sda6", "/dev/sdb1", "/var/lib/containerd"

	mounts := []*machine.MountStat{
		{Filesystem: "proc", MountedOn: "/proc"},
		{Filesystem: "/dev/loop0", MountedOn: "/", Size: rootSize},
		{Filesystem: "tmpfs", MountedOn: "/run", Size: stateSize, Available: stateFree},
		{Filesystem: "/dev/sda5", MountedOn: "/system/state", Size: stateSize, Available: stateFree},
		mount(ephemeral, "/var", vitals.Disk),
		mount("overlay", "/opt", vitals.Disk),
		mount(ephemeral, "/var/lib/kubelet", vitals.Disk),
	}

	if vitals.Containerd != nil {
		mounts = append(mounts, mount(volume, containerd, vitals.Containerd))
	}

	return mounts
}

func mount(filesystem, on string, disk *model.Disk) *machine.MountStat {
	return &machine.MountStat{
		Filesystem: filesystem, MountedOn: on,
		Size: uint64(disk.Size), Available: uint64(disk.Available), //nolint:gosec // sizes
	}
}

// EtcdSnapshot implements machine.MachineServiceServer.
func (m *machineService) EtcdSnapshot(_ *machine.EtcdSnapshotRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	return statusOf(m.world.EtcdSnapshot(stream.Context(), m.node, &dataWriter{stream}))
}

// dataWriter sends what is written to it, each time as one message.
type dataWriter struct {
	stream grpc.ServerStreamingServer[common.Data]
}

// Write implements io.Writer.
func (d *dataWriter) Write(bytes []byte) (int, error) {
	if err := d.stream.Send(&common.Data{Bytes: bytes}); err != nil {
		return 0, err
	}

	return len(bytes), nil
}
