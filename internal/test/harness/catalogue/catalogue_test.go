// SPDX-License-Identifier: MPL-2.0

package catalogue_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write CATALOGUE.md instead of comparing with it")

const (
	// root is the root of the module, from here.
	root = "../../../.."
	page = "CATALOGUE.md"
	// total is how many rows the catalogue has.
	total = 48
)

// numbered matches the name of a test that belongs to a row.
var numbered = regexp.MustCompile(`^TestCatalogue([0-9]{2})_[A-Z]`)

// carriers returns the tests of each row, as package.Name, found in the sources of the module.
func carriers(t *testing.T) map[int][]string {
	t.Helper()

	found := map[int][]string{}

	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}

		folder, err := filepath.Rel(filepath.Join(root, "internal"), filepath.Dir(path))
		if err != nil {
			return err
		}

		for _, name := range tests(file) {
			match := numbered.FindStringSubmatch(name)
			if match == nil {
				continue
			}

			number, err := strconv.Atoi(match[1])
			if err != nil {
				return err
			}

			found[number] = append(found[number], filepath.ToSlash(folder)+"."+name)
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, names := range found {
		slices.Sort(names)
	}

	return found
}

// tests returns the names of the test functions of a file.
func tests(file *ast.File) []string {
	var names []string

	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") || len(function.Type.Params.List) != 1 {
			continue
		}

		pointer, ok := function.Type.Params.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue
		}

		if kind, ok := pointer.X.(*ast.SelectorExpr); ok && kind.Sel.Name == "T" {
			names = append(names, function.Name.Name)
		}
	}

	return names
}

func TestRows_EachHasATestNamingIt(t *testing.T) {
	t.Parallel()

	if count := len(rows()); count != total {
		t.Fatalf("%d rows, want %d", count, total)
	}

	found := carriers(t)

	for number, given := range rows() {
		if given.fault == "" || given.seen == "" || given.is == "" || given.then == "" {
			t.Errorf("row %d leaves something out: %+v", number+1, given)
		}

		if len(found[number+1]) == 0 {
			t.Errorf("row %d (%s) has no test TestCatalogue%02d_...", number+1, given.fault, number+1)
		}
	}

	for _, number := range slices.Sorted(maps.Keys(found)) {
		if number < 1 || number > total {
			t.Errorf("there is no row %d for %s", number, strings.Join(found[number], ", "))
		}
	}
}

// TestRows_PageIsWhatTheTableSays wants the page to name every test that there is, and no other.
func TestRows_PageIsWhatTheTableSays(t *testing.T) {
	t.Parallel()

	want := render(carriers(t))

	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}

		return
	}

	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("the table changed (-page +now); run the test with -update:\n%s", diff)
	}
}

func render(found map[int][]string) string {
	var text strings.Builder

	text.WriteString("# The ways in which a cluster fails\n\n" +
		"Written by `go test ./internal/test/harness/catalogue -update` from the rows beside this page and the tests that carry\n" +
		"their numbers; a test compares them.\n\n" +
		"| no. | fault | what the wire shows | what it is to us | what we do | tests |\n|---|---|---|---|---|---|\n")

	for number, given := range rows() {
		names := make([]string, 0, len(found[number+1]))
		for _, name := range found[number+1] {
			names = append(names, "`"+name+"`")
		}

		fmt.Fprintf(&text, "| %d | %s | %s | %s | %s | %s |\n", number+1, given.fault, given.seen, given.is, given.then, strings.Join(names, "<br>"))
	}

	return text.String()
}
