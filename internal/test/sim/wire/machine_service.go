// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

const (
	bootIDPath  = "/proc/sys/kernel/random/boot_id"
	memoryTotal = 4 << 20 // KiB
	memoryFree  = 1 << 20 // KiB
)

// machineService is machine.MachineService of one machine.
type machineService struct {
	machine.UnimplementedMachineServiceServer

	world      *model.World
	node       string // address
	role       model.Role
	kubeconfig func() ([]byte, error)
}

// Version implements machine.MachineServiceServer.
func (m *machineService) Version(ctx context.Context, _ *emptypb.Empty) (*machine.VersionResponse, error) {
	state, err := m.observe(ctx, "version")
	if err != nil {
		return nil, err
	}

	mode := "cloud"
	if state.Platform == "metal" {
		mode = "metal"
	}

	return &machine.VersionResponse{Messages: []*machine.Version{{
		Version: &machine.VersionInfo{
			Tag: state.TalosTag, Sha: "simulated", Built: "", GoVersion: "go1.26.5", Os: "linux", Arch: "amd64",
		},
		Platform: &machine.PlatformInfo{Name: state.Platform, Mode: mode},
		Features: &machine.FeaturesInfo{Rbac: true},
	}}}, nil
}

// Hostname implements machine.MachineServiceServer.
func (m *machineService) Hostname(ctx context.Context, _ *emptypb.Empty) (*machine.HostnameResponse, error) {
	state, err := m.observe(ctx, "hostname")
	if err != nil {
		return nil, err
	}

	return &machine.HostnameResponse{Messages: []*machine.Hostname{{Hostname: state.Name}}}, nil
}

// Memory implements machine.MachineServiceServer.
func (m *machineService) Memory(ctx context.Context, _ *emptypb.Empty) (*machine.MemoryResponse, error) {
	if _, err := m.observe(ctx, "memory"); err != nil {
		return nil, err
	}

	return &machine.MemoryResponse{Messages: []*machine.Memory{{
		Meminfo: &machine.MemInfo{Memtotal: memoryTotal, Memfree: memoryFree, Memavailable: memoryFree},
	}}}, nil
}

// SystemStat implements machine.MachineServiceServer.
func (m *machineService) SystemStat(ctx context.Context, _ *emptypb.Empty) (*machine.SystemStatResponse, error) {
	state, err := m.observe(ctx, "system")
	if err != nil {
		return nil, err
	}

	return &machine.SystemStatResponse{Messages: []*machine.SystemStat{{
		BootTime: uint64(state.BootedAt.Unix()), ProcessRunning: 1, //nolint:gosec // an instant after 1970
		CpuTotal: &machine.CPUStat{}, SoftIrq: &machine.SoftIRQStat{},
	}}}, nil
}

// ServiceList implements machine.MachineServiceServer.
func (m *machineService) ServiceList(ctx context.Context, _ *emptypb.Empty) (*machine.ServiceListResponse, error) {
	state, err := m.observe(ctx, "services")
	if err != nil {
		return nil, err
	}

	list := &machine.ServiceList{}
	for _, service := range servicesOf(state) {
		list.Services = append(list.Services, service.info())
	}

	return &machine.ServiceListResponse{Messages: []*machine.ServiceList{list}}, nil
}

// Read implements machine.MachineServiceServer. Machines here have one file:
// the kernel's boot ID.
func (m *machineService) Read(request *machine.ReadRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	if request.GetPath() != bootIDPath {
		return status.Errorf(codes.Unknown, "stat %s: no such file or directory", request.GetPath())
	}

	id, err := m.world.ReadBootID(stream.Context(), m.node)
	if err != nil {
		return statusOf(err)
	}

	return stream.Send(&common.Data{Bytes: []byte(id + "\n")})
}

// Kubeconfig implements machine.MachineServiceServer: a compressed archive
// with one file.
func (m *machineService) Kubeconfig(_ *emptypb.Empty, stream grpc.ServerStreamingServer[common.Data]) error {
	if m.role != model.ControlPlane {
		return status.Error(codes.Unimplemented, "kubeconfig is only available on control plane nodes")
	}

	if m.kubeconfig == nil {
		return status.Error(codes.Unavailable, "kubeconfig is not available yet")
	}

	content, err := m.kubeconfig()
	if err != nil {
		return status.Error(codes.Unknown, err.Error())
	}

	archive, err := pack("kubeconfig", content)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}

	return stream.Send(&common.Data{Bytes: archive})
}

func pack(name string, content []byte) ([]byte, error) {
	const mode = 0o600

	var buffer bytes.Buffer

	compressed := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(compressed)

	err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: mode})
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}

	if _, err := archive.Write(content); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}

	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}

	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}

	return buffer.Bytes(), nil
}
