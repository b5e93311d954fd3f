// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// componentGroup is the turns of one component on nodes alike.
type componentGroup struct {
	component   cluster.Component
	role        cluster.Role
	canary      bool
	first, last int
	nodes       []string
	from        []version.Version
	to          version.Version
	images      []string
	// longest is how long the longest turn takes.
	longest time.Duration
}

// componentGroups are the steps from start up to, and not including, end, in the
// order in which the first of each group begins.
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

// componentRows is one line per component and kind of node.
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
	from := half{Lowest: version.Lowest(g.from...), Highest: version.Highest(g.from...)}

	return []string{
		numbers, string(g.component), nodes, strconv.Itoa(most), from.String(), g.to.String(), g.image(),
		stepEstimate(time.Duration(rounds) * g.longest),
	}
}

// image is the one that all nodes get, or how many there are.
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

// hiddenImages are the images that a table does not show as they are, of the
// steps from start up to, and not including, end.
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

// fewNames are the names, folded where there are more than fit into a table.
func fewNames(names []string) string {
	if len(names) <= foldHead+foldTail {
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:foldHead], ", "), len(names)-foldHead)
}
