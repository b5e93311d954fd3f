// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// providerName is the file name by which Terraform finds the provider.
const providerName = "terraform-provider-talosupgrade"

// providerAddresses are all names under which a configuration may require the provider, depending on the command that
// reads it.
var providerAddresses = [...]string{
	"registry.terraform.io/vitistack/talosupgrade",
	"registry.opentofu.org/vitistack/talosupgrade",
}

// BuildProvider compiles the provider from the source tree and returns the directory with it, for [CLIConfig]. In an
// unpacked archive it returns the directory of the provider in the archive. The Go command's own cache makes a second
// call cheap. A provider that still runs from an earlier call is not disturbed.
func BuildProvider(ctx context.Context, options Options) (string, error) {
	if unpacked := ownArchive(); unpacked != "" {
		return unpacked.provider(), nil
	}

	root, cache, err := places()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(cache, "provider")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the provider's directory: %w", err)
	}

	// Beside the directory, not in it: Terraform looks at each file in the directory.
	unlock, err := lock(ctx, dir+".lock", "the provider", options.progress())
	if err != nil {
		return "", err
	}
	defer unlock()

	staging := filepath.Join(cache, "provider.partial"+executable(""))

	err = build{dir: root, output: staging, packages: []string{"."}, what: "the provider"}.run(ctx, options.progress())
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(staging))
	}

	if err := os.Rename(staging, filepath.Join(dir, executable(providerName))); err != nil {
		return "", fmt.Errorf("putting the provider in its place: %w", err)
	}

	return dir, nil
}

// Program compiles a command of this module from the source tree, and returns its path.
func Program(ctx context.Context, command string, options Options) (string, error) {
	root, cache, err := places()
	if err != nil {
		return "", err
	}

	name := path.Base(command)
	target := filepath.Join(cache, "bin", executable(name))

	return target, build{dir: root, output: target, packages: []string{command}, what: name}.run(ctx, options.progress())
}

// CLIConfig writes a configuration file for Terraform or OpenTofu into dir and returns its path, for
// TF_CLI_CONFIG_FILE. It takes the provider from providerDir, and replaces the file in a developer's home.
func CLIConfig(dir, providerDir string) (string, error) {
	providerDir, err := filepath.Abs(providerDir)
	if err != nil {
		return "", fmt.Errorf("resolving the provider's directory: %w", err)
	}

	var text strings.Builder

	text.WriteString("provider_installation {\n  dev_overrides {\n")

	for _, address := range providerAddresses {
		fmt.Fprintf(&text, "    %q = %s\n", address, quoteHCL(filepath.ToSlash(providerDir)))
	}

	text.WriteString("  }\n  direct {}\n}\n")

	file, err := filepath.Abs(filepath.Join(dir, "cli.tfrc"))
	if err != nil {
		return "", fmt.Errorf("resolving the directory of the configuration file: %w", err)
	}

	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing the configuration of the command line: %w", err)
	}

	return file, nil
}

// quoteHCL returns a string literal in which nothing is a template.
func quoteHCL(text string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(strconv.Quote(text))
}
