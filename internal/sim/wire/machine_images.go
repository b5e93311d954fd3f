// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
)

// ImageList implements machine.MachineServiceServer.
func (m *machineService) ImageList(request *machine.ImageListRequest, stream grpc.ServerStreamingServer[machine.ImageListResponse]) error {
	list, err := imagesIn(stream.Context(), m.world, m.node, request.GetNamespace())
	if err != nil {
		return err
	}

	for _, image := range list {
		if err := stream.Send(&machine.ImageListResponse{
			Name: image.Name, Digest: image.Digest, Size: image.Size, CreatedAt: timestamppb.New(image.Created),
		}); err != nil {
			return err
		}
	}

	return nil
}

// List implements machine.ImageServiceServer.
func (i *imageService) List(request *machine.ImageServiceListRequest, stream grpc.ServerStreamingServer[machine.ImageServiceListResponse]) error {
	if err := checkInstance(request.GetContainerd()); err != nil {
		return err
	}

	if request.GetContainerd().GetDriver() == common.ContainerDriver_CONTAINERD {
		// The containerd of Talos itself has nothing that a client has put there.
		return nil
	}

	list, err := imagesIn(stream.Context(), i.world, i.node, request.GetContainerd().GetNamespace())
	if err != nil {
		return err
	}

	for _, image := range list {
		if err := stream.Send(&machine.ImageServiceListResponse{
			Name: image.Name, Digest: image.Digest, Size: image.Size, CreatedAt: timestamppb.New(image.Created),
		}); err != nil {
			return err
		}
	}

	return nil
}

// imagesIn are the images of a machine in one of the namespaces of the containerd
// of its kubelet.
func imagesIn(ctx context.Context, world *model.World, node string, in common.ContainerdNamespace) ([]model.Image, error) {
	namespace, known := map[common.ContainerdNamespace]model.ImageNamespace{
		common.ContainerdNamespace_NS_SYSTEM: model.NamespaceSystem, common.ContainerdNamespace_NS_CRI: model.NamespaceCRI,
	}[in]
	if !known {
		return nil, status.Errorf(codes.InvalidArgument, "unsupported namespace %s", in)
	}

	list, err := world.Images(ctx, node, namespace)

	return list, statusOf(err)
}
