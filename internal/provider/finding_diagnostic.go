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
// attribute for what no waiting cures, one warning for what would stop an apply
// now and, where there is work, one for advice.
func planFindings(findings []cluster.Finding, work bool) diag.Diagnostics {
	var (
		diagnostics diag.Diagnostics
		attributes  []string
	)

	bySeverity := map[cluster.Severity][]cluster.Finding{}
	byAttribute := map[string][]cluster.Finding{}

	for _, finding := range findings {
		bySeverity[finding.Severity] = append(bySeverity[finding.Severity], finding)

		if finding.Severity != cluster.Permanent {
			continue
		}

		if !slices.Contains(attributes, finding.Attribute) {
			attributes = append(attributes, finding.Attribute)
		}

		byAttribute[finding.Attribute] = append(byAttribute[finding.Attribute], finding)
	}

	for _, attribute := range attributes {
		diagnostics.Append(permanent(attribute, byAttribute[attribute]))
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

// permanent is the error for findings about one attribute; the attribute may
// be empty.
func permanent(attribute string, findings []cluster.Finding) diag.Diagnostic {
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

	if attribute == "" {
		return diag.NewErrorDiagnostic(summary, detail)
	}

	return diag.NewAttributeErrorDiagnostic(path.Root(attribute), summary, detail)
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
