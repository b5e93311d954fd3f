// SPDX-License-Identifier: MPL-2.0

// Package diagnostic words findings and events for the person at the command line.
package diagnostic

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

// OfFindings turns the findings of a plan into diagnostics: one error per place in the configuration for those
// that waiting does not resolve; one warning for those that would stop an apply now; one for those whose checks are
// skipped; and, if there is work and no error, one for advice. applies is true if an apply follows, even if it has no
// work. name is the display name of the cluster, and nodes are those that were observed.
func OfFindings(findings []cluster.Finding, work, applies bool, name string, nodes []cluster.Node) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		places      []string
		skipped     []cluster.Finding
	)

	bySeverity := map[cluster.Severity][]cluster.Finding{}
	byPlace := map[string][]cluster.Finding{}

	for _, finding := range ByCause(findings) {
		if finding.Skipped {
			skipped = append(skipped, finding)

			continue
		}

		bySeverity[finding.Severity] = append(bySeverity[finding.Severity], finding)

		if finding.Severity != cluster.Permanent {
			continue
		}

		place := PathOf(finding).String()
		if !slices.Contains(places, place) {
			places = append(places, place)
		}

		byPlace[place] = append(byPlace[place], finding)
	}

	for _, place := range places {
		diagnostics.Append(permanent(byPlace[place], nodes))
	}

	if observed := bySeverity[cluster.Observed]; len(observed) > 0 {
		summary := "An apply would be refused as things stand"
		if !applies {
			summary = "Not everything about the cluster is as it should be"
		}

		diagnostics.AddWarning(About(summary, name), List(observed)+"\n\nThis was observed while planning and is checked again by apply.")
	}

	if len(skipped) > 0 {
		diagnostics.AddWarning(About("Checks that are skipped did not pass", name),
			List(skipped)+"\n\nAn apply continues despite them, because preflight.skip names their checks.")
	}

	if advice := bySeverity[cluster.Advice]; len(advice) > 0 && work && !diagnostics.HasError() {
		diagnostics.AddWarning(About("Worth knowing about the upgrade", name), List(advice))
	}

	return diagnostics
}

// ByCause returns the findings without those of checks that could not be made because of another finding. That
// finding names the checks.
func ByCause(findings []cluster.Finding) []cluster.Finding {
	causes := map[string]string{} // By check, if its cause is a finding as well.

	for _, finding := range findings {
		if finding.Cause != "" && slices.ContainsFunc(findings, func(one cluster.Finding) bool { return one.Check == finding.Cause && !one.Skipped }) {
			causes[finding.Check] = finding.Cause
		}
	}

	var kept []cluster.Finding

	for _, finding := range findings {
		if finding.Cause != "" && causes[finding.Check] == finding.Cause {
			continue
		}

		var unmade []string

		for check := range causes {
			root := check
			for causes[root] != "" {
				root = causes[root]
			}

			if root == finding.Check {
				unmade = append(unmade, check)
			}
		}

		if len(unmade) > 0 && !finding.Skipped {
			slices.Sort(unmade)
			finding.Found += "; because of that, " + strings.Join(unmade, ", ") + " could not be checked"
		}

		kept = append(kept, finding)
	}

	return kept
}

// PathOf returns the place in the configuration that a finding is about; empty if there is none.
func PathOf(finding cluster.Finding) path.Path {
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

// permanent returns the error for findings about one place.
func permanent(findings []cluster.Finding, nodes []cluster.Node) diag.Diagnostic {
	at := PathOf(findings[0])
	summary, detail := "Unable to plan the upgrade", List(findings)

	if len(findings) == 1 {
		names := make([]string, 0, len(nodes))
		for _, node := range nodes {
			names = append(names, node.Name)
		}

		detail = Sentence(findings[0].Found, names...)
		if findings[0].Node != "" {
			summary += " of node " + findings[0].Node
		}

		if findings[0].Remedy != "" {
			detail += "\n\n" + findings[0].Remedy
		}
	}

	return ErrorAt(at, summary, detail)
}

// MaxLines is the maximum number of different findings of one check that are listed.
const MaxLines = 10

// findingLine is a finding that is the same on one or several nodes.
type findingLine struct {
	cluster.Finding

	nodes []string
}

// count returns the number of findings that the line stands for.
func (l *findingLine) count() int { return max(len(l.nodes), 1) }

// List lists the findings, one per line. Equal findings of several nodes are one line, and those of a check
// beyond MaxLines are only counted.
func List(findings []cluster.Finding) string {
	var (
		lines  []string
		checks []string
	)

	listed, hidden := map[string]int{}, map[string]int{}

	for _, line := range merged(findings) {
		if listed[line.Check] == MaxLines {
			if hidden[line.Check] == 0 {
				checks = append(checks, line.Check)
			}

			hidden[line.Check] += line.count()

			continue
		}

		listed[line.Check]++

		line.Node = readable.List(line.nodes)
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

// merged folds findings that differ only in their node, in the order of the first of each.
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
