// SPDX-License-Identifier: MPL-2.0

package project

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// registryHost returns the host on which a command line looks for "vitistack/talosupgrade".
func registryHost(cli toolchain.CLI) string {
	if cli.Name == toolchain.NameOpenTofu {
		return "registry.opentofu.org"
	}

	return "registry.terraform.io"
}

// commandLines returns the one that the other make targets use, and terraform and tofu if they are on PATH.
func commandLines(t *testing.T) []toolchain.CLI {
	t.Helper()

	chosen, err := toolchain.Terraform(t.Context(), toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	found := []toolchain.CLI{chosen}

	for _, name := range []string{toolchain.NameTerraform, toolchain.NameOpenTofu} {
		path, err := exec.LookPath(name)
		if err != nil || name == chosen.Name {
			continue
		}

		t.Setenv(toolchain.CommandVariable, path)

		other, err := toolchain.Terraform(t.Context(), toolchain.Options{Progress: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}

		found = append(found, other)
	}

	return found
}

// installation is a directory in which a command line has installed the provider from where its configuration says.
type installation struct {
	dir string
	cli toolchain.CLI
	env []string
}

// install writes a configuration that needs the released version, and the
// command line's own configuration, and runs init.
func install(t *testing.T, cli toolchain.CLI, source, version, settings string, env ...string) installation {
	t.Helper()

	dir := t.TempDir()
	rc := filepath.Join(dir, "cli.tfrc")
	i := installation{dir: dir, cli: cli, env: append([]string{
		"TF_CLI_CONFIG_FILE=" + rc, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "HOME=" + dir,
		// Nothing from the environment of the user, and no cluster.
		"TF_PLUGIN_CACHE_DIR=", "TF_CLI_ARGS=", "TF_DATA_DIR=", "TF_WORKSPACE=", "TALOSCONFIG=", "KUBECONFIG=",
	}, env...)}

	for name, content := range map[string]string{
		rc: settings,
		filepath.Join(dir, "main.tf"): fmt.Sprintf(`
terraform {
  required_providers {
    talosupgrade = {
      source  = %q
      version = %q
    }
  }
}

data "talosupgrade_compatibility" "all" {}

output "lines" {
  value = length(data.talosupgrade_compatibility.all.matrix)
}

output "together" {
  value = provider::talosupgrade::compatible("1.13.4", "1.35.2")
}

output "apart" {
  value = provider::talosupgrade::compatible("1.8.0", "1.35.2")
}
`, source, "= "+version),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	i.run(t, "init", "-input=false")

	return i
}

func (i installation) run(t *testing.T, args ...string) []byte {
	t.Helper()

	return run(t, i.dir, i.env, i.cli.Path, args...)
}

// requireWorking validates, plans and applies with the installed provider:
// functions and a data source, which need no cluster.
func (i installation) requireWorking(t *testing.T) {
	t.Helper()

	i.run(t, "validate")
	i.run(t, "plan", "-input=false", "-out=plan")
	i.run(t, "apply", "-input=false", "plan")

	var outputs map[string]struct {
		Value any `json:"value"`
	}

	if err := json.Unmarshal(i.run(t, "output", "-json"), &outputs); err != nil {
		t.Fatal(err)
	}

	if lines, ok := outputs["lines"].Value.(float64); !ok || lines < 2 {
		t.Errorf("the data source knows %v minor versions", outputs["lines"].Value)
	}

	if outputs["together"].Value != true || outputs["apart"].Value != false {
		t.Errorf("compatible says %v and %v, wanted true and false", outputs["together"].Value, outputs["apart"].Value)
	}
}

// requireLocked fails the test unless the hashes are in the lock file.
func (i installation) requireLocked(t *testing.T, hashes ...string) {
	t.Helper()

	lock := string(read(t, filepath.Join(i.dir, ".terraform.lock.hcl")))

	for _, hash := range hashes {
		if !strings.Contains(lock, `"`+hash+`"`) {
			t.Errorf("the lock file lacks %s:\n%s", hash, lock)
		}
	}
}

// packageHash returns the hash that lock files have as "h1:".
func (d dist) packageHash(t *testing.T, p platform) string {
	t.Helper()

	hash, err := dirhash.HashZip(d.archive(p), dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}

	return hash
}

// TestReleaseInstallsFromAFilesystemMirror puts every zip where "terraform providers mirror" puts them, and installs
// only from there.
func TestReleaseInstallsFromAFilesystemMirror(t *testing.T) {
	d := openDist(t)

	for _, cli := range commandLines(t) {
		t.Run(cli.Name, func(t *testing.T) {
			mirror := t.TempDir()
			dir := filepath.Join(mirror, registryHost(cli), "vitistack", "talosupgrade")

			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}

			for _, p := range platforms() {
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(d.archive(p))), read(t, d.archive(p)), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			i := install(t, cli, "vitistack/talosupgrade", d.version,
				fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror))
			i.requireLocked(t, d.packageHash(t, platform{runtime.GOOS, runtime.GOARCH}))
			i.requireWorking(t)
		})
	}
}
