// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	hcversion "github.com/hashicorp/go-version"
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// CommandVariable names the environment variable that selects the command to test with. TF_ACC_TERRAFORM_PATH, which
// Terraform's own test library reads, is used as well.
const CommandVariable = "TALOSUPGRADE_CLI"

// fetchTimeout bounds the download of Terraform.
const fetchTimeout = 5 * time.Minute

// The names of [CLI].
const (
	NameTerraform = "terraform"
	NameOpenTofu  = "tofu"
)

// CLI is a Terraform or OpenTofu command.
type CLI struct {
	// Path is absolute.
	Path string
	// Name is "terraform" or "tofu", whatever the file is called.
	Name    string
	Version version.Version
}

// Terraform returns the command that TALOSUPGRADE_CLI or TF_ACC_TERRAFORM_PATH names, otherwise terraform on PATH,
// otherwise tofu on PATH, otherwise a Terraform that it fetches into the cache. If TALOSUPGRADE_CLI is "tofu" or
// "terraform-1.14" and that is not on PATH, it is built into the cache. Anything older than Terraform 1.8 or OpenTofu
// 1.7 is an error, because provider functions need those. A program from an unpacked archive neither fetches nor
// builds a command.
func Terraform(ctx context.Context, options Options) (CLI, error) {
	path, source, err := chosenCommand()

	switch {
	case ownArchive() != "" && (err == nil && path == "" || errors.Is(err, errBuildOpenTofu) || errors.Is(err, errBuildTerraform)):
		return CLI{}, errNoCommand
	case errors.Is(err, errBuildOpenTofu):
		source = "built"
		path, err = buildOpenTofu(ctx, options)
	case errors.Is(err, errBuildTerraform):
		return PinnedTerraform(ctx, options)
	case err == nil && path == "":
		source = "fetched"
		path, err = fetchTerraform(ctx, options)
	}

	if err != nil {
		return CLI{}, err
	}

	cli, err := identify(ctx, path)
	if err != nil {
		return CLI{}, fmt.Errorf("%s (%s): %w", path, source, err)
	}

	return cli, nil
}

// errBuildOpenTofu and errBuildTerraform are returned if the environment names a command that internal/tools pins,
// and it is not on PATH.
var (
	errBuildOpenTofu  = errors.New("tofu is to be built")
	errBuildTerraform = errors.New(pinnedTerraform + " is to be built")
)

// chosenCommand looks at the environment and at PATH; path is empty if there is no command.
func chosenCommand() (path, source string, err error) {
	for _, variable := range []string{CommandVariable, "TF_ACC_TERRAFORM_PATH"} {
		value := os.Getenv(variable)
		if value == "" {
			continue
		}

		path, err := exec.LookPath(value)
		if err != nil && variable == CommandVariable {
			switch value {
			case NameOpenTofu:
				return "", "", errBuildOpenTofu
			case pinnedTerraform:
				return "", "", errBuildTerraform
			}
		}

		if err != nil {
			return "", "", fmt.Errorf("%s names %q, which is no command: %w", variable, value, err)
		}

		path, err = filepath.Abs(path)

		return path, "named by " + variable, err
	}

	for _, name := range []string{NameTerraform, NameOpenTofu} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}

		path, err = filepath.Abs(path)

		return path, "found on PATH", err
	}

	return "", "", nil
}

// identify asks a command for its name and version.
func identify(ctx context.Context, path string) (CLI, error) {
	command := exec.CommandContext(ctx, path, "version", "-json")
	// A developer's configuration file that does not parse must not get in the way, nor a check for a newer release.
	command.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
	command.WaitDelay = time.Second

	output, err := command.Output()
	if err != nil {
		return CLI{}, fmt.Errorf("asking for its version: %w", err)
	}

	// OpenTofu kept the key, and prints its own name only in the text form.
	var answer struct {
		Version string `json:"terraform_version"`
	}

	if err := json.Unmarshal(output, &answer); err != nil {
		return CLI{}, fmt.Errorf("reading its version: %w", err)
	}

	running, err := version.Parse(answer.Version)
	if err != nil {
		return CLI{}, fmt.Errorf("reading its version: %w", err)
	}

	name, err := commandName(ctx, path)
	if err != nil {
		return CLI{}, err
	}

	return CLI{Path: path, Name: name, Version: running}, requireVersion(name, running)
}

// errNoCommand is the error if no command may be fetched.
var errNoCommand = errors.New("put terraform 1.8 or newer, or tofu 1.7 or newer, on PATH")

// fetchTerraform installs the newest Terraform 1.x below the cache.
func fetchTerraform(ctx context.Context, options Options) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}

	dir, err := entry{cache: cache, name: "terraform"}.ensure(ctx, options.progress(),
		func(ctx context.Context, dir string) error {
			fmt.Fprintln(options.progress(), "neither terraform nor tofu is on PATH: fetching terraform from releases.hashicorp.com")

			return installTerraform(ctx, dir)
		})
	if err != nil {
		return "", fmt.Errorf("install terraform 1.8 or newer, or tofu 1.7 or newer, and put it on PATH: fetching it failed: %w", err)
	}

	return filepath.Join(dir, executable(NameTerraform)), nil
}

func installTerraform(ctx context.Context, dir string) error {
	constraints, err := hcversion.NewConstraint(">= 1.8.0, < 2.0.0")
	if err != nil {
		return fmt.Errorf("naming the wanted releases: %w", err)
	}

	latest := &releases.LatestVersion{
		Product:     product.Terraform,
		Constraints: constraints,
		InstallDir:  dir,
		Timeout:     fetchTimeout,
	}

	if _, err := latest.Install(ctx); err != nil {
		return errors.Join(err, latest.Remove(context.WithoutCancel(ctx)))
	}

	return nil
}
