// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Above foldAbove nodes a table shows of each row of nodes alike only the first
// foldHead and the last foldTail, and no more than foldImages images in full.
const (
	foldAbove  = 40
	foldHead   = 3
	foldTail   = 2
	foldImages = 10
)

// hopRows are the lines of the table for the steps from start up to, and not
// including, end. Steps are numbered through all hops.
func hopRows(steps []plan.Step, start, end int, folded bool) [][]string {
	if steps[start].Component != "" {
		return withoutEmpty(componentRows(steps[start:end], start+1))
	}

	return withoutEmpty(nodeRows(steps, start, end, folded))
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

// componentRows is one line per part of Kubernetes, in the order in which they
// begin to move. Number is that of the first step.
func componentRows(steps []plan.Step, number int) [][]string {
	type part struct {
		first, last int
		nodes       map[string]bool
		from        []version.Version
		estimate    time.Duration
	}

	var order []cluster.Component

	parts := map[cluster.Component]*part{}

	for index, step := range steps {
		found := parts[step.Component]
		if found == nil {
			found = &part{first: number + index, nodes: map[string]bool{}}
			parts[step.Component] = found
			order = append(order, step.Component)
		}

		found.last = number + index
		found.nodes[step.Node] = true
		found.from = append(found.from, step.From)
		found.estimate += step.Estimate
	}

	rows := [][]string{{"step", "component", "nodes", "from", "to", "estimate"}}

	for _, component := range order {
		found := parts[component]

		// Components take turns on each control plane, so that their steps may
		// lie between each other.
		numbers := fmt.Sprintf("%d-%d", found.first, found.last)
		if found.first == found.last {
			numbers = strconv.Itoa(found.first)
		}

		from := half{Lowest: version.Lowest(found.from...), Highest: version.Highest(found.from...)}
		rows = append(rows, []string{
			numbers, string(component), strconv.Itoa(len(found.nodes)), from.String(), steps[0].To.String(), stepEstimate(found.estimate),
		})
	}

	return rows
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
