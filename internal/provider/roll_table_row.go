// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// Above foldAbove nodes a table shows of each row of nodes alike only the first
// foldHead and the last foldTail, and no more than foldImages images in full.
const (
	foldAbove  = 40
	foldHead   = 3
	foldTail   = 2
	foldImages = 10
)

// stepRows are the lines of the table for the steps from start up to, and not
// including, end, which are all of nodes or all of components. Steps are numbered
// through all hops.
func stepRows(made plan.Plan, start, end int, folded bool) [][]string {
	if made.Steps[start].Component != "" {
		return withoutEmpty(componentRows(made, start, end))
	}

	return withoutEmpty(nodeRows(made.Steps, start, end, folded))
}

// withoutEmpty is the table without the columns of which only the head says
// anything.
func withoutEmpty(rows [][]string) [][]string {
	for column := len(rows[0]) - 1; column >= 0; column-- {
		if slices.ContainsFunc(rows[1:], func(row []string) bool { return row[column] != "" }) {
			continue
		}

		for index, row := range rows {
			rows[index] = slices.Delete(row, column, column+1)
		}
	}

	return rows
}

// nodeRows is one line per node, but for those that are folded away.
func nodeRows(steps []plan.Step, start, end int, folded bool) [][]string {
	rows := [][]string{{"step", "node", "role", "from", "to", "image", "estimate"}}

	for first := start; first < end; {
		last := first + 1
		for last < end && alike(steps[first], steps[last]) {
			last++
		}

		hidden := 0
		if folded {
			hidden = last - first - foldHead - foldTail
		}

		for index := first; index < last; index++ {
			// Hiding a single node would save nothing.
			if hidden > 1 && index == first+foldHead {
				rows = append(rows, []string{"...", fmt.Sprintf("... %d more %s", hidden, plural(steps[index].Role)), "", "", "", "", ""})
				index += hidden
			}

			rows = append(rows, nodeRow(index+1, steps[index]))
		}

		first = last
	}

	return rows
}

// alike tells whether two steps may stand for each other in a folded table:
// what is marked is always shown.
func alike(a, b plan.Step) bool {
	return a.Role == b.Role && a.Canary == b.Canary && a.Finish == b.Finish && !a.Finish
}

func nodeRow(number int, step plan.Step) []string {
	name := step.Node

	switch {
	case step.Canary && step.Finish:
		name += " (canary, unfinished)"
	case step.Canary:
		name += " (canary)"
	case step.Finish:
		name += " (unfinished)"
	}

	return []string{
		strconv.Itoa(number), name, string(step.Role), step.From.String(), step.To.String(), shortImage(step.Image), stepEstimate(step.Estimate),
	}
}

func plural(role cluster.Role) string {
	if role == cluster.ControlPlane {
		return "control planes"
	}

	return "workers"
}

// stepEstimate is about how long a step takes; empty when nobody knows.
func stepEstimate(estimate time.Duration) string {
	if estimate <= 0 {
		return ""
	}

	return durationText(max(estimate.Round(30*time.Second), 30*time.Second))
}
