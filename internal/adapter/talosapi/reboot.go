// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Reboot asks a node to reboot. It returns when the node has accepted.
func (c *Client) Reboot(ctx context.Context, address string, mode cluster.RebootMode) error {
	op := operation{what: "reboot " + place(address), node: address, timeout: rebootTimeout, mutates: true}

	request := &machineapi.RebootRequest{Mode: machineapi.RebootRequest_DEFAULT}
	if mode == cluster.RebootPowercycle {
		request.Mode = machineapi.RebootRequest_POWERCYCLE
	}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		_, err := api.MachineClient.Reboot(ctx, request)

		return err
	})
}
