// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// rollWarning shows the roll that an apply performs. A warning is the only way
// to show text in a plan. The name is what people call the cluster, and changes
// are what a sync of the bootstrap manifests would change at present.
func rollWarning(made plan.Plan, name string, changes []cluster.ManifestChange) diag.Diagnostic {
	moving := movingNodes(made.Steps)

	// The command line shows it again after the apply, so it must be true then.
	summary := fmt.Sprintf("Planned: Rolling upgrade of %d of %d nodes", len(moving), made.Total())
	if len(moving) == 0 {
		summary = "Planned: Sync of the bootstrap manifests"
	}

	if len(made.Hops) > 1 {
		summary += fmt.Sprintf(" in %d hops", len(made.Hops))
	}

	return diag.NewWarningDiagnostic(about(summary, name), rollText(made, name, len(moving) > foldAbove, changes))
}

// rollText is the whole of what there is to say about a roll. Tables, headings and
// images are indented, because the command line wraps all other lines.
func rollText(made plan.Plan, name string, folded bool, changes []cluster.ManifestChange) string {
	var images []string

	parts := []string{rollPace(made, name)}

	for start, hop := 0, -1; start < len(made.Steps); {
		end := segmentEnd(made.Steps, start)

		if next := made.Steps[start].Hop; next != hop && next < len(made.Hops) {
			hop = next
			parts = append(parts, "  "+hopHeading(made, hop))
		}

		parts = append(parts, renderTable(stepRows(made, start, end, folded)))
		images = append(images, hiddenImages(made.Steps, start, end)...)
		start = end
	}

	if len(made.Held) > 0 {
		parts = append(parts, "Held by node_overrides and left alone: "+nameList(made.Held)+".")
	}

	if shown := shownImages(images, folded); len(shown) > 0 {
		parts = append(parts, "Images in full:", "  "+strings.Join(shown, "\n  "))
	}

	parts = append(parts, changeTexts(changes)...)

	if total := made.Estimate(); total > 0 {
		parts = append(parts, "Planned duration: "+estimateText(total)+".")
	}

	return strings.Join(parts, "\n\n")
}

// segmentEnd is where the steps end that share a table with the one at start.
func segmentEnd(steps []plan.Step, start int) int {
	end := start + 1
	for end < len(steps) && steps[end].Hop == steps[start].Hop && (steps[end].Component == "") == (steps[start].Component == "") {
		end++
	}

	return end
}

// rollPace is the sentence that says how much moves at a time.
func rollPace(made plan.Plan, name string) string {
	var (
		workers, kubelets = map[string]bool{}, map[string]bool{}
		reboots, parts    bool
	)

	for _, step := range made.Steps {
		switch {
		case step.Component == "":
			reboots = true
			if step.Role == cluster.Worker {
				workers[step.Node] = true
			}
		case step.Component == cluster.Kubelet && step.Role == cluster.Worker:
			parts, kubelets[step.Node] = true, true
		case step.Component != cluster.Manifests:
			parts = true
		}
	}

	kubeletPace := ""
	if most := min(made.KubeletBudget, len(kubelets)); most > 1 {
		kubeletPace = fmt.Sprintf(", kubelets of workers up to %d at a time", most)
	}

	switch most := min(made.Budget, len(workers)); {
	case !reboots && !parts:
		return fmt.Sprintf("No node of %s is touched:", name)
	case !reboots:
		return fmt.Sprintf("No node of %s restarts. One component after the other%s, in this order:", name, kubeletPace)
	case most > 1:
		return fmt.Sprintf("Up to %d workers of %s at a time and its control planes one after the other%s, in this order:", most, name, kubeletPace)
	default:
		return fmt.Sprintf("One node of %s after the other%s, in this order:", name, kubeletPace)
	}
}

// hopHeading says where a hop leads, and where its release notes are.
func hopHeading(made plan.Plan, index int) string {
	hop, heading := made.Hops[index], ""
	if len(made.Hops) > 1 {
		heading = fmt.Sprintf("Hop %d of %d: ", index+1, len(made.Hops))
	}

	if !slices.ContainsFunc(made.Steps, func(step plan.Step) bool { return step.Hop == index && step.Component != cluster.Manifests }) {
		return heading + "Bootstrap manifests"
	}

	if hop.Axis == plan.Kubernetes && hop.From.Kubernetes.Equal(hop.To.Kubernetes) {
		return fmt.Sprintf("%sKubernetes %s with other images", heading, hop.To.Kubernetes)
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

// shownImages are the images as they are, each once.
func shownImages(hidden []string, folded bool) []string {
	var images []string

	listed := map[string]bool{}

	for _, image := range hidden {
		if !listed[image] {
			listed[image] = true

			images = append(images, image)
		}
	}

	if more := len(images) - foldImages; folded && more > 1 {
		images = append(images[:foldImages], fmt.Sprintf("... %d more images", more))
	}

	return images
}

// movingNodes are the names of the nodes that have a turn. Manifests concern none.
func movingNodes(steps []plan.Step) map[string]bool {
	moving := map[string]bool{}
	for _, step := range steps {
		if step.Node != "" {
			moving[step.Node] = true
		}
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
