// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"path/filepath"
)

// Containerd returns the directory that has containerd, its shim and ctr, as
// internal/tools/containerd pins them. The first call on a machine compiles them.
func Containerd(ctx context.Context, options Options) (string, error) {
	const what = "containerd, its shim and ctr"

	return ensureModule(ctx, "containerd", "containerd", options, func(ctx context.Context, module, dir string) error {
		return build{
			dir:    module,
			output: dir + string(filepath.Separator),
			packages: []string{
				"github.com/containerd/containerd/v2/cmd/containerd",
				"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
				"github.com/containerd/containerd/v2/cmd/ctr",
			},
			what: what,
		}.announced(ctx, options.progress(), "building "+what+" for real machines: once, a minute or two")
	})
}
