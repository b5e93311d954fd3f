// SPDX-License-Identifier: MPL-2.0

package report

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// findingGroup are findings of one weight.
type findingGroup struct {
	Name, Class string
	Rows        []findingRow
}

type findingRow struct{ Node, Check, Found, Remedy string }

// findings are those of the plan, the weighty ones first. What stopped the run is
// shown with its failure.
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
