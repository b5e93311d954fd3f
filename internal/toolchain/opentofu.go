// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

const (
	// openTofuPackage is the tool directive of internal/tools/tofu.
	openTofuPackage = "github.com/opentofu/opentofu/cmd/tofu"
	// openTofuRelease makes the binary introduce itself as the release that the module
	// is, as those that OpenTofu publishes do; without it, it is a "-dev" one.
	openTofuRelease = "-X github.com/opentofu/opentofu/version.dev=no"
)

// buildOpenTofu returns the path of the OpenTofu that internal/tools/tofu pins. The
// first call on a machine compiles it.
func buildOpenTofu(ctx context.Context, options Options) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}

	cache, err := CacheDir()
	if err != nil {
		return "", err
	}

	module := filepath.Join(root, "internal", "tools", "tofu")

	name, err := moduleKey(ctx, module)
	if err != nil {
		return "", err
	}

	dir, err := entry{cache: cache, name: "tofu-" + name}.ensure(ctx, options.progress(),
		func(ctx context.Context, dir string) error { return compileOpenTofu(ctx, module, dir, options) })
	if err != nil {
		return "", fmt.Errorf("put tofu 1.7 or newer on PATH: building it failed: %w", err)
	}

	return filepath.Join(dir, executable(NameOpenTofu)), nil
}

func compileOpenTofu(ctx context.Context, module, dir string, options Options) error {
	progress := options.progress()
	started := time.Now()

	fmt.Fprintln(progress, "tofu is not on PATH: building it, once, some minutes")

	err := build{
		dir:      module,
		output:   dir + string(filepath.Separator),
		packages: []string{openTofuPackage},
		link:     openTofuRelease,
		what:     "tofu",
	}.run(ctx, progress)
	if err != nil {
		return err
	}

	fmt.Fprintf(progress, "built tofu in %s\n", time.Since(started).Round(time.Second))

	return nil
}
