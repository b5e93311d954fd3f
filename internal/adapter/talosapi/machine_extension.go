// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"slices"

	extensionspb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/extensions"
	"google.golang.org/protobuf/proto"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// The Image Factory marks its images with a pseudo extension whose version is
// the schematic. Talos itself adds another one for the kernel modules.
const (
	schematicExtension = "schematic"
	modulesExtension   = "modules.dep"
)

func (c *Client) readExtensions(ctx context.Context, machine *cluster.Machine) error {
	err := c.resources(ctx, machine.Address, kindExtension(), func(spec []byte) error {
		var layer extensionspb.Layer
		if err := proto.Unmarshal(spec, &layer); err != nil {
			return err
		}

		switch name := layer.GetMetadata().GetName(); name {
		case schematicExtension:
			machine.Schematic = layer.GetMetadata().GetVersion()
		case modulesExtension, "":
		default:
			machine.Extensions = append(machine.Extensions, name)
		}

		return nil
	})

	slices.Sort(machine.Extensions)

	return err
}
