// SPDX-License-Identifier: MPL-2.0

// Package workspace is a directory in which Terraform or OpenTofu runs with the provider as it was just built,
// whatever the environment of the user says.
package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// grace is how long a command may take to stop by itself once it was interrupted. A provider that is in the middle
// of a step has 15 seconds to leave it.
const grace = 25 * time.Second

// Workspace runs one command line in one directory.
type Workspace struct {
	// Dir holds the configuration and the state.
	Dir string
	cli toolchain.CLI
	// config is the file that names the provider's directory.
	config string
}

// New prepares dir: the configuration of the command line is written next to what the directory holds.
func New(dir string, cli toolchain.CLI, providerDir string) (*Workspace, error) {
	config, err := toolchain.CLIConfig(dir, providerDir)
	if err != nil {
		return nil, err
	}

	return &Workspace{Dir: dir, cli: cli, config: config}, nil
}

// Command returns a call of the command line that has not been started, for [Workspace.Run]. It runs in its own
// process group; when the context ends, it is interrupted and given time to stop before it is killed.
func (w *Workspace) Command(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, w.cli.Path, args...)
	command.Dir = w.Dir
	command.Env = append(Environment(os.Environ()), "TF_CLI_CONFIG_FILE="+w.config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1")

	Isolate(command, grace)

	return command
}

// Run runs the command to its end and leaves no process of it behind.
func (w *Workspace) Run(command *exec.Cmd) error {
	defer Reap(command)

	return command.Run()
}

// CopyConfiguration copies the .tf files of a directory into the workspace.
func (w *Workspace) CopyConfiguration(from string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.tf"))
	if err != nil {
		return fmt.Errorf("listing the configuration in %s: %w", from, err)
	}

	if len(files) == 0 {
		return fmt.Errorf("no .tf file in %s", from)
	}

	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading the configuration: %w", err)
		}

		if err := os.WriteFile(filepath.Join(w.Dir, filepath.Base(file)), content, 0o600); err != nil {
			return fmt.Errorf("copying the configuration: %w", err)
		}
	}

	return nil
}

// Environment returns an environment without the variables that would change how Terraform runs or which cluster
// the provider reaches. TF_LOG and its companions stay, for those who look for an error.
func Environment(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")

		switch name {
		case "TALOSCONFIG", "KUBECONFIG", "CHECKPOINT_DISABLE":
			return true
		default:
			return strings.HasPrefix(name, "TF_") && !strings.HasPrefix(name, "TF_LOG")
		}
	})
}
