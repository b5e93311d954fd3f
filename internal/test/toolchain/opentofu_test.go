// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenTofuIsBuiltWhereThereIsNone(t *testing.T) {
	built := builtCommand(t, "tofu", "OpenTofu", "1.12.6")
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

// TestOnlyTheBareNameIsBuilt wants an error for a mistyped path, instead of another program.
func TestOnlyTheBareNameIsBuilt(t *testing.T) {
	builtCommand(t, "tofu", "OpenTofu", "1.12.6")

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
