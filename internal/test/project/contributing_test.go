// SPDX-License-Identifier: MPL-2.0

package project

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var (
	// decidedRow matches a row of "Where is it decided?": a question, a file, functions.
	decidedRow = regexp.MustCompile("(?m)^\\| [^|]+ \\| `([\\w/.]+\\.go)` \\| ((?:`\\w+`(?:, )?)+)")
	// placedName matches a name next to the file that declares it.
	placedName = regexp.MustCompile("`(\\w+)` (?:in |\\()`([\\w/.]+\\.go)`")
	pageLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeWord   = regexp.MustCompile("`([^`\\s]+)`")
	testName   = regexp.MustCompile(`^Test[A-Z]\w*$`)
)

// sourceFiles returns all files below internal, by their paths from the root.
func sourceFiles(t *testing.T) []string {
	t.Helper()

	var files []string

	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			relative, _ := filepath.Rel(root, path)
			files = append(files, filepath.ToSlash(relative))
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

// declares reports whether a Go file declares the name.
func declares(t *testing.T, file, name string) bool {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}

	return regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)` + name + `\b`).Match(text)
}

// contributorPages returns the pages for those who change the project.
func contributorPages() []string {
	return []string{
		"CONTRIBUTING.md", ".github/RELEASING.md",
		"internal/DESIGN.md", "internal/MAP.md", "internal/RECIPES.md", "internal/test/README.md", "internal/test/real/README.md",
	}
}

// TestContributorPagesNameWhatIsThere wants every file, function, test and link that the pages name to exist.
func TestContributorPagesNameWhatIsThere(t *testing.T) {
	files := sourceFiles(t)

	for _, page := range contributorPages() {
		t.Run(page, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join(root, page))
			if err != nil {
				t.Fatal(err)
			}

			checkNames(t, string(content), files)
			checkLinks(t, page, string(content))
		})
	}
}

// checkLinks wants every file that a page links to to exist.
func checkLinks(t *testing.T, page, text string) {
	t.Helper()

	for _, link := range pageLink.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(link[1], "#")
		if target == "" || strings.Contains(target, "://") {
			continue
		}

		if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), target)); err != nil {
			t.Error(err)
		}
	}
}

// TestMapSaysWhereThingsAreDecided wants the table of decisions to exist in the form that is checked.
func TestMapSaysWhereThingsAreDecided(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "internal", "MAP.md"))
	if err != nil {
		t.Fatal(err)
	}

	if rows := decidedRow.FindAll(text, -1); len(rows) < 20 {
		t.Errorf("only %d rows say where something is decided", len(rows))
	}
}

// checkNames wants every file, function and test that a text names to exist.
func checkNames(t *testing.T, text string, files []string) {
	t.Helper()

	ending := func(name string) []string {
		var found []string

		for _, file := range files {
			if file == name || strings.HasSuffix(file, "/"+name) {
				found = append(found, file)
			}
		}

		return found
	}

	check := func(name, file string) {
		for _, candidate := range ending(file) {
			if declares(t, candidate, name) {
				return
			}
		}

		t.Errorf("%s does not declare %s", file, name)
	}

	for _, row := range decidedRow.FindAllStringSubmatch(text, -1) {
		for _, name := range codeWord.FindAllStringSubmatch(row[2], -1) {
			check(name[1], row[1])
		}
	}

	for _, placed := range placedName.FindAllStringSubmatch(text, -1) {
		check(placed[1], placed[2])
	}

	for _, word := range codeWord.FindAllStringSubmatch(text, -1) {
		switch name := word[1]; {
		case strings.HasSuffix(name, ".go") && len(ending(name)) == 0:
			t.Errorf("there is no %s", name)
		case strings.HasPrefix(name, "internal/"):
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Error(err)
			}
		case testName.MatchString(name) && !strings.Contains(name, "NN"):
			found := false

			for _, file := range files {
				found = found || strings.HasSuffix(file, "_test.go") && declares(t, file, name)
			}

			if !found {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

// TestDesignNamesEveryInvariant wants every invariant of the checker to be in DESIGN.md.
func TestDesignNamesEveryInvariant(t *testing.T) {
	design, err := os.ReadFile(filepath.Join(root, "internal", "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}

	checker, err := os.ReadFile(filepath.Join(root, "internal", "test", "sim", "checker", "checker.go"))
	if err != nil {
		t.Fatal(err)
	}

	invariants := regexp.MustCompile(`Invariant = "(S\d+)"`).FindAllSubmatch(checker, -1)
	if len(invariants) < 14 {
		t.Errorf("the checker names only %d invariants", len(invariants))
	}

	for _, invariant := range invariants {
		if !strings.Contains(string(design), "\n| "+string(invariant[1])+" |") {
			t.Errorf("DESIGN.md has no row for %s", invariant[1])
		}
	}
}

// TestPagesNameTheGoThatIsNeeded wants README.md to name the Go of the module, and the pages for contributors the newest
// one that a tool needs: make uses the Go that is there, and downloads no other.
func TestPagesNameTheGoThatIsNeeded(t *testing.T) {
	directive := regexp.MustCompile(`(?m)^go (\d+)\.(\d+)\.(\d+)$`)
	named := regexp.MustCompile(`\bGo (\d+(?:\.\d+)*)\b`)

	needs := func(file string) version.Version {
		found := directive.FindSubmatch(read(t, file))
		if found == nil {
			t.Fatalf("%s has no go directive with a patch", file)
		}

		return version.MustParse(string(bytes.Join(found[1:], []byte("."))))
	}

	module := needs(filepath.Join(root, "go.mod"))
	tools, newest := 0, module

	err := filepath.WalkDir(filepath.Join(root, "internal", "tools"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "go.mod" {
			tools++

			newest = version.Highest(newest, needs(path))
		}

		return err
	})
	if err != nil || tools < 5 {
		t.Fatalf("%d modules of tools: %v", tools, err)
	}

	for page, want := range map[string]version.Version{"README.md": module, "CONTRIBUTING.md": newest, ".github/RELEASING.md": newest} {
		all := named.FindAllSubmatch(read(t, filepath.Join(root, page)), -1)
		if len(all) == 0 {
			t.Errorf("%s names no Go", page)
		}

		for _, one := range all {
			if string(one[1]) != want.String() {
				t.Errorf("%s names Go %s, want %s", page, one[1], want)
			}
		}
	}
}
