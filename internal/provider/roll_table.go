// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// rollWarning shows the roll that an apply performs. A warning is the only way
// to show text in a plan.
func rollWarning(made plan.Plan, name string) diag.Diagnostic {
	return diag.NewWarningDiagnostic(
		fmt.Sprintf("Rolling upgrade of %d of %d nodes", len(made.Steps), made.Total()),
		fmt.Sprintf("One node of %s after the other, in this order:\n\n%s", name, rollTable(made.Steps)),
	)
}

// rollTable is one line per step. The lines are indented, because the command
// line wraps all others.
func rollTable(steps []plan.Step) string {
	var text strings.Builder

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		// A strings.Builder accepts everything.
		_, _ = fmt.Fprintf(table, "  %v\t%v\t%v\t%v\t%v\t%v\n", cells...)
	}

	row("step", "node", "role", "from", "to", "image")

	for index, step := range steps {
		name := step.Node
		if step.Finish {
			name += " (unfinished)"
		}

		row(index+1, name, step.Role, step.From, step.To, step.Image)
	}

	_ = table.Flush()

	return strings.TrimRight(text.String(), "\n")
}
