// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"path/filepath"
)

// pinned is a program that a module of its own in internal/tools pins.
type pinned struct {
	// name is that of the module's directory and of the program, tool the package
	// that the module's tool directive names.
	name, tool string
	// link has flags for the linker.
	link string
	// notice is printed before the build, for a person who waits for it.
	notice string
}

// build returns the path of the program. The first call on a machine compiles it.
func (p pinned) build(ctx context.Context, options Options) (string, error) {
	dir, err := ensureModule(ctx, p.name, p.name, options, func(ctx context.Context, module, dir string) error {
		return p.compile(ctx, module, dir, options)
	})
	if err != nil {
		return "", err
	}

	return filepath.Join(dir, executable(p.name)), nil
}

// ensureModule returns a directory of the cache, named after the title, with what a module in internal/tools pins. If
// it is missing, compile fills it.
func ensureModule(
	ctx context.Context, name, title string, options Options, compile func(ctx context.Context, module, dir string) error,
) (string, error) {
	root, cache, err := places()
	if err != nil {
		return "", err
	}

	module := filepath.Join(root, "internal", "tools", name)

	key, err := moduleKey(ctx, module)
	if err != nil {
		return "", err
	}

	return entry{cache: cache, name: title + "-" + key}.ensure(ctx, options.progress(),
		func(ctx context.Context, dir string) error { return compile(ctx, module, dir) })
}

func (p pinned) compile(ctx context.Context, module, dir string, options Options) error {
	return build{
		dir:      module,
		output:   dir + string(filepath.Separator),
		packages: []string{p.tool},
		link:     p.link,
		what:     p.name,
	}.announced(ctx, options.progress(), p.notice)
}
