// SPDX-License-Identifier: MPL-2.0

package wording

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Page is where what a package says is shown, from the directory of the module.
func Page(name string) string {
	return filepath.Join("internal", "test", "wording", "testdata", name+".md")
}

const pageHead = "# What people read: %s\n\nWritten by `go test ./internal/%[1]s -update` from what the code said while the tests named here ran it; tests compare them.\n"

// titles are of the parts of a page.
var titles = [...]struct {
	kind  Kind
	title string
}{
	{KindFailure, "Failures of a run"},
	{KindError, "Errors"},
	{KindWarning, "Warnings"},
	{KindFinding, "Findings of checks"},
}

// print is the page.
func printed(name string, entries []Entry) string {
	var text strings.Builder

	fmt.Fprintf(&text, pageHead, name)

	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Summary, b.Summary), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Test, b.Test))
	})

	for _, part := range titles {
		some := slices.DeleteFunc(slices.Clone(sorted), func(e Entry) bool { return e.Kind != part.kind })
		if len(some) == 0 {
			continue
		}

		fmt.Fprintf(&text, "\n## %s\n", part.title)

		for _, said := range some {
			fmt.Fprintf(&text, "\n### %s\n\n%s\n\n~~~text\n%s\n~~~\n", said.Summary, said.Test, said.Detail)
		}
	}

	return text.String()
}

var (
	partOf  = regexp.MustCompile(`(?m)^## (.+)$`)
	entryOf = regexp.MustCompile(`(?ms)^### ([^\n]+)\n\n([^\n]+)\n\n~~~text\n(.*?)\n~~~$`)
)

// ReadPage is what the page at the path shows.
func ReadPage(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	var entries []Entry

	starts := partOf.FindAllSubmatchIndex(text, -1)
	for i, start := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}

		title := string(text[start[2]:start[3]])

		at := slices.IndexFunc(titles[:], func(t struct {
			kind  Kind
			title string
		},
		) bool {
			return t.title == title
		})
		if at < 0 {
			return nil, fmt.Errorf("%s: no part is called %q", path, title)
		}

		for _, match := range entryOf.FindAllStringSubmatch(string(text[start[0]:end]), -1) {
			entries = append(entries, Entry{Kind: titles[at].kind, Summary: match[1], Test: match[2], Detail: match[3]})
		}
	}

	if printed(strings.TrimSuffix(filepath.Base(path), ".md"), entries) != string(text) {
		return nil, fmt.Errorf("%s was edited by hand; run the tests of its package with -update", path)
	}

	return entries, nil
}
