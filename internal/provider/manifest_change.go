// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// How much of the bootstrap manifests a plan shows: so many objects, so many
// lines of each, and so many in all.
const (
	changesMost   = 20
	diffLinesMost = 20
	diffLinesAll  = 80
)

// changeTexts say what a sync of the bootstrap manifests would change at present;
// empty where that is nothing. Diffs are indented, because the command line wraps
// all other lines.
func changeTexts(changes []cluster.ManifestChange) []string {
	var (
		lines   []string
		shown   []cluster.ManifestChange
		adopted int
	)

	for _, change := range changes {
		if adopts(change) {
			adopted++
		} else {
			shown = append(shown, change)
		}
	}

	budget := diffLinesAll

	for index, change := range shown {
		if hidden := len(shown) - index; index == changesMost && hidden > 1 {
			lines = append(lines, fmt.Sprintf("  ... %d more objects", hidden))

			break
		}

		diff := diffLines(change.Diff, min(diffLinesMost, budget))
		budget = max(0, budget-len(diff))
		lines = append(lines, "  "+string(change.Action)+" "+change.Object)
		lines = append(lines, diff...)
	}

	if adopted > 0 {
		lines = append(lines, fmt.Sprintf("  adopt %d objects: nothing but the annotation %s is added to them", adopted, inventoryAnnotation))
	}

	if len(lines) == 0 {
		return nil
	}

	return []string{
		"The cluster does not hold the bootstrap manifests as Talos renders them now, and the sync at the end would change it as follows. " +
			"What the new versions render differently is seen only then.",
		strings.Join(lines, "\n"),
	}
}

// inventoryAnnotation marks what the first sync of a cluster takes over.
const inventoryAnnotation = "config.k8s.io/owning-inventory"

// adopts tells whether the change only marks an object as one that was synced.
func adopts(change cluster.ManifestChange) bool {
	marked := false

	for _, line := range strings.Split(change.Diff, "\n") {
		if heading(line) || !strings.HasPrefix(line, "+") && !strings.HasPrefix(line, "-") {
			continue
		}

		switch key, _, _ := strings.Cut(strings.TrimSpace(line[1:]), ":"); {
		case strings.HasPrefix(line, "+") && key == inventoryAnnotation:
			marked = true
		case strings.HasPrefix(line, "+") && key == "annotations", key == "generation":
		default:
			return false
		}
	}

	return marked && change.Action == cluster.ManifestConfigured
}

// heading tells whether the line of a diff names what is compared.
func heading(line string) bool {
	return strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")
}

// diffLines are the lines of a diff, indented, and no more than that many. Its
// heading only repeats the name of the object.
func diffLines(diff string, most int) []string {
	lines := slices.DeleteFunc(strings.Split(strings.TrimRight(diff, "\n"), "\n"), heading)
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
		return nil
	}

	hidden := len(lines) - most

	// Hiding a single line would save nothing.
	if hidden > 1 {
		lines = append(lines[:most:most], fmt.Sprintf("... %d more lines", hidden))
	}

	for index, line := range lines {
		lines[index] = strings.TrimRight("      "+line, " ")
	}

	return lines
}
