// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// nodeTable is one line per node, in the order in which their turns ended.
func nodeTable(told *story, judged verdict) string {
	names := told.sorted()
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(told.nodes[a].finished, told.nodes[b].finished)
	})

	rows := [][]string{{"node", "role", "before", "after", "duration"}}

	for _, name := range names {
		node := told.nodes[name]
		rows = append(rows, []string{name, node.role, node.before, judged.Nodes[name].Talos, node.duration()})
	}

	return table(rows)
}

// duration is the node's turn, from cordon to uncordon.
func (c *character) duration() string {
	if !c.moved {
		return "-"
	}

	return clock(c.finished - c.started)
}

// annotationTable is one line per key, without what all keys begin with.
func annotationTable(annotations map[string]string) string {
	rows := make([][]string, 0, len(annotations))
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		rows = append(rows, []string{key, annotations[key]})
	}

	return table(rows)
}

func table(rows [][]string) string {
	var text strings.Builder

	writer := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		// A strings.Builder accepts everything.
		_, _ = fmt.Fprintln(writer, strings.Join(row, "\t"))
	}

	_ = writer.Flush()

	return text.String()
}
