// SPDX-License-Identifier: MPL-2.0

package project

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var updateFront = flag.Bool("update", false, "write the versions that are supported into README.md, and its front into the template of the index")

// front is what README and the index of the documentation have in common.
var front = regexp.MustCompile(`(?s)<!-- front: [^\n]*\n.*?<!-- /front -->`)

// TestFront_SaysTheSameEverywhere: the two first screens tell of the same state, and of
// the versions that the support matrix and the tools of the tests have.
func TestFront_SaysTheSameEverywhere(t *testing.T) {
	readme, index := filepath.Join(root, "README.md"), filepath.Join(root, "templates", "index.md.tmpl")

	told := replaceFront(t, readme, func(current string) string {
		for row, says := range supported(t) {
			current = regexp.MustCompile(`(?m)^\| `+row+` \|.*$`).ReplaceAllLiteralString(current, "| "+row+" | "+says+" |")
		}

		return current
	})

	replaceFront(t, index, func(string) string { return strings.ReplaceAll(told, "](docs/", "](") })
}

// replaceFront holds the front of a page to what it should be, or writes it, and returns it.
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

// supported are the rows about versions, by what they begin with.
func supported(t *testing.T) map[string]string {
	t.Helper()

	talos, _ := compat.Releases()
	newest := talos[len(talos)-1].Minor()
	tested, managed := plan.OldestTested().Minor(), plan.OldestManaged().Minor()

	var pairs []string

	for _, line := range compat.Lines() {
		if line.Talos.Compare(managed) >= 0 && line.Talos.Compare(newest) <= 0 {
			pairs = append(pairs, fmt.Sprintf("%s to %s on Talos %s", line.KubernetesMin, line.KubernetesMax, line.Talos))
		}
	}

	return map[string]string{
		"Talos": fmt.Sprintf("%s to %s tested as above; %s to %s allowed and untested; older refused", tested, newest, managed,
			version.Minor{Major: tested.Major, Minor: tested.Minor - 1}),
		"Kubernetes": strings.Join(pairs, ", ") + "; other pairs are refused, newer ones unless `allow_unknown_versions` is set",
		"Command line": fmt.Sprintf("Terraform 1.8 or newer (tested: %s) or OpenTofu 1.7 or newer (tested: %s); actions and `terraform query` need Terraform 1.14",
			pinned(t, "terraform", "github.com/hashicorp/terraform"), pinned(t, "tofu", "github.com/opentofu/opentofu")),
	}
}

// pinned is the version of a command line that the tests build.
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
