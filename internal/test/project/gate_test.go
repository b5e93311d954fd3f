// SPDX-License-Identifier: MPL-2.0

package project

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryTestWithRealProgramsIsRun wants each package with tests that need programs of Kubernetes, which make test
// skips, to be one of those that make testacc runs.
func TestEveryTestWithRealProgramsIsRun(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "GNUmakefile"))
	if err != nil {
		t.Fatal(err)
	}

	listed := regexp.MustCompile(`(?m)^REAL_PACKAGES := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	if listed == nil {
		t.Fatal("GNUmakefile does not list REAL_PACKAGES")
	}

	var packages []string

	for _, name := range strings.Fields(strings.ReplaceAll(string(listed[1]), "\\", " ")) {
		packages = append(packages, strings.TrimPrefix(name, "./"))
	}

	var needing []string

	for _, file := range sourceFiles(t) {
		if !strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/test/acceptance/") || path.Dir(file) == "internal/test/project" {
			continue
		}

		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}

		if regexp.MustCompile(`\.(NeedKubernetes|RealKubernetes)\(`).Match(text) {
			needing = append(needing, path.Dir(file))
		}
	}

	slices.Sort(needing)
	slices.Sort(packages)

	if needing = slices.Compact(needing); !slices.Equal(needing, packages) {
		t.Errorf("REAL_PACKAGES are %q, want %q", packages, needing)
	}
}
