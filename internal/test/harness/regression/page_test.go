// SPDX-License-Identifier: MPL-2.0

package regression_test

import (
	"fmt"
	"strings"
)

// render is the table for people.
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

// cell names the test of a row.
func cell(r row) string {
	named := "`" + r.test.name + "` in " + r.test.pkg
	if r.replay != nil {
		named += " *"
	}

	return named
}
