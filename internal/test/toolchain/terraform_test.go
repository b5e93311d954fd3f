// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

func TestPinnedTerraformIsBuiltWhereThereIsNone(t *testing.T) {
	built := builtCommand(t, "terraform", "Terraform", "1.14.8")
	t.Setenv(CommandVariable, pinnedTerraform)

	cli, err := Terraform(t.Context(), Options{})
	if err != nil || cli.Path != built || cli.Name != NameTerraform {
		t.Errorf("got %+v, %v, want the one in the cache", cli, err)
	}

	t.Setenv("TF_ACC_TERRAFORM_PATH", pinnedTerraform)
	t.Setenv(CommandVariable, "")

	if cli, err := Terraform(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "TF_ACC_TERRAFORM_PATH") {
		t.Errorf("got %+v, %v, want an error about the variable that means a path", cli, err)
	}

	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(CommandVariable, pinnedTerraform)

	found := fakeCommand(t, dir, pinnedTerraform, "Terraform", "1.14.2")

	cli, err = Terraform(t.Context(), Options{})
	if err != nil || cli.Path != found {
		t.Errorf("got %+v, %v, want the one on PATH", cli, err)
	}
}

func TestPinnedTerraformIsTheSameWhateverIsChosen(t *testing.T) {
	built := builtCommand(t, "terraform", "Terraform", "1.14.8")

	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(CommandVariable, fakeCommand(t, dir, "tofu", "OpenTofu", "1.12.6"))
	fakeCommand(t, dir, "terraform", "Terraform", "1.11.4")
	fakeCommand(t, dir, pinnedTerraform, "Terraform", "1.14.2")

	cli, err := PinnedTerraform(t.Context(), Options{})
	if err != nil || cli.Path != built || cli.Name != NameTerraform || cli.Version.String() != "1.14.8" {
		t.Errorf("got %+v, %v, want the one in the cache", cli, err)
	}
}

// TestPinnedTerraformIsOfTheLineInItsName wants the name to match go.mod.
func TestPinnedTerraformIsOfTheLineInItsName(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "tools", "terraform", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}

	module, err := modfile.Parse("go.mod", content, nil)
	if err != nil {
		t.Fatal(err)
	}

	line := "v" + strings.TrimPrefix(pinnedTerraform, NameTerraform+"-") + "."

	for _, required := range module.Require {
		if required.Mod.Path == "github.com/hashicorp/terraform" && strings.HasPrefix(required.Mod.Version, line) {
			return
		}
	}

	t.Errorf("go.mod requires no Terraform %sx, which is what %q promises", line, pinnedTerraform)
}
