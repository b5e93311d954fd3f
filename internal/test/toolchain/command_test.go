// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fakeCommand writes a program that introduces itself as Terraform or OpenTofu, and returns its path.
func fakeCommand(t *testing.T, dir, file, introduction, version string) string {
	t.Helper()

	if runtime.GOOS == "windows" {
		t.Skip("the fake commands are shell scripts")
	}

	path := filepath.Join(dir, file)
	script := fmt.Sprintf("#!/bin/sh\nif [ \"$2\" = -json ]; then echo '{\"terraform_version\": %q}'; else echo '%s v%s'; fi\n",
		version, introduction, version)

	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}

	return path
}

// onPath makes dir the only directory on PATH.
func onPath(t *testing.T, dir string) {
	t.Helper()
	t.Setenv("PATH", dir)
	t.Setenv(CommandVariable, "")
	t.Setenv("TF_ACC_TERRAFORM_PATH", "")
}

// builtCommand puts a fake into the cache entry for the build of a module in internal/tools, with only the Go command
// on PATH.
func builtCommand(t *testing.T, module, introduction, version string) string {
	t.Helper()

	program, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}

	path := t.TempDir()
	if err := os.Symlink(program, filepath.Join(path, "go")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}

	cache := t.TempDir()
	t.Setenv(CacheVariable, cache)

	name, err := moduleKey(t.Context(), filepath.Join("..", "..", "tools", module))
	if err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(cache, module+"-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	onPath(t, path)

	return fakeCommand(t, dir, module, introduction, version)
}

func TestTerraformOnPathWinsOverOpenTofu(t *testing.T) {
	dir := t.TempDir()
	onPath(t, dir)
	fakeCommand(t, dir, "tofu", "OpenTofu", "1.12.6")

	cli, err := Terraform(t.Context(), Options{})
	if err != nil || cli.Name != NameOpenTofu || cli.Version.String() != "1.12.6" || cli.Path != filepath.Join(dir, "tofu") {
		t.Errorf("with tofu alone: %+v, %v", cli, err)
	}

	fakeCommand(t, dir, "terraform", "Terraform", "1.11.4")

	cli, err = Terraform(t.Context(), Options{})
	if err != nil || cli.Name != NameTerraform || cli.Version.String() != "1.11.4" {
		t.Errorf("with both: %+v, %v", cli, err)
	}
}

func TestEnvironmentChoosesTheCommand(t *testing.T) {
	for _, variable := range []string{CommandVariable, "TF_ACC_TERRAFORM_PATH"} {
		t.Run(variable, func(t *testing.T) {
			dir := t.TempDir()
			onPath(t, dir)
			fakeCommand(t, dir, "terraform", "Terraform", "1.11.4")
			t.Setenv(variable, fakeCommand(t, t.TempDir(), "mine", "OpenTofu", "1.9.0"))

			cli, err := Terraform(t.Context(), Options{})
			if err != nil || cli.Name != NameOpenTofu || cli.Version.String() != "1.9.0" {
				t.Errorf("got %+v, %v", cli, err)
			}
		})
	}
}

func TestUnusableCommandsAreRefusedWithAReason(t *testing.T) {
	for name, test := range map[string]struct{ introduction, version, reason string }{
		"old terraform": {"Terraform", "1.7.5", "1.8 or newer is needed"},
		"old tofu":      {"OpenTofu", "1.6.2", "1.7 or newer is needed"},
		"another thing": {"Terragrunt", "1.9.0", "neither Terraform nor OpenTofu"},
		"no version":    {"Terraform", "next", "reading its version"},
	} {
		t.Run(name, func(t *testing.T) {
			onPath(t, t.TempDir())
			t.Setenv(CommandVariable, fakeCommand(t, t.TempDir(), "command", test.introduction, test.version))

			_, err := Terraform(t.Context(), Options{})
			if err == nil || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("error %v, want %q", err, test.reason)
			}
		})
	}
}

func TestMissingCommandIsNamedWithItsVariable(t *testing.T) {
	onPath(t, t.TempDir())
	t.Setenv(CommandVariable, "no-such-command")

	_, err := Terraform(t.Context(), Options{})
	if err == nil || !strings.Contains(err.Error(), CommandVariable) || !strings.Contains(err.Error(), "no-such-command") {
		t.Errorf("error %v", err)
	}
}

func TestCLIConfigNamesBothRegistriesAndNothingElse(t *testing.T) {
	dir := t.TempDir()

	path, err := CLIConfig(dir, filepath.Join(dir, "${odd}"))
	if err != nil {
		t.Fatal(err)
	}

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	where := `"` + filepath.ToSlash(dir) + `/$${odd}"`
	want := "provider_installation {\n  dev_overrides {\n" +
		"    \"registry.terraform.io/vitistack/talosupgrade\" = " + where + "\n" +
		"    \"registry.opentofu.org/vitistack/talosupgrade\" = " + where + "\n" +
		"  }\n  direct {}\n}\n"

	if string(content) != want {
		t.Errorf("the file says\n%s\nwant\n%s", content, want)
	}
}

func TestCacheMovesWithItsVariable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "elsewhere")
	t.Setenv(CacheVariable, dir)

	got, err := CacheDir()
	if err != nil || got != dir {
		t.Errorf("cache %q (%v), want %q", got, err, dir)
	}

	if _, err := os.Stat(dir); err != nil {
		t.Error("the cache was not created:", err)
	}
}

func TestModuleRootIsThisModules(t *testing.T) {
	// The go.mod of the nested module has to be passed over.
	t.Chdir(filepath.Join("..", "..", "tools", "kube"))

	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(root, "internal", "test", "toolchain", "toolchain.go")); err != nil {
		t.Errorf("%s is not the root: %v", root, err)
	}
}
