// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// rollWarning shows the roll that an apply performs. A warning is the only way
// to show text in a plan. The name is what people call the cluster.
func rollWarning(made plan.Plan, name string) diag.Diagnostic {
	moving := movingNodes(made.Steps)

	// The command line shows it again after the apply, so it must be true then.
	summary := fmt.Sprintf("Planned: Rolling upgrade of %d of %d nodes", len(moving), made.Total())
	if len(made.Hops) > 1 {
		summary += fmt.Sprintf(" in %d hops", len(made.Hops))
	}

	return diag.NewWarningDiagnostic(about(summary, name), rollText(made, name, len(moving) > foldAbove))
}

// rollText is the whole of what there is to say about a roll. Tables, headings and
// images are indented, because the command line wraps all other lines.
func rollText(made plan.Plan, name string, folded bool) string {
	parts := []string{rollPace(made, name)}

	for start := 0; start < len(made.Steps); {
		end := start + 1
		for end < len(made.Steps) && made.Steps[end].Hop == made.Steps[start].Hop {
			end++
		}

		if hop := made.Steps[start].Hop; hop < len(made.Hops) {
			parts = append(parts, "  "+hopHeading(made.Hops, hop))
		}

		parts = append(parts, renderTable(hopRows(made.Steps, start, end, folded)))
		start = end
	}

	if len(made.Held) > 0 {
		parts = append(parts, "Held by node_overrides and left alone: "+nameList(made.Held)+".")
	}

	if images := shortenedImages(made.Steps, folded); len(images) > 0 {
		parts = append(parts, "Images in full:", "  "+strings.Join(images, "\n  "))
	}

	if total := made.Estimate(); total > 0 {
		parts = append(parts, "Planned duration: "+estimateText(total)+".")
	}

	return strings.Join(parts, "\n\n")
}

// rollPace is the sentence that says how many nodes move at a time.
func rollPace(made plan.Plan, name string) string {
	workers := map[string]bool{}

	for _, step := range made.Steps {
		if step.Role == cluster.Worker && step.Component == "" {
			workers[step.Node] = true
		}
	}

	if most := min(made.Budget, len(workers)); most > 1 {
		return fmt.Sprintf("Up to %d workers of %s at a time and its control planes one after the other, in this order:", most, name)
	}

	return fmt.Sprintf("One node of %s after the other, in this order:", name)
}

// hopHeading says where a hop leads, and where its release notes are.
func hopHeading(hops []plan.Hop, index int) string {
	hop, heading := hops[index], ""
	if len(hops) > 1 {
		heading = fmt.Sprintf("Hop %d of %d: ", index+1, len(hops))
	}

	if hop.Axis == plan.Kubernetes {
		return fmt.Sprintf("%sKubernetes %s -> %s (https://github.com/kubernetes/kubernetes/blob/master/CHANGELOG/CHANGELOG-%s.md)",
			heading, hop.From.Kubernetes, hop.To.Kubernetes, hop.To.Kubernetes.Minor())
	}

	if hop.From.Talos.Equal(hop.To.Talos) {
		return fmt.Sprintf("%sTalos %s with another image", heading, hop.To.Talos)
	}

	return fmt.Sprintf("%sTalos %s -> %s (https://github.com/siderolabs/talos/releases/tag/%s)",
		heading, hop.From.Talos, hop.To.Talos, hop.To.Talos.Tag())
}

// renderTable aligns the rows, of which the first is the head.
func renderTable(rows [][]string) string {
	var text strings.Builder

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		// A strings.Builder accepts everything.
		_, _ = fmt.Fprintln(table, "  "+strings.Join(row, "\t")+"\t")
	}

	_ = table.Flush()

	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	for index, line := range lines {
		lines[index] = strings.TrimRight(line, " ")
	}

	return strings.Join(lines, "\n")
}

// schematicText is a schematic anywhere in the name of an image.
var schematicText = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// shortImage is the image with its schematic cut to what tells two apart.
func shortImage(image string) string {
	return schematicText.ReplaceAllStringFunc(image, func(schematic string) string { return schematic[:8] + "…" })
}

// shortenedImages are the images that a table shows shortened, as they are.
func shortenedImages(steps []plan.Step, folded bool) []string {
	var images []string

	listed := map[string]bool{}

	for _, step := range steps {
		if !listed[step.Image] && shortImage(step.Image) != step.Image {
			listed[step.Image] = true

			images = append(images, step.Image)
		}
	}

	if hidden := len(images) - foldImages; folded && hidden > 1 {
		images = append(images[:foldImages], fmt.Sprintf("... %d more images", hidden))
	}

	return images
}

func movingNodes(steps []plan.Step) map[string]bool {
	moving := map[string]bool{}
	for _, step := range steps {
		moving[step.Node] = true
	}

	return moving
}

// estimateText says about how long something takes, and how sure that is.
func estimateText(estimate time.Duration) string {
	return "about " + longText(estimate) + " (an estimate from typical durations, not a promise)"
}

// longText is a duration in words, rounded up to whole minutes.
func longText(d time.Duration) string {
	minutes := int((d + time.Minute - 1) / time.Minute)

	count := func(n int, unit string) string {
		if n == 1 {
			return "1 " + unit
		}

		return fmt.Sprintf("%d %ss", n, unit)
	}

	switch hours := minutes / 60; {
	case hours == 0:
		return count(minutes, "minute")
	case minutes%60 == 0:
		return count(hours, "hour")
	default:
		return count(hours, "hour") + " " + count(minutes%60, "minute")
	}
}
