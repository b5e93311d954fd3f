// SPDX-License-Identifier: MPL-2.0

// Package toolchain finds, builds or fetches the programs that the tests, the simulator and the demo run: the
// Kubernetes binaries, a Terraform or OpenTofu command and the provider itself. What it builds or fetches goes into a
// cache that git ignores, once, whichever process asks first.
package toolchain

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
)

// CacheVariable names the environment variable that sets the directory of the cache.
const CacheVariable = "TALOSUPGRADE_CACHE"

const modulePath = "github.com/vitistack/terraform-provider-talosupgrade"

// Options apply to everything in this package.
type Options struct {
	// Progress receives a few lines of text about what takes time; nil drops them. On a [Terminal] the progress is a
	// line that is rewritten.
	Progress io.Writer
}

func (o Options) progress() io.Writer {
	if o.Progress == nil {
		return io.Discard
	}

	return o.Progress
}

// ModuleRoot returns the directory of this module's go.mod. It is searched above the working directory and above the
// file that this code was compiled from.
func ModuleRoot() (string, error) {
	var starts []string

	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}

	// The path is not absolute in binaries built with -trimpath, which have to run within the source tree.
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}

	for _, start := range starts {
		if root, ok := moduleRootAbove(start); ok {
			return root, nil
		}
	}

	return "", fmt.Errorf("no go.mod of %s above %s: run this from within the source tree",
		modulePath, strings.Join(starts, " or "))
}

// moduleRootAbove walks up from dir, past nested modules.
func moduleRootAbove(dir string) (string, bool) {
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(content) == modulePath {
			return dir, true
		}

		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}

		dir = parent
	}
}

// places returns the module root and the directory of the cache.
func places() (root, cache string, err error) {
	if root, err = ModuleRoot(); err != nil {
		return "", "", err
	}

	if cache, err = CacheDir(); err != nil {
		return "", "", err
	}

	return root, cache, nil
}

// CacheDir returns the directory of the cache: the one that TALOSUPGRADE_CACHE names, or .cache in the module root.
// If it does not exist, it is created.
func CacheDir() (string, error) {
	dir := os.Getenv(CacheVariable)

	if dir == "" {
		root, err := ModuleRoot()
		if err != nil {
			return "", fmt.Errorf("%w, or set %s to a directory", err, CacheVariable)
		}

		dir = filepath.Join(root, ".cache")
	}

	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving the cache directory: %w", err)
	}

	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache directory: %w", err)
	}

	return dir, nil
}
