// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// planFindings splits what a plan found into diagnostics: one error per
// place in the configuration for what no waiting cures, one warning for what would stop an apply
// now and, where there is work, one for advice.
func planFindings(findings []cluster.Finding, work bool) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		places      []string
	)

	bySeverity := map[cluster.Severity][]cluster.Finding{}
	byPlace := map[string][]cluster.Finding{}

	for _, finding := range findings {
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
		diagnostics.Append(permanent(byPlace[place]))
	}

	if observed := bySeverity[cluster.Observed]; len(observed) > 0 {
		summary := "An apply would refuse to start now"
		if !work {
			summary = "Not everything about the cluster is as it should be"
		}

		diagnostics.AddWarning(summary, findingList(observed)+"\n\nThis was observed while planning and is checked again by apply.")
	}

	if advice := bySeverity[cluster.Advice]; len(advice) > 0 && work && !diagnostics.HasError() {
		diagnostics.AddWarning("Worth knowing before the upgrade", findingList(advice))
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
func permanent(findings []cluster.Finding) diag.Diagnostic {
	at := findingPath(findings[0])
	summary, detail := "Unable to plan the upgrade", findingList(findings)

	if len(findings) == 1 {
		detail = sentence(findings[0].Found)
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

// findingList is one line per finding. What is the same on several nodes is
// said once, with all their names.
func findingList(findings []cluster.Finding) string {
	var merged []cluster.Finding

	for _, finding := range findings {
		index := slices.IndexFunc(merged, func(earlier cluster.Finding) bool {
			return earlier.Check == finding.Check && earlier.Found == finding.Found && earlier.Node != "" && finding.Node != ""
		})
		if index < 0 {
			merged = append(merged, finding)

			continue
		}

		merged[index].Node += ", " + finding.Node
	}

	lines := make([]string, 0, len(merged))
	for _, finding := range merged {
		lines = append(lines, "- "+finding.String())
	}

	return strings.Join(lines, "\n")
}
