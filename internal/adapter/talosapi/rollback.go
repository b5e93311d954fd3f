// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Rollback makes a node start its previous system, and reboot. It returns when
// the bootloader was changed.
func (c *Client) Rollback(ctx context.Context, address string) error {
	op := operation{what: "roll back " + place(address), node: address, timeout: rebootTimeout, mutates: true}

	return c.call(ctx, op, func(ctx context.Context, api *client.Client) error {
		return namedRollback(api.Rollback(ctx))
	})
}

// namedRollback gives the answer of a bootloader that has no other system to
// start, GRUB's or that of sd-boot, the code that it lacks.
func namedRollback(err error) error {
	text := status.Convert(err).Message()

	if err != nil && (strings.Contains(text, "cannot rollback to") || strings.Contains(text, "previous UKI not found")) {
		return status.Error(codes.FailedPrecondition, text)
	}

	return err
}
