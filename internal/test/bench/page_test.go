// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// markdown returns a table in aligned columns. Its first line is the heading.
func markdown(lines [][]string) string {
	widths := make([]int, len(lines[0]))

	for _, line := range lines {
		for column, cell := range line {
			widths[column] = max(widths[column], utf8.RuneCountInString(cell))
		}
	}

	var text strings.Builder

	for index, line := range lines {
		for column, cell := range line {
			text.WriteString("| " + cell + strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell)) + " ")
		}

		text.WriteString("|\n")

		if index == 0 {
			for _, width := range widths {
				text.WriteString("|" + strings.Repeat("-", width+len("  ")))
			}

			text.WriteString("|\n")
		}
	}

	return text.String()
}

// intoPage replaces a table of the page that BENCH_PAGE names, if it is set.
func intoPage(t *testing.T, name, table string) {
	t.Helper()

	page := os.Getenv("BENCH_PAGE")
	if page == "" {
		return
	}

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}

	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"

	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)

	if !found || !ended {
		t.Fatalf("%s has no place for the table %q", page, name)
	}

	if err := os.WriteFile(page, []byte(before+begin+table+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
