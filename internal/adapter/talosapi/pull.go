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
	return c.pull(ctx, address, image, api, common.ContainerdNamespace_NS_SYSTEM)
}

// PullComponent brings the image of a component onto the node: the kubelet's to
// where the system's containers are, every other one to where the kubelet looks
// for it. It is bounded like [Client.Pull].
func (c *Client) PullComponent(ctx context.Context, address string, component cluster.Component, image string) error {
	machine := cluster.Machine{Address: address}
	if err := c.readVersion(ctx, &machine); err != nil {
		return err
	}

	namespace := common.ContainerdNamespace_NS_CRI
	if component == cluster.Kubelet {
		namespace = common.ContainerdNamespace_NS_SYSTEM
	}

	err := c.pull(ctx, address, image, machine.UpgradeAPI(), namespace)
	if machine.UpgradeAPI() != cluster.LegacyAPI && errors.Is(err, cluster.ErrUnsupported) {
		// Nothing was pulled; the older call is there for some releases more.
		return c.pull(ctx, address, image, cluster.LegacyAPI, namespace)
	}

	return err
}

func (c *Client) pull(
	ctx context.Context, address, image string, api cluster.UpgradeAPI, namespace common.ContainerdNamespace,
) error {
	op := operation{
		what: fmt.Sprintf("pull %s on %s", image, place(address)), node: address, timeout: cluster.PullTimeout, mutates: true,
	}

	if api == cluster.LegacyAPI {
		return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
			_, err := api.MachineClient.ImagePull(ctx, &machineapi.ImagePullRequest{ //nolint:staticcheck // all that Talos before 1.13 has
				Namespace: namespace,
				Reference: image,
			})

			return err
		})
	}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.ImageClient.Pull(ctx, &machineapi.ImageServicePullRequest{Containerd: containerd(namespace), ImageRef: image})
		if err != nil {
			return err
		}

		return drain(stream)
	})
}

// ImageDigest is the digest of an installer image that the node has under exactly that
// reference; [cluster.ErrNotFound] where it has none. Talos before 1.13 does not
// tell: [cluster.ErrUnsupported].
func (c *Client) ImageDigest(ctx context.Context, address, image string) (string, error) {
	op := operation{what: "list the images of " + place(address), node: address, timeout: readTimeout}

	var digest string

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		stream, err := api.ImageClient.List(ctx, &machineapi.ImageServiceListRequest{Containerd: containerd(common.ContainerdNamespace_NS_SYSTEM)})

		for err == nil {
			var found *machineapi.ImageServiceListResponse

			if found, err = stream.Recv(); found.GetName() == image {
				digest = found.GetDigest()
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		return err
	})
	if err == nil && digest == "" {
		err = fmt.Errorf("unable to find %s on %s: %w", image, place(address), cluster.ErrNotFound)
	}

	return digest, err
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
