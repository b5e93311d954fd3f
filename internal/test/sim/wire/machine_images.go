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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// ImageList implements machine.MachineServiceServer.
func (m *machineService) ImageList(request *machine.ImageListRequest, stream grpc.ServerStreamingServer[machine.ImageListResponse]) error {
	in, err := namespaceOf(kubeletContainerd(request.GetNamespace()))
	if err != nil {
		return err
	}

	list, err := m.world.Images(stream.Context(), m.node, in)
	if err != nil {
		return statusOf(err)
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
	in, err := namespaceOf(request.GetContainerd())
	if err != nil {
		return err
	}

	list, err := i.world.Images(stream.Context(), i.node, in)
	if err != nil {
		return statusOf(err)
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

// Remove implements machine.ImageServiceServer.
func (i *imageService) Remove(ctx context.Context, request *machine.ImageServiceRemoveRequest) (*emptypb.Empty, error) {
	in, err := namespaceOf(request.GetContainerd())
	if err != nil {
		return nil, err
	}

	if err := i.world.RemoveImage(ctx, i.node, request.GetImageRef(), in); err != nil {
		return nil, statusOf(err)
	}

	return &emptypb.Empty{}, nil
}

// kubeletContainerd is the only instance that the older calls know.
func kubeletContainerd(namespace common.ContainerdNamespace) *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: namespace}
}

// namespaceOf is where a containerd instance of a machine keeps its images.
func namespaceOf(instance *common.ContainerdInstance) (model.ImageNamespace, error) {
	if err := checkInstance(instance); err != nil {
		return "", err
	}

	switch {
	case instance.GetDriver() == common.ContainerDriver_CONTAINERD:
		return model.NamespaceOwn, nil
	case instance.GetNamespace() == common.ContainerdNamespace_NS_CRI:
		return model.NamespaceCRI, nil
	case instance.GetNamespace() == common.ContainerdNamespace_NS_SYSTEM:
		return model.NamespaceSystem, nil
	default:
		return "", status.Errorf(codes.InvalidArgument, "unsupported namespace %s", instance.GetNamespace())
	}
}
