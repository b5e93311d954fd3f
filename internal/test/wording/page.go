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

// Page returns the path of the page of a package, from the root of the module.
func Page(name string) string {
	return filepath.Join("internal", "test", "wording", "testdata", name+".md")
}

// pageTitle begins a page, and is followed by the name of its package.
const pageTitle = "# What people read: "

const pageHead = pageTitle + "%s\n\nWritten by `go test ./internal/%[1]s -update` from what the code said while the tests named here ran it; tests compare them.\n"

// printed returns the text of the page.
func printed(name string, entries []Entry) string {
	var text strings.Builder

	fmt.Fprintf(&text, pageHead, name)

	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Summary, b.Summary), cmp.Compare(a.Detail, b.Detail), cmp.Compare(a.Test, b.Test))
	})

	for _, kind := range [...]Kind{KindFailure, KindError, KindWarning, KindFinding} {
		some := slices.DeleteFunc(slices.Clone(sorted), func(e Entry) bool { return e.Kind != kind })
		if len(some) == 0 {
			continue
		}

		fmt.Fprintf(&text, "\n## %s\n", kind)

		for _, said := range some {
			fmt.Fprintf(&text, "\n### %s\n\n%s\n\n~~~text\n%s\n~~~\n", said.Summary, said.Test, said.Detail)
		}
	}

	return text.String()
}

// onPage matches the title of a part, or an entry.
var onPage = regexp.MustCompile(`(?ms)^## ([^\n]+)$|^### ([^\n]+)\n\n([^\n]+)\n\n~~~text\n(.*?)\n~~~$`)

// ReadPage returns the entries of the page at the path. If the page was edited by hand, it returns them with an
// error.
func ReadPage(path string) ([]Entry, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	var (
		entries []Entry
		kind    Kind
	)

	for _, match := range onPage.FindAllStringSubmatch(string(text), -1) {
		if match[1] != "" {
			kind = Kind(match[1])

			continue
		}

		entries = append(entries, Entry{Kind: kind, Summary: match[2], Test: match[3], Detail: match[4]})
	}

	name, _, _ := strings.Cut(strings.TrimPrefix(string(text), pageTitle), "\n")
	if printed(name, entries) != string(text) {
		return entries, fmt.Errorf("%s was edited by hand; run the tests of its package with -update", path)
	}

	return entries, nil
}
