// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// commandName tells Terraform from OpenTofu by how they introduce themselves, since either may have any file name.
func commandName(ctx context.Context, path string) (string, error) {
	command := exec.CommandContext(ctx, path, "version")
	command.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
	command.WaitDelay = time.Second

	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("asking for its name: %w", err)
	}

	switch text := string(output); {
	case strings.HasPrefix(text, "Terraform v"):
		return NameTerraform, nil
	case strings.HasPrefix(text, "OpenTofu v"):
		return NameOpenTofu, nil
	default:
		first, _, _ := strings.Cut(text, "\n")

		return "", fmt.Errorf("it is neither Terraform nor OpenTofu, it calls itself %q", first)
	}
}

// requireVersion rejects a version that cannot load a provider with functions.
func requireVersion(name string, running version.Version) error {
	oldest := version.Minor{Major: 1, Minor: 8}
	if name == NameOpenTofu {
		oldest = version.Minor{Major: 1, Minor: 7}
	}

	if running.Minor().Compare(oldest) < 0 {
		return fmt.Errorf("it is %s %s, and %s or newer is needed: install a newer one, or name another with %s",
			name, running, oldest, CommandVariable)
	}

	return nil
}
