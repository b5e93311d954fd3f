// SPDX-License-Identifier: MPL-2.0

package report

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// findingGroup are the findings of one severity.
type findingGroup struct {
	Name, Class string
	Rows        []findingRow
}

type findingRow struct{ Node, Check, Found, Remedy string }

// findings returns the findings of the plan, the most severe ones first. Those that stopped the run are shown
// with its failure.
func (s *story) findings() []findingGroup {
	if s.outline == nil {
		return nil
	}

	var blocking, skipped, advice []cluster.Finding

	for _, one := range s.outline.Findings {
		switch {
		case one.Skipped:
			skipped = append(skipped, one)
		case one.Severity == cluster.Advice:
			advice = append(advice, one)
		default:
			blocking = append(blocking, one)
		}
	}

	if s.ending != nil && s.ending.Failure != nil && len(s.ending.Failure.Findings) > 0 {
		blocking = nil
	}

	var groups []findingGroup

	for _, group := range []struct {
		name, class string
		findings    []cluster.Finding
	}{{"In the way", "failed", blocking}, {"Skipped by preflight.skip", "stopped", skipped}, {"Worth knowing", classAhead, advice}} {
		if len(group.findings) > 0 {
			groups = append(groups, findingGroup{Name: group.name, Class: group.class, Rows: findingRows(group.findings)})
		}
	}

	return groups
}

func findingRows(findings []cluster.Finding) []findingRow {
	rows := make([]findingRow, 0, len(findings))
	for _, one := range findings {
		rows = append(rows, findingRow{Node: one.Node, Check: one.Check, Found: one.Found, Remedy: one.Remedy})
	}

	return rows
}

// versionRow is what a node ran before, and what it ran when it was last seen.
type versionRow struct {
	Node, Role string
	Cells      []versionCell
	// Note says why the node did not move, if that is worth a word.
	Note string
}

// versionCell is the version of Talos or of a component.
type versionCell struct {
	Name, Before, After string
	Moved               bool
}

// columns are those of the table of versions.
var columns = [...]struct {
	name      string
	component cluster.Component
}{{"Talos", ""}, {"kubelet", cluster.Kubelet}, {"kube-apiserver", cluster.APIServer}}

// versions returns a row for each node that was there at the beginning or is there now.
func (s *story) versions() []versionRow {
	before := map[string]cluster.Node{}
	after := map[string]cluster.Node{}

	held := map[string]bool{}

	var names []string

	add := func(into map[string]cluster.Node, nodes []cluster.Node) {
		for _, node := range nodes {
			_, had := before[node.Name]
			_, has := after[node.Name]

			if !had && !has {
				names = append(names, node.Name)
			}

			into[node.Name] = node
		}
	}

	if s.outline != nil {
		for _, name := range s.outline.Held {
			held[name] = true
		}

		add(before, s.outline.Nodes)
	}

	if s.ending != nil {
		add(after, s.ending.Nodes)
	}

	rows := make([]versionRow, 0, len(names))

	for _, name := range names {
		first, known := before[name]
		if !known {
			first = after[name]
		}

		row := versionRow{Node: name, Role: roleName(first.Role), Cells: s.cells(before[name], after[name])}

		switch {
		case held[name]:
			row.Note = "held"
		case !known && s.outline != nil:
			row.Note = "joined"
		case first.Gone, s.left(name, after):
			row.Note = "gone"
		}

		rows = append(rows, row)
	}

	return rows
}

// left reports whether the node is gone.
func (s *story) left(name string, after map[string]cluster.Node) bool {
	node, there := after[name]

	return len(after) > 0 && (!there || node.Gone)
}

// cells compares two observations of one node.
func (s *story) cells(before, after cluster.Node) []versionCell {
	cells := make([]versionCell, 0, len(columns))

	for _, column := range columns {
		from, to := versionOf(before, column.component), versionOf(after, column.component)
		if to.IsZero() {
			to = s.reached(before.Name, column.component)
		}

		cell := versionCell{Name: column.name, Before: versionText(from), After: versionText(to)}
		cell.Moved = !to.IsZero() && !from.IsZero() && !to.Equal(from)
		cells = append(cells, cell)
	}

	return cells
}

// reached returns the version that the last completed upgrade of the node led to, or zero if none completed.
func (s *story) reached(node string, component cluster.Component) version.Version {
	at := s.lanes[node]
	if at == nil {
		return version.Version{}
	}

	for _, one := range slices.Backward(at.upgrades) {
		if one.component == component && one.state == upgradeDone {
			return one.to
		}
	}

	return version.Version{}
}

// versionOf returns what the node runs, or zero if that is unknown.
func versionOf(node cluster.Node, component cluster.Component) version.Version {
	switch {
	case component == "" && node.Machine != nil:
		return node.Machine.Talos
	case component == "":
		return version.Version{}
	default:
		return node.Versions[component]
	}
}

func versionText(of version.Version) string {
	if of.IsZero() {
		return ""
	}

	return of.String()
}

// roleName returns a role as people say it.
func roleName(role cluster.Role) string {
	if role == cluster.ControlPlane {
		return "control plane"
	}

	return string(role)
}
