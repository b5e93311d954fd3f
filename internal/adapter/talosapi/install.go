// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// containerd is where images go: those of installers and kubelets into the
// system's namespace. Pull and install must name the same instance, or the
// installer does not find its image.
func containerd(namespace common.ContainerdNamespace) *common.ContainerdInstance {
	return &common.ContainerdInstance{Driver: common.ContainerDriver_CRI, Namespace: namespace}
}

// Install runs the installer of a pulled image beside the running system. A
// stream that ends without an exit code leaves the outcome unknown: the
// installer goes on without us.
func (c *Client) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	var (
		output lines
		exit   *int32
	)

	op := operation{
		what: fmt.Sprintf("install %s on %s", image, place(address)), node: address, timeout: installTimeout, mutates: true,
	}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.LifecycleClient.Upgrade(ctx, upgradeRequest(image))
		if err != nil {
			return err
		}

		exit, err = follow(stream, &output)

		return err
	})
	if err != nil {
		return cluster.Installation{Output: output.last()}, err
	}

	if exit == nil {
		return cluster.Installation{Output: output.last()}, fmt.Errorf(
			"unable to %s: %w: the installer's output ended without an exit code", op.what, cluster.ErrOutcomeUnknown)
	}

	return cluster.Installation{Exit: *exit, Output: output.last()}, nil
}

// InstallerIdle tells whether no installer runs on the node. It asks for an
// upgrade to an image without a name, which a node refuses after it has looked
// whether it is busy, and before it does anything.
func (c *Client) InstallerIdle(ctx context.Context, address string) (bool, error) {
	op := operation{what: "ask whether an installer runs on " + place(address), node: address, timeout: readTimeout}
	idle := false

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.LifecycleClient.Upgrade(ctx, upgradeRequest(""))
		if err == nil {
			_, err = stream.Recv()
		}

		idle = status.Code(err) == codes.InvalidArgument
		if idle {
			return nil
		}

		if err == nil || errors.Is(err, io.EOF) {
			return status.Error(codes.Internal, "the node took an upgrade without an image")
		}

		return err
	})
	if errors.Is(err, cluster.ErrBusy) {
		return false, nil
	}

	return idle, err
}

func upgradeRequest(image string) *machineapi.LifecycleServiceUpgradeRequest {
	return &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: containerd(common.ContainerdNamespace_NS_SYSTEM),
		Source:     &machineapi.InstallArtifactsSource{ImageName: image},
	}
}

type installStream interface {
	Recv() (*machineapi.LifecycleServiceUpgradeResponse, error)
}

// follow reads the stream to its end. The exit code is nil when none came.
func follow(stream installStream, output *lines) (*int32, error) {
	var exit *int32

	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return exit, nil
		}

		if err != nil && exit != nil {
			// The installer is done and said so; how the connection ended does
			// not matter.
			return exit, nil
		}

		if err != nil {
			return nil, err
		}

		switch progress := response.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			output.write(progress.Message)
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			exit = &progress.ExitCode
		}
	}
}
