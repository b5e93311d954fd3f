// SPDX-License-Identifier: MPL-2.0

package regression_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

var update = flag.Bool("update", false, "write REGRESSIONS.md instead of comparing with it")

// page is the table for people.
const page = "REGRESSIONS.md"

// TestRegressions_RowsAreWhole wants each row to be complete.
func TestRegressions_RowsAreWhole(t *testing.T) {
	t.Parallel()

	hash := regexp.MustCompile(`^[0-9a-f]{7,12}$`)
	symptoms := map[string]bool{}

	for _, row := range rows() {
		for what, text := range map[string]string{"symptom": row.symptom, "wrong": row.wrong} {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %s is no sentence: %q", row.test, what, text)
			}
		}

		if row.scenario == "" || !slices.Contains(areas(), row.area) || symptoms[row.symptom] {
			t.Errorf("%s: the scenario or the area is missing, or the symptom is told twice: %+v", row.test, row)
		}

		symptoms[row.symptom] = true

		if !hash.MatchString(row.seen) {
			t.Errorf("%s: %q is no commit", row.test, row.seen)
		}
	}
}

// TestRegressions_TestsExist wants each test that a row names to be in the sources of its package.
func TestRegressions_TestsExist(t *testing.T) {
	t.Parallel()

	known := map[string]map[string]bool{}

	for _, row := range rows() {
		if known[row.test.pkg] == nil {
			known[row.test.pkg] = testsOf(t, row.test.pkg)
		}

		if !known[row.test.pkg][row.test.name] {
			t.Errorf("there is no test %s", row.test)
		}
	}
}

// testsOf returns the test functions of a package below internal.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()

	sources, err := filepath.Glob(filepath.Join("..", "..", "..", filepath.FromSlash(pkg), "*_test.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("package %s has no tests: %v", pkg, err)
	}

	found := map[string]bool{}

	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}

		for _, declared := range file.Decls {
			function, is := declared.(*ast.FuncDecl)
			if is && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") {
				found[function.Name.Name] = true
			}
		}
	}

	return found
}

// TestRegressions_PageIsTheTable wants the page to be what the rows render to.
func TestRegressions_PageIsTheTable(t *testing.T) {
	t.Parallel()

	rendered := render(rows())

	if *update {
		if err := os.WriteFile(page, []byte(rendered), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	written, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(written), rendered); diff != "" {
		t.Errorf("the table changed (-page +now); run the test with -update:\n%s", diff)
	}
}

// TestRegressions_ReplayedStayFixed replays the bugs that the harness can reproduce.
func TestRegressions_ReplayedStayFixed(t *testing.T) {
	replayed := 0

	for _, row := range rows() {
		if row.replay == nil {
			continue
		}

		replayed++

		t.Run(row.symptom, func(t *testing.T) {
			t.Parallel()

			harness.Run(t, row.replay.setup, row.replay.run)
		})
	}

	t.Logf("%d findings, %d of them replayed here", len(rows()), replayed)
}

// render returns the page.
func render(all []row) string {
	var out strings.Builder

	out.WriteString("# What the harness has found\n\n" +
		"Written by `go test ./internal/test/harness/regression -update` from the rows beside this page; a test compares them.\n" +
		"Each finding was in the code at the commit given, where the test given fails; it has been mended since. How to get\n" +
		"there: a seed is the one of the simulated cluster, 3+2 means three control planes and two workers, and what is not\n" +
		"said is as the harness has it by default. `go test ./internal/PACKAGE -run '^TEST$'` gets there again; those with an\n" +
		"asterisk are replayed by this package too.\n")

	for _, area := range areas() {
		fmt.Fprintf(&out, "\n## %s\n\n| What it looked like | What was wrong | How to get there | Last in | Test |\n|---|---|---|---|---|\n", area)

		for _, row := range all {
			if row.area == area {
				fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", row.symptom, row.wrong, row.scenario, row.seen, cell(row))
			}
		}
	}

	return out.String()
}

// cell returns the test of a row as the page names it.
func cell(r row) string {
	named := "`" + r.test.name + "` in " + r.test.pkg
	if r.replay != nil {
		named += " *"
	}

	return named
}
