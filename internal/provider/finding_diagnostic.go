// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// planFindings splits what a plan found into diagnostics: one error per
// place in the configuration for what no waiting cures, one warning for what would stop an apply
// now, one for what would if its check were not skipped and, where there is work,
// one for advice. Seen is the cluster that was planned for.
func planFindings(findings []cluster.Finding, work bool, seen observation) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		places      []string
		skipped     []cluster.Finding
	)

	bySeverity := map[cluster.Severity][]cluster.Finding{}
	byPlace := map[string][]cluster.Finding{}

	for _, finding := range findings {
		if finding.Skipped {
			skipped = append(skipped, finding)

			continue
		}

		bySeverity[finding.Severity] = append(bySeverity[finding.Severity], finding)

		if finding.Severity != cluster.Permanent {
			continue
		}

		place := findingPath(finding).String()
		if !slices.Contains(places, place) {
			places = append(places, place)
		}

		byPlace[place] = append(byPlace[place], finding)
	}

	for _, place := range places {
		diagnostics.Append(permanent(byPlace[place], seen))
	}

	if observed := bySeverity[cluster.Observed]; len(observed) > 0 {
		// The command line shows it again after the apply, so it must be true then.
		summary := "While planning, an apply would have been refused"
		if !work {
			summary = "Not everything about the cluster is as it should be"
		}

		diagnostics.AddWarning(about(summary, seen.name), findingList(observed)+"\n\nThis was observed while planning and is checked again by apply.")
	}

	if len(skipped) > 0 {
		diagnostics.AddWarning(about("Checks that are skipped did not pass", seen.name),
			findingList(skipped)+"\n\nAn apply goes on all the same, because "+path.Root(attrPreflight).AtName(attrSkip).String()+" names them.")
	}

	if advice := bySeverity[cluster.Advice]; len(advice) > 0 && work && !diagnostics.HasError() {
		diagnostics.AddWarning(about("Worth knowing about the upgrade", seen.name), findingList(advice))
	}

	return diagnostics
}

// findingPath is the place in the configuration that a finding is about; empty
// where it is about none.
func findingPath(finding cluster.Finding) path.Path {
	if finding.Attribute == "" {
		return path.Empty()
	}

	at := path.Root(finding.Attribute)

	for _, step := range finding.Within {
		switch step := step.(type) {
		case cluster.Key:
			at = at.AtMapKey(string(step))
		case cluster.Index:
			at = at.AtListIndex(int(step))
		case cluster.Field:
			at = at.AtName(string(step))
		}
	}

	return at
}

// permanent is the error for findings about one place.
func permanent(findings []cluster.Finding, seen observation) diag.Diagnostic {
	at := findingPath(findings[0])
	summary, detail := "Unable to plan the upgrade", findingList(findings)

	if len(findings) == 1 {
		names := make([]string, 0, len(seen.Nodes))
		for _, node := range seen.Nodes {
			names = append(names, node.Name)
		}

		detail = sentence(findings[0].Found, names...)
		if findings[0].Node != "" {
			summary += " of node " + findings[0].Node
		}

		if findings[0].Remedy != "" {
			detail += "\n\n" + findings[0].Remedy
		}
	}

	return errorAt(at, summary, detail)
}

// errorAt is an error about a place in the configuration, or about none where
// the path is empty.
func errorAt(at path.Path, summary, detail string) diag.Diagnostic {
	if len(at.Steps()) == 0 {
		return diag.NewErrorDiagnostic(summary, detail)
	}

	// The command line shows an attribute as a whole.
	if len(at.Steps()) > 1 {
		detail += "\n\nThe value at fault is " + at.String() + "."
	}

	return diag.NewAttributeErrorDiagnostic(visible(at), summary, detail)
}

// visible is as much of the path as the command line finds in a configuration:
// an attribute of the resource, and one element of it. Of anything deeper it
// shows the first line of the resource, which is the wrong one.
func visible(at path.Path) path.Path {
	var shown path.Path

	for index, step := range at.Steps() {
		switch step := step.(type) {
		case path.PathStepAttributeName:
			if index > 0 {
				return shown
			}

			shown = path.Root(string(step))
		case path.PathStepElementKeyString:
			return shown.AtMapKey(string(step))
		case path.PathStepElementKeyInt:
			return shown.AtListIndex(int(step))
		}
	}

	return shown
}

// linesMost is how many different findings of one check are listed.
const linesMost = 10

// findingLine is what is the same on one or several nodes.
type findingLine struct {
	cluster.Finding

	nodes []string
}

// count is how many findings the line stands for.
func (l *findingLine) count() int { return max(len(l.nodes), 1) }

// findingList is one line per finding. What is the same on several nodes is
// said once, and of what is too much to be read there is the number.
func findingList(findings []cluster.Finding) string {
	var (
		lines  []string
		checks []string
	)

	listed, hidden := map[string]int{}, map[string]int{}

	for _, line := range merged(findings) {
		if listed[line.Check] == linesMost {
			if hidden[line.Check] == 0 {
				checks = append(checks, line.Check)
			}

			hidden[line.Check] += line.count()

			continue
		}

		listed[line.Check]++

		line.Node = nameList(line.nodes)
		lines = append(lines, "- "+hanging(line.String()))
	}

	for _, check := range checks {
		noun := "findings"
		if hidden[check] == 1 {
			noun = "finding"
		}

		lines = append(lines, fmt.Sprintf("- and %d more %s of check %s", hidden[check], noun, check))
	}

	return strings.Join(lines, "\n")
}

// merged folds findings that differ in nothing but their node, in the order of
// the first of each.
func merged(findings []cluster.Finding) []*findingLine {
	type likeness struct{ check, found, remedy string }

	var lines []*findingLine

	byLikeness := map[likeness]*findingLine{}

	for _, finding := range findings {
		if finding.Node == "" {
			lines = append(lines, &findingLine{Finding: finding})

			continue
		}

		key := likeness{finding.Check, finding.Found, finding.Remedy}

		line := byLikeness[key]
		if line == nil {
			line = &findingLine{Finding: finding}
			byLikeness[key] = line
			lines = append(lines, line)
		}

		line.nodes = append(line.nodes, finding.Node)
	}

	return lines
}
