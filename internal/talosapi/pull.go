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

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Pull brings an installer image onto the node. It is bounded by the caller's
// context and by [cluster.PullTimeout].
func (c *Client) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	op := operation{
		what: fmt.Sprintf("pull %s on %s", image, place(address)), node: address, timeout: cluster.PullTimeout, mutates: true,
	}

	if api == cluster.LegacyAPI {
		return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
			_, err := api.MachineClient.ImagePull(ctx, &machineapi.ImagePullRequest{ //nolint:staticcheck // all that Talos before 1.13 has
				Namespace: common.ContainerdNamespace_NS_SYSTEM,
				Reference: image,
			})

			return err
		})
	}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: containerd(), ImageRef: image})
		if err != nil {
			return err
		}

		return drain(stream)
	})
}

type pullStream interface {
	Recv() (*machineapi.ImageServicePullResponse, error)
}

// drain reads the progress of a pull to its end. Only the name of the image,
// which comes last, says that the image is there.
func drain(stream pullStream) error {
	pulled := false

	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) && pulled {
			return nil
		}

		if err != nil {
			// A clean end without a name is as lost as any other.
			return err
		}

		pulled = pulled || response.GetName() != ""
	}
}
