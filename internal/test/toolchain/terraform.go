// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
)

// pinnedTerraform is the name by which TALOSUPGRADE_CLI selects the Terraform that internal/tools/terraform pins.
const pinnedTerraform = "terraform-1.14"

// PinnedTerraform returns the Terraform that internal/tools/terraform pins, whatever TALOSUPGRADE_CLI and PATH are,
// for a test of something that older ones do not have. The first call on a machine compiles it. The backends that
// Terraform has in modules of their own, such as s3, are stubs in it.
func PinnedTerraform(ctx context.Context, options Options) (CLI, error) {
	path, err := pinned{
		name: NameTerraform, tool: "github.com/hashicorp/terraform",
		// It introduces itself as the release of the module, and not as "-dev".
		link:   "-X github.com/hashicorp/terraform/version.dev=no",
		notice: "building " + pinnedTerraform + ": once, some minutes",
	}.build(ctx, options)
	if err != nil {
		return CLI{}, err
	}

	cli, err := identify(ctx, path)
	if err != nil {
		return CLI{}, fmt.Errorf("%s (built): %w", path, err)
	}

	return cli, nil
}
