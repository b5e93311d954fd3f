// SPDX-License-Identifier: MPL-2.0

package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

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

// Upgrade implements machine.MachineServiceServer: the upgrade of all versions of Talos, which drains and reboots
// by itself.
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

// pull downloads an image into one of containerd's namespaces: an installer, unless into the namespace cri, or an
// image of Kubernetes.
func pull(
	ctx context.Context, world *model.World, node, image string, into model.ImageNamespace, progress func(model.Progress),
) (string, error) {
	switch {
	case into != model.NamespaceCRI && isInstaller(image):
		return world.PullInto(ctx, node, image, into, progress)
	default:
		return world.PullComponent(ctx, node, image, into, progress)
	}
}

// isInstaller reports by its name whether an image installs Talos: installer, metal-installer/<schematic>, and so
// on.
func isInstaller(image string) bool {
	repository, _, _ := strings.Cut(image, "@")

	return slices.ContainsFunc(strings.Split(repository, "/"), func(element string) bool {
		name, _, _ := strings.Cut(element, ":")

		return name == "installer" || strings.HasPrefix(name, "installer-") ||
			strings.HasSuffix(name, "-installer") || strings.HasSuffix(name, "-installer-secureboot")
	})
}

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

// kubeletContainerd returns the only instance that the older calls know.
func kubeletContainerd(namespace common.ContainerdNamespace) *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: namespace}
}

// namespaceOf returns the namespace in which a containerd instance of a machine keeps its images.
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
