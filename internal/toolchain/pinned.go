// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// pinned is a program that a module of its own in internal/tools pins.
type pinned struct {
	// name is that of the module's directory and of the program, tool the package
	// that the module's tool directive names.
	name, tool string
	// link is for the linker.
	link string
	// notice is what a person reads who waits for it.
	notice string
}

// build returns the path of the program. The first call on a machine compiles it.
func (p pinned) build(ctx context.Context, options Options) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}

	cache, err := CacheDir()
	if err != nil {
		return "", err
	}

	module := filepath.Join(root, "internal", "tools", p.name)

	key, err := moduleKey(ctx, module)
	if err != nil {
		return "", err
	}

	dir, err := entry{cache: cache, name: p.name + "-" + key}.ensure(ctx, options.progress(),
		func(ctx context.Context, dir string) error { return p.compile(ctx, module, dir, options) })
	if err != nil {
		return "", err
	}

	return filepath.Join(dir, executable(p.name)), nil
}

func (p pinned) compile(ctx context.Context, module, dir string, options Options) error {
	progress := options.progress()
	started := time.Now()

	fmt.Fprintln(progress, p.notice)

	err := build{
		dir:      module,
		output:   dir + string(filepath.Separator),
		packages: []string{p.tool},
		link:     p.link,
		what:     p.name,
	}.run(ctx, progress)
	if err != nil {
		return err
	}

	fmt.Fprintf(progress, "built %s in %s\n", p.name, time.Since(started).Round(time.Second))

	return nil
}
