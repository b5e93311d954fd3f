// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// builtOpenTofu puts a fake where the build of OpenTofu would be, with the Go
// command and nothing else on PATH.
func builtOpenTofu(t *testing.T) string {
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

	name, err := moduleKey(t.Context(), filepath.Join("..", "..", "tools", "tofu"))
	if err != nil {
		t.Fatal(err)
	}

	dir := filepath.Join(cache, "tofu-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	onPath(t, path)

	return fakeCommand(t, dir, "tofu", "OpenTofu", "1.12.6")
}

func TestOpenTofuIsBuiltWhereThereIsNone(t *testing.T) {
	built := builtOpenTofu(t)
	t.Setenv(CommandVariable, "tofu")

	cli, err := Terraform(t.Context(), Options{})
	if err != nil || cli.Path != built || cli.Name != NameOpenTofu {
		t.Errorf("got %+v, %v, want the one in the cache", cli, err)
	}

	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))

	found := fakeCommand(t, dir, "tofu", "OpenTofu", "1.9.0")

	cli, err = Terraform(t.Context(), Options{})
	if err != nil || cli.Path != found {
		t.Errorf("got %+v, %v, want the one on PATH", cli, err)
	}
}

// TestOnlyTheBareNameIsBuilt keeps a mistyped path from becoming another program.
func TestOnlyTheBareNameIsBuilt(t *testing.T) {
	builtOpenTofu(t)

	for variable, value := range map[string]string{
		CommandVariable: filepath.Join(t.TempDir(), "tofu"), "TF_ACC_TERRAFORM_PATH": "tofu",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)

			if cli, err := Terraform(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), variable) {
				t.Errorf("got %+v, %v, want an error about %s", cli, err, variable)
			}
		})
	}
}

func TestBuildLinksWhatItIsTold(t *testing.T) {
	output := filepath.Join(t.TempDir(), executable("fake"))
	dir := fakeModule(t, "package main\n\nvar dev = \"yes\"\n\nfunc main() { print(dev) }\n")

	err := build{dir: dir, output: output, packages: []string{"."}, link: "-X main.dev=no", what: "a fake"}.run(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}

	said, err := exec.CommandContext(t.Context(), output).CombinedOutput()
	if err != nil || string(said) != "no" {
		t.Errorf("the binary says %q (%v)", said, err)
	}
}
