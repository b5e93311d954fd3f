// SPDX-License-Identifier: MPL-2.0

package project

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var updateFront = flag.Bool("update", false, "write the versions that are supported into README.md, and its front into the template of the index")

// front matches what README and the index of the documentation have in common.
var front = regexp.MustCompile(`(?s)<!-- front: [^\n]*\n.*?<!-- /front -->`)

// TestFront_SaysTheSameEverywhere wants the first screens of both to be the same, with the versions of the support
// matrix and of the tools of the tests.
func TestFront_SaysTheSameEverywhere(t *testing.T) {
	readme, index := filepath.Join(root, "README.md"), filepath.Join(root, "templates", "index.md.tmpl")

	told := replaceFront(t, readme, func(current string) string {
		commands := fmt.Sprintf("| Command line | Terraform 1.8 or newer (tested: %s) or OpenTofu 1.7 or newer (tested: %s); actions and `terraform query` need Terraform 1.14 |",
			pinned(t, "terraform", "github.com/hashicorp/terraform"), pinned(t, "tofu", "github.com/opentofu/opentofu"))
		current = regexp.MustCompile(`(?m)^\| Command line \|.*$`).ReplaceAllLiteralString(current, commands)

		return regexp.MustCompile(`(?s)<!-- versions -->.*<!-- /versions -->`).ReplaceAllLiteralString(current, versions())
	})

	replaceFront(t, index, func(string) string { return strings.ReplaceAll(told, "](docs/", "](") })
}

// replaceFront compares the front of a page with the wanted one, or writes it, and returns it.
func replaceFront(t *testing.T, page string, wanted func(current string) string) string {
	t.Helper()

	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	current := front.FindString(string(content))
	if current == "" {
		t.Fatalf("%s has no front", page)
	}

	want := wanted(current)

	switch {
	case want == current:
	case *updateFront:
		if err := os.WriteFile(page, []byte(strings.Replace(string(content), current, want, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the front of %s is not what it should be: go test ./internal/test/project -run TestFront -update", page)
	}

	return want
}

// onMachines says on which machines make machines upgrades from or to a minor version.
var onMachines = map[string]string{
	"1.12": "one worker in QEMU", "1.13": "QEMU", "1.14": "one worker in QEMU",
}

// versions returns a table of the supported minor versions, newest first.
func versions() string {
	talos := compat.BuiltIn().Releases(version.Talos)
	newest := talos[len(talos)-1].Minor()

	lines := []string{"<!-- versions -->", "| Talos | Kubernetes | upgrades from or to it are tested on |", "|---|---|---|"}

	for _, row := range slices.Backward(compat.Rows()) {
		seen := "the simulator"
		if machines := onMachines[row.Talos.String()]; machines != "" {
			seen += ", " + machines
		}

		switch {
		case row.Talos.Compare(plan.OldestTested().Minor()) < 0:
			seen = "nothing (accepted)"
		case row.Talos.Compare(newest) > 0:
			seen = "nothing: not released yet (accepted)"
		case row.Talos.Compare(plan.NewestTested()) > 0:
			seen = "nothing (accepted)"
		}

		lines = append(lines, fmt.Sprintf("| %s | %s to %s | %s |", row.Talos, row.KubernetesMin, row.KubernetesMax, seen))
	}

	return strings.Join(append(lines, "<!-- /versions -->"), "\n")
}

// pinned returns the version of a command line that the tests build.
func pinned(t *testing.T, tool, module string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(root, "internal", "tools", tool, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}

	found := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(content)
	if found == nil {
		t.Fatalf("the module of %s does not name %s", tool, module)
	}

	return string(found[1])
}
