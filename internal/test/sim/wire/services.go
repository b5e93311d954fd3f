// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/siderolabs/talos/pkg/machinery/api/cluster"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// services are what the machine offers in the version that runs: calls it does
// not know are answered as unimplemented by the server itself.
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

// checkInstance tells whether a containerd instance exists.
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
		// A caller that is gone shows in the context of the pull.
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
	if err := checkInstance(request.GetContainerd()); err != nil {
		return err
	}

	exit, err := l.world.Install(stream.Context(), l.node, request.GetSource().GetImageName(), func(line string) {
		// A caller that is gone shows in the context of the installation.
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

// observe asks the model on behalf of a call.
func (m *machineService) observe(ctx context.Context, what string) (model.NodeState, error) {
	state, err := m.world.Observe(ctx, m.node, what)

	return state, statusOf(err)
}
