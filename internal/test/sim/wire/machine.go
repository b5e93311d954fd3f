// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

// Read implements machine.MachineServiceServer. Machines here have one file: the kernel's boot ID.
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

// Kubeconfig implements machine.MachineServiceServer: it sends a compressed archive with one file.
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

const (
	healthTimeout = 5 * time.Minute
	healthPause   = 5037 * time.Millisecond
)

// clusterService is cluster.ClusterService, which "talosctl health" calls.
type clusterService struct {
	cluster.UnimplementedClusterServiceServer

	world *model.World
	role  model.Role
}

// HealthCheck implements cluster.ClusterServiceServer: it waits until all
// machines are ready, for as long as the caller allows in simulated time.
func (c *clusterService) HealthCheck(
	request *cluster.HealthCheckRequest, stream grpc.ServerStreamingServer[cluster.HealthCheckProgress],
) error {
	if c.role != model.ControlPlane {
		return status.Error(codes.Unimplemented, "HealthCheck is only available on control plane nodes")
	}

	limit := request.GetWaitTimeout().AsDuration()
	if limit <= 0 {
		limit = healthTimeout
	}

	for began := c.world.Now(); ; {
		unhealthy := c.unhealthy()

		message := "waiting for all machines to be ready: OK"
		if unhealthy != "" {
			message = "waiting for all machines to be ready: " + unhealthy
		}

		if err := stream.Send(&cluster.HealthCheckProgress{Message: message}); err != nil {
			return err
		}

		if unhealthy == "" {
			return nil
		}

		if c.world.Now()-began >= limit {
			return status.Error(codes.DeadlineExceeded, unhealthy)
		}

		if err := c.pause(stream.Context()); err != nil {
			return err
		}
	}
}

func (c *clusterService) pause(ctx context.Context) error {
	return statusOf(c.world.Clock().Sleep(ctx, healthPause))
}

func (c *clusterService) unhealthy() string {
	if !c.world.EtcdQuorum() {
		return "etcd has no quorum"
	}

	for _, state := range c.world.Nodes() {
		if !state.Reachable || state.Stage != model.StageRunning || !state.Ready {
			return fmt.Sprintf("%s is %s and not ready", state.Name, state.Stage)
		}
	}

	return ""
}

// ApplyConfiguration implements machine.MachineServiceServer. The gate lets readers pass, because a machine without
// a configuration takes one from anybody.
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

const (
	rootSize  = 72 << 20  // bytes, of which none are free
	stateSize = 100 << 20 // bytes
	stateFree = 92 << 20  // bytes
)

// Mounts implements machine.MachineServiceServer. Sizes are in bytes; as on a real machine, some file systems have
// none.
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

// mountsOf returns the mounts of a machine. What is bound into /var, and the images of containers, show the size of
// the file system below them.
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

// logChunk is how many bytes of a log are in one message, regardless of lines.
const logChunk = 1000

// Logs implements machine.MachineServiceServer for the services of Talos and the
// containers of static pods. Following a log is not simulated.
func (m *machineService) Logs(request *machine.LogsRequest, stream grpc.ServerStreamingServer[common.Data]) error {
	container := request.GetNamespace() != constants.SystemContainerdNamespace && request.GetId() != model.KubeletName

	if request.GetFollow() {
		return status.Error(codes.Unimplemented, "following a log is not simulated")
	}

	lines, err := m.world.Logs(stream.Context(), m.node, request.GetId(), int(request.GetTailLines()))

	switch {
	case container && (errors.Is(err, model.ErrNoLog) || !strings.Contains(request.GetId(), "/")):
		return status.Errorf(codes.Unknown, "container %q not found", request.GetId())
	case err != nil:
		return statusOf(err)
	case container:
		// The container runtime keeps them in this form.
		for i := range lines {
			lines[i] = time.Now().UTC().Format(time.RFC3339Nano) + " stderr F " + lines[i]
		}
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

// Events implements machine.MachineServiceServer: an empty event first, then the requested ones, until the machine
// goes down.
func (m *machineService) Events(request *machine.EventsRequest, stream grpc.ServerStreamingServer[machine.Event]) error {
	if err := stream.Send(&machine.Event{}); err != nil {
		return err
	}

	tail := model.Tail{
		Count: int(request.GetTailEvents()), AfterID: request.GetTailId(),
		Since: time.Duration(request.GetTailSeconds()) * time.Second,
	}

	err := m.world.Follow(stream.Context(), m.node, tail, func(event model.Event) error {
		if actor := request.GetWithActorId(); actor != "" && event.Actor != actor {
			return nil
		}

		return m.send(event, stream)
	})

	return statusOf(err)
}

func (m *machineService) send(event model.Event, stream grpc.ServerStreamingServer[machine.Event]) error {
	payload := eventPayload(event)

	value, err := proto.Marshal(payload)
	if err != nil {
		return err
	}

	return stream.Send(&machine.Event{
		Id: event.ID, ActorId: event.Actor,
		// Talos has its own prefix here.
		Data: &anypb.Any{TypeUrl: "talos/runtime/" + string(proto.MessageName(payload)), Value: value},
	})
}

func eventPayload(event model.Event) proto.Message {
	switch event.Kind {
	case model.EventPhase:
		return &machine.PhaseEvent{
			Phase: event.Name, Action: machine.PhaseEvent_Action(startOrStop(event.Action)),
		}
	case model.EventTask:
		return &machine.TaskEvent{Task: event.Name, Action: machine.TaskEvent_Action(startOrStop(event.Action))}
	case model.EventService:
		return &machine.ServiceStateEvent{
			Service: event.Name, Action: machine.ServiceStateEvent_RUNNING, Message: "Health check successful",
			Health: &machine.ServiceHealth{Healthy: true},
		}
	case model.EventStage:
		return stageEvent(event)
	default:
		return sequenceEvent(event)
	}
}

func startOrStop(action string) int32 {
	if action == model.ActionStop {
		return int32(machine.PhaseEvent_STOP)
	}

	return int32(machine.PhaseEvent_START)
}

func sequenceEvent(event model.Event) *machine.SequenceEvent {
	converted := &machine.SequenceEvent{Sequence: event.Name}

	switch event.Action {
	case model.ActionStart:
		converted.Action = machine.SequenceEvent_START
	case model.ActionStop:
		converted.Action = machine.SequenceEvent_STOP
	default:
		converted.Action = machine.SequenceEvent_NOOP
	}

	if event.Error != "" {
		converted.Error = &common.Error{Code: common.Code_FATAL, Message: event.Error}
		if event.Locked {
			converted.Error.Code = common.Code_LOCKED
		}
	}

	return converted
}

func stageEvent(event model.Event) *machine.MachineStatusEvent {
	converted := &machine.MachineStatusEvent{
		Stage:  machine.MachineStatusEvent_MachineStage(stageOf(model.Stage(event.Name))),
		Status: &machine.MachineStatusEvent_MachineStatus{Ready: event.Ready},
	}

	for _, unmet := range event.Unmet {
		converted.Status.UnmetConditions = append(converted.Status.UnmetConditions,
			&machine.MachineStatusEvent_MachineStatus_UnmetCondition{Name: unmet.Name, Reason: unmet.Reason})
	}

	return converted
}

// services returns what the machine offers in the version that runs. The server itself answers calls that it does
// not know as unimplemented.
func (s *station) services(running model.NodeState) *grpc.Server {
	guard := gate{node: s.node, recorder: s.server.world, called: s.server.world.Called, sync: s.server.sync}

	services := grpc.NewServer(
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(guard.unary),
		grpc.StreamInterceptor(guard.stream),
	)

	machine.RegisterMachineServiceServer(services, &machineService{
		world: s.server.world, node: s.address, role: s.role, kubeconfig: s.server.kubeconfig,
	})

	if model.AtLeast(running.Talos, 1, 13) {
		machine.RegisterImageServiceServer(services, &imageService{world: s.server.world, node: s.address})
		machine.RegisterLifecycleServiceServer(services, &lifecycleService{world: s.server.world, node: s.address})
	}

	cluster.RegisterClusterServiceServer(services, &clusterService{world: s.server.world, role: s.role})
	cosi.RegisterStateServer(services, server.NewState(state.Filter(s.resources, s.access(running.Talos))))

	return services
}

// checkInstance checks whether a containerd instance exists.
func checkInstance(instance *common.ContainerdInstance) error {
	switch {
	case instance == nil:
		return status.Error(codes.InvalidArgument, "invalid containerd driver/namespace <nil>")
	case instance.GetDriver() == common.ContainerDriver_CONTAINERD &&
		instance.GetNamespace() == common.ContainerdNamespace_NS_CRI:
		return status.Error(codes.InvalidArgument, "cannot use CRI namespace with containerd driver")
	default:
		return nil
	}
}

// imageService is machine.ImageService, from Talos 1.13 on.
type imageService struct {
	machine.UnimplementedImageServiceServer

	world *model.World
	node  string
}

// Pull implements machine.ImageServiceServer.
func (i *imageService) Pull(
	request *machine.ImageServicePullRequest, stream grpc.ServerStreamingServer[machine.ImageServicePullResponse],
) error {
	if err := checkInstance(request.GetContainerd()); err != nil {
		return err
	}

	into, err := namespaceOf(request.GetContainerd())
	if err != nil {
		return err
	}

	name, err := pull(stream.Context(), i.world, i.node, request.GetImageRef(), into, func(progress model.Progress) {
		// If the caller is gone, the context of the pull has ended.
		_ = stream.Send(layerProgress(progress))
	})
	if err != nil {
		return pullStatus(err)
	}

	return stream.Send(&machine.ImageServicePullResponse{
		Response: &machine.ImageServicePullResponse_Name{Name: name},
	})
}

func pullStatus(err error) error {
	converted := status.Convert(statusOf(err))
	if converted.Code() == codes.NotFound {
		return status.Error(codes.NotFound, "error pulling image: "+converted.Message())
	}

	return converted.Err()
}

func layerProgress(progress model.Progress) *machine.ImageServicePullResponse {
	stage := machine.ImageServicePullLayerProgress_DOWNLOADING
	if progress.Offset >= progress.Total {
		stage = machine.ImageServicePullLayerProgress_DOWNLOAD_COMPLETE
	}

	return &machine.ImageServicePullResponse{
		Response: &machine.ImageServicePullResponse_PullProgress{
			PullProgress: &machine.ImageServicePullProgress{
				LayerId: "layer-0",
				Progress: &machine.ImageServicePullLayerProgress{
					Status: stage, Offset: progress.Offset, Total: progress.Total,
				},
			},
		},
	}
}

// lifecycleService is machine.LifecycleService, from Talos 1.13 on.
type lifecycleService struct {
	machine.UnimplementedLifecycleServiceServer

	world *model.World
	node  string
}

// Upgrade implements machine.LifecycleServiceServer. It writes a system and
// does not reboot.
func (l *lifecycleService) Upgrade(
	request *machine.LifecycleServiceUpgradeRequest,
	stream grpc.ServerStreamingServer[machine.LifecycleServiceUpgradeResponse],
) error {
	from, err := namespaceOf(request.GetContainerd())
	if err != nil {
		return err
	}

	exit, err := l.world.InstallFrom(stream.Context(), l.node, request.GetSource().GetImageName(), from, func(line string) {
		// If the caller is gone, the context of the installation has ended.
		_ = stream.Send(installProgress(&machine.LifecycleServiceInstallProgress{
			Response: &machine.LifecycleServiceInstallProgress_Message{Message: line + "\n"},
		}))
	})

	converted := statusOf(err)

	switch {
	case status.Code(converted) == codes.Internal:
		return status.Error(codes.Internal, "upgrade failed: "+err.Error())
	case err != nil:
		return converted
	}

	return stream.Send(installProgress(&machine.LifecycleServiceInstallProgress{
		Response: &machine.LifecycleServiceInstallProgress_ExitCode{ExitCode: int32(exit)}, //nolint:gosec // an exit code
	}))
}

func installProgress(progress *machine.LifecycleServiceInstallProgress) *machine.LifecycleServiceUpgradeResponse {
	return &machine.LifecycleServiceUpgradeResponse{Progress: progress}
}

// Install implements machine.LifecycleServiceServer.
func (l *lifecycleService) Install(
	*machine.LifecycleServiceInstallRequest, grpc.ServerStreamingServer[machine.LifecycleServiceInstallResponse],
) error {
	return status.Error(codes.AlreadyExists, "Talos is already installed")
}

// observe asks the model for a call.
func (m *machineService) observe(ctx context.Context, what string) (model.NodeState, error) {
	state, err := m.world.Observe(ctx, m.node, what)

	return state, statusOf(err)
}

// service is one of a machine's own services.
type service struct {
	id               string
	running, healthy bool
	// unwatched services have no health check.
	unwatched bool
	// absent services are known but not there now.
	absent bool
	since  time.Time
}

func servicesOf(state model.NodeState) []service {
	kubelet := state.KubeletService

	list := []service{
		{id: "apid", running: true, healthy: true},
		{id: "auditd", running: true, healthy: true},
		{id: "containerd", running: true, healthy: true},
		{id: "cri", running: true, healthy: true},
		{
			id: model.KubeletName, running: kubelet.Running, healthy: kubelet.Healthy,
			absent: kubelet.Since.IsZero(), since: kubelet.Since,
		},
		{id: "machined", running: true, healthy: true},
		{id: "syslogd", running: true, unwatched: true},
		{id: "udevd", running: true, healthy: true},
	}

	if state.Role == model.ControlPlane {
		list = append(list,
			service{id: "etcd", running: state.EtcdRunning, healthy: state.EtcdServed},
			service{id: "trustd", running: true, healthy: true})
	}

	for i := range list {
		if list[i].since.IsZero() {
			list[i].since = state.BootedAt
		}
	}

	return list
}

// info returns the service as machines list it, with its last events.
func (s service) info() *machine.ServiceInfo {
	at := timestamppb.New(s.since)
	info := &machine.ServiceInfo{
		Id: s.id, State: "Finished",
		Health: &machine.ServiceHealth{Healthy: s.healthy, Unknown: s.unwatched, LastChange: at},
		Events: &machine.ServiceEvents{Events: []*machine.ServiceEvent{
			{Msg: "Running pre state", State: "Preparing", Ts: at},
		}},
	}

	last := &machine.ServiceEvent{Msg: "Service finished successfully", State: info.GetState(), Ts: at}
	if s.running {
		info.State = "Running"
		last = &machine.ServiceEvent{Msg: "Started task " + s.id, State: info.GetState(), Ts: at}
	}

	info.Events.Events = append(info.Events.Events, last)

	return info
}
