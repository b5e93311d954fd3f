// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
)

// buildOpenTofu returns the path of the OpenTofu that internal/tools/tofu pins. The
// first call on a machine compiles it.
func buildOpenTofu(ctx context.Context, options Options) (string, error) {
	path, err := pinned{
		name: NameOpenTofu, tool: "github.com/opentofu/opentofu/cmd/tofu",
		// It introduces itself as the release of the module, as published builds of OpenTofu do, and not as "-dev".
		link:   "-X github.com/opentofu/opentofu/version.dev=no",
		notice: "tofu is not on PATH: building it, once, some minutes",
	}.build(ctx, options)
	if err != nil {
		return "", fmt.Errorf("put tofu 1.7 or newer on PATH: building it failed: %w", err)
	}

	return path, nil
}
