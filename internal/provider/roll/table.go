// SPDX-License-Identifier: MPL-2.0

// Package roll describes a roll as the text of a plan.
package roll

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Warning returns the warning that shows the roll that an apply performs: text in a plan can only be a warning. name is the
// display name of the cluster, and changes are what a sync of the bootstrap manifests would change now. unsynced
// says why there is no such sync; empty if there is one.
func Warning(made plan.Plan, name string, changes []cluster.ManifestChange, unsynced string) diag.Diagnostic {
	text := describe(made, name, len(movingNodes(made.Steps)) > foldAbove, changes)
	if unsynced != "" {
		text += "\n\n" + unsynced
	}

	return diag.NewWarningDiagnostic(diagnostic.About(headline(made), name), text)
}

// headline summarizes a roll in a few words.
func headline(made plan.Plan) string {
	moving := movingNodes(made.Steps)

	// The command line shows it again after the apply, so it must be true then.
	summary := fmt.Sprintf("Planned: Rolling upgrade of %d of %d nodes", len(moving), made.Total()+len(made.Held))
	if len(moving) == 0 {
		summary = "Planned: Sync of the bootstrap manifests"
	}

	if len(made.Hops) > 1 {
		summary += fmt.Sprintf(" in %d hops", len(made.Hops))
	}

	if len(made.Held) > 0 {
		summary += fmt.Sprintf(", %d held", len(made.Held))
	}

	return summary
}

// describe describes a roll in full. Tables, headings and images are indented, because the command line wraps all
// other lines.
func describe(made plan.Plan, name string, folded bool, changes []cluster.ManifestChange) string {
	var images []string

	parts := []string{pace(made, name)}

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

	parts = append(parts, poolTexts(made)...)
	parts = append(parts, heldTexts(made)...)

	if shown := shownImages(images, folded); len(shown) > 0 {
		parts = append(parts, "Images in full:", "  "+strings.Join(shown, "\n  "))
	}

	parts = append(parts, changeTexts(changes)...)

	if total := made.Estimate(); total > 0 {
		parts = append(parts, "Planned duration: "+EstimateText(total)+".")
	}

	parts = append(parts, "As data: hops and steps of the data source "+attrname.TypeName+"_preflight.")

	return strings.Join(parts, "\n\n")
}

// heldTexts returns which nodes are held, and by what.
func heldTexts(made plan.Plan) []string {
	var (
		texts  []string
		causes []string
	)

	nodes := map[string][]string{}

	for _, name := range made.Held {
		by := plan.HeldBy(made.Policy, name)
		if nodes[by] == nil {
			causes = append(causes, by)
		}

		nodes[by] = append(nodes[by], name)
	}

	for _, by := range causes {
		texts = append(texts, "Held by "+by+" and left alone: "+readable.List(nodes[by])+".")
	}

	return texts
}

// poolTexts returns how many workers of each pool are upgraded at a time, for the pools that take part in the roll.
func poolTexts(made plan.Plan) []string {
	var texts []string

	for _, pool := range made.Policy.Selected.Pools {
		if slices.ContainsFunc(made.Steps, func(step plan.Step) bool { return step.Pool == pool.Name }) {
			texts = append(texts, fmt.Sprintf("Of the %d workers in the pool %s no more than %d at a time.", len(pool.Workers), readable.Word(pool.Name), pool.Budget()))
		}
	}

	return texts
}

// segmentEnd returns the end of the steps that share a table with the one at start.
func segmentEnd(steps []plan.Step, start int) int {
	end := start + 1
	for end < len(steps) && steps[end].Hop == steps[start].Hop && (steps[end].Component == "") == (steps[start].Component == "") {
		end++
	}

	return end
}

// pace returns the sentence that says how many nodes are upgraded at a time.
func pace(made plan.Plan, name string) string {
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

// hopHeading returns the heading of a hop: its versions, and the URL of their release notes.
func hopHeading(made plan.Plan, index int) string {
	hop, heading := made.Hops[index], ""
	if len(made.Hops) > 1 {
		heading = fmt.Sprintf("Hop %d of %d: ", index+1, len(made.Hops))
	}

	if !slices.ContainsFunc(made.Steps, func(step plan.Step) bool { return step.Hop == index && step.Component != cluster.Manifests }) {
		return heading + "Bootstrap manifests"
	}

	if hop.Product == version.Kubernetes && hop.From.Kubernetes.Equal(hop.To.Kubernetes) {
		return fmt.Sprintf("%sKubernetes %s with other images", heading, hop.To.Kubernetes)
	}

	if hop.Product == version.Kubernetes {
		return fmt.Sprintf("%sKubernetes %s -> %s (%s)", heading, hop.From.Kubernetes, hop.To.Kubernetes, ReleaseNotesURL(hop))
	}

	if hop.From.Talos.Equal(hop.To.Talos) {
		return fmt.Sprintf("%sTalos %s with another image", heading, hop.To.Talos)
	}

	return fmt.Sprintf("%sTalos %s -> %s (%s)", heading, hop.From.Talos, hop.To.Talos, ReleaseNotesURL(hop))
}

// ReleaseNotesURL returns the URL of the release notes of the version that the hop leads to; empty if the version
// stays.
func ReleaseNotesURL(hop plan.Hop) string {
	switch {
	case hop.From.Talos.Equal(hop.To.Talos) && hop.From.Kubernetes.Equal(hop.To.Kubernetes):
		return ""
	case hop.Product == version.Kubernetes:
		return "https://github.com/kubernetes/kubernetes/blob/master/CHANGELOG/CHANGELOG-" + hop.To.Kubernetes.Minor().String() + ".md"
	default:
		return "https://github.com/siderolabs/talos/releases/tag/" + hop.To.Talos.Tag()
	}
}

// renderTable aligns the rows. The first row is the header.
func renderTable(rows [][]string) string {
	var text strings.Builder

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		// A strings.Builder returns no errors.
		_, _ = fmt.Fprintln(table, "  "+strings.Join(row, "\t")+"\t")
	}

	_ = table.Flush()

	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	for index, line := range lines {
		lines[index] = strings.TrimRight(line, " ")
	}

	return strings.Join(lines, "\n")
}

// schematicText matches a schematic anywhere in the name of an image.
var schematicText = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// shortImage returns the image with its schematic shortened.
func shortImage(image string) string {
	return schematicText.ReplaceAllStringFunc(image, func(schematic string) string { return schematic[:8] + "…" })
}

// shownImages returns the distinct images, folded if there are too many.
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

// movingNodes returns the names of the nodes that have a step. The step of the manifests has no node.
func movingNodes(steps []plan.Step) map[string]bool {
	moving := map[string]bool{}
	for _, step := range steps {
		if step.Node != "" {
			moving[step.Node] = true
		}
	}

	return moving
}

// EstimateText returns an approximate duration, and how reliable it is.
func EstimateText(estimate time.Duration) string {
	return "about " + longText(estimate) + " (an estimate from typical durations, not a promise)"
}

// longText returns a duration in words, rounded up to whole minutes.
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

// Above foldAbove nodes, a table shows only the first foldHead and the last foldTail of consecutive similar nodes,
// and only foldImages images in full.
const (
	foldAbove  = 40
	foldHead   = 3
	foldTail   = 2
	foldImages = 10
)

// stepRows returns the rows of the table for the steps in [start, end), which are all of nodes or all of components.
// Steps are numbered through all hops.
func stepRows(made plan.Plan, start, end int, folded bool) [][]string {
	if made.Steps[start].Component != "" {
		return withoutEmpty(componentRows(made, start, end))
	}

	return withoutEmpty(nodeRows(made.Steps, start, end, folded))
}

// withoutEmpty removes the columns in which only the header has a value.
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

// nodeRows returns a row for each step of a node, except for those that are folded.
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

// alike reports whether two steps may be folded together in a table. Unfinished nodes are never folded.
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

// stepEstimate returns the approximate duration of a step; empty if unknown.
func stepEstimate(estimate time.Duration) string {
	if estimate <= 0 {
		return ""
	}

	return readable.Duration(max(estimate.Round(30*time.Second), 30*time.Second))
}

// componentGroup is the steps of one component on similar nodes.
type componentGroup struct {
	component   cluster.Component
	role        cluster.Role
	canary      bool
	first, last int
	nodes       []string
	from        []version.Version
	to          version.Version
	images      []string
	// longest is the duration of the longest step.
	longest time.Duration
}

// componentGroups groups the steps in [start, end), in the order of the first step of each group.
func componentGroups(steps []plan.Step, start, end int) []*componentGroup {
	var groups []*componentGroup

	for index := start; index < end; index++ {
		step := steps[index]

		at := slices.IndexFunc(groups, func(g *componentGroup) bool {
			return g.component == step.Component && g.role == step.Role && g.canary == step.Canary
		})
		if at < 0 {
			at = len(groups)
			groups = append(groups, &componentGroup{
				component: step.Component, role: step.Role, canary: step.Canary, first: index + 1, to: step.To,
			})
		}

		groups[at].add(index+1, step)
	}

	return groups
}

func (g *componentGroup) add(number int, step plan.Step) {
	g.last, g.longest = number, max(g.longest, step.Estimate)
	g.from = append(g.from, step.From)

	if step.Node != "" {
		g.nodes = append(g.nodes, step.Node)
	}

	if step.Image != "" && !slices.Contains(g.images, step.Image) {
		g.images = append(g.images, step.Image)
	}
}

// componentRows returns one row per component and kind of node.
func componentRows(made plan.Plan, start, end int) [][]string {
	rows := [][]string{{"step", "component", "nodes", "at a time", "from", "to", "image", "estimate"}}

	for _, group := range componentGroups(made.Steps, start, end) {
		rows = append(rows, group.row(made.KubeletBudget))
	}

	return rows
}

func (g *componentGroup) row(budget int) []string {
	numbers := strconv.Itoa(g.first)
	if g.last > g.first {
		numbers = fmt.Sprintf("%d-%d", g.first, g.last)
	}

	if g.component == cluster.Manifests {
		return []string{numbers, "bootstrap manifests", "", "", "", "", "", stepEstimate(g.longest)}
	}

	nodes := fewNames(g.nodes)
	if g.canary {
		nodes += " (canary)"
	}

	most := 1
	if g.component == cluster.Kubelet && g.role == cluster.Worker {
		most = max(1, min(budget, len(g.nodes)))
	}

	rounds := (len(g.nodes) + most - 1) / most
	lowest, highest := version.Lowest(g.from...), version.Highest(g.from...)

	from := lowest.String()
	if !lowest.Equal(highest) {
		from += " to " + highest.String()
	}

	return []string{
		numbers, string(g.component), nodes, strconv.Itoa(most), from, g.to.String(), g.image(),
		stepEstimate(time.Duration(rounds) * g.longest),
	}
}

// image returns the image if all nodes get the same, or else the number of images.
func (g *componentGroup) image() string {
	switch len(g.images) {
	case 0:
		return ""
	case 1:
		return shortImage(g.images[0])
	default:
		return fmt.Sprintf("%d images", len(g.images))
	}
}

// hiddenImages returns the images of the steps in [start, end) that the table does not show in full.
func hiddenImages(steps []plan.Step, start, end int) []string {
	var hidden []string

	if steps[start].Component != "" {
		for _, group := range componentGroups(steps, start, end) {
			if len(group.images) > 1 || group.image() != strings.Join(group.images, "") {
				hidden = append(hidden, group.images...)
			}
		}

		return hidden
	}

	for _, step := range steps[start:end] {
		if shortImage(step.Image) != step.Image {
			hidden = append(hidden, step.Image)
		}
	}

	return hidden
}

// fewNames joins the names, folded if they do not fit into a table.
func fewNames(names []string) string {
	if len(names) <= foldHead+foldTail {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:foldHead], ", "), len(names)-foldHead)
}

// changeTexts returns what a sync of the bootstrap manifests would change now; nil if nothing. Diffs are indented,
// because the command line wraps all other lines.
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
		if hidden := len(shown) - index; index == maxChanges && hidden > 1 {
			lines = append(lines, fmt.Sprintf("  ... %d more objects", hidden))

			break
		}

		diff := diffLines(change.Diff, min(maxDiffLines, budget))
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

// How much of the bootstrap manifests a plan shows: the maximum number of objects, of lines of each, and of lines in
// total.
const (
	maxChanges   = 20
	maxDiffLines = 20
	diffLinesAll = 80
)

// inventoryAnnotation is the annotation that the first sync of a cluster adds to the objects it adopts.
const inventoryAnnotation = "config.k8s.io/owning-inventory"

// adopts reports whether the change only marks an object as synced.
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

// heading reports whether the line of a diff is part of its heading.
func heading(line string) bool {
	return strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")
}

// diffLines returns the indented lines of a diff, truncated to most lines, but never by a single line. The heading
// is omitted: it only repeats the name of the object.
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
