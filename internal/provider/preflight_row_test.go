// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
)

// row is an element of checks as a test expects it.
type row struct{ name, status, severity, node, finding, remedy string }

func rows(models []checkModel) []row {
	got := make([]row, 0, len(models))
	for _, model := range models {
		got = append(got, row{
			model.Name.ValueString(), model.Status.ValueString(), model.Severity.ValueString(),
			model.Node.ValueString(), model.Finding.ValueString(), model.Remedy.ValueString(),
		})
	}

	return got
}

func TestFindingsBecomeRowsInTheOrderOfTheCatalogue(t *testing.T) {
	for name, test := range map[string]struct {
		finding cluster.Finding
		want    row
	}{
		"observed is an error": {
			cluster.Finding{Check: "lock", Severity: cluster.Observed, Found: "held", Remedy: "Wait."},
			row{"lock", "failed", "error", "", "held", "Wait."},
		},
		"permanent is an error": {
			cluster.Finding{Check: "versions", Severity: cluster.Permanent, Node: "cp-0", Found: "older"},
			row{"versions", "failed", "error", "cp-0", "older", ""},
		},
		"advice is a warning": {
			cluster.Finding{Check: "single-control-plane", Severity: cluster.Advice, Found: "one"},
			row{"single-control-plane", "warning", "warning", "", "one", ""},
		},
		"what is unknown counts as failed": {
			cluster.Finding{Check: "etcd-alarms", Severity: cluster.Observed, Unknown: true, Found: "silent"},
			row{"etcd-alarms", "unknown", "error", "", "silent", ""},
		},
		"unless it is advice": {
			cluster.Finding{Check: "installer-image", Severity: cluster.Advice, Unknown: true, Found: "silent"},
			row{"installer-image", "unknown", "warning", "", "silent", ""},
		},
		"skipped is skipped, known or not": {
			cluster.Finding{Check: "etcd-alarms", Severity: cluster.Advice, Unknown: true, Skipped: true, Found: "silent"},
			row{"etcd-alarms", "skipped", "warning", "", "silent", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rows([]checkModel{newCheckModel(test.finding)}); got[0] != test.want {
				t.Errorf("got %+v, want %+v", got[0], test.want)
			}
		})
	}

	got := rows(newCheckModels(engine.Examination{
		Made: []string{"roles", "etcd-alarms", "lock"},
		Findings: []cluster.Finding{
			{Check: "unheard-of", Severity: cluster.Observed, Found: "odd"},
			{Check: "lock", Severity: cluster.Observed, Found: "held"},
			{Check: "etcd-alarms", Severity: cluster.Observed, Node: "cp-0", Found: "full"},
			{Check: "etcd-alarms", Severity: cluster.Observed, Node: "cp-1", Found: "full"},
		},
	}))
	want := []row{
		{name: "roles", status: "passed", severity: "none"},
		{"etcd-alarms", "failed", "error", "cp-0", "full", ""},
		{"etcd-alarms", "failed", "error", "cp-1", "full", ""},
		{"lock", "failed", "error", "", "held", ""},
		{"unheard-of", "failed", "error", "", "odd", ""},
	}

	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSummaryOfChecks(t *testing.T) {
	made := []string{"roles", "etcd-alarms", "lock"}
	odd := func(check string, severity cluster.Severity) cluster.Finding {
		return cluster.Finding{Check: check, Severity: severity, Found: "odd"}
	}

	for name, test := range map[string]struct {
		made     []string
		findings []cluster.Finding
		work     bool
		want     string
	}{
		"all is well":           {made, nil, true, "All 3 checks passed"},
		"one is well":           {made[:1], nil, true, "All 1 check passed"},
		"nothing is to be done": {made, nil, false, "All 3 checks passed; nothing is to be upgraded"},
		"a warning":             {made, []cluster.Finding{odd("lock", cluster.Advice)}, true, "None of 3 checks would stop an apply, with 1 warning"},
		"errors are named once": {
			made,
			[]cluster.Finding{odd("lock", cluster.Observed), odd("etcd-alarms", cluster.Observed), odd("etcd-alarms", cluster.Permanent)},
			true,
			"2 of 3 checks would stop an apply: etcd-alarms, lock",
		},
		"errors beside warnings": {
			made,
			[]cluster.Finding{odd("lock", cluster.Observed), odd("roles", cluster.Advice), odd("roles", cluster.Advice)},
			false,
			"1 of 3 checks would stop an apply: lock, with 2 warnings",
		},
	} {
		t.Run(name, func(t *testing.T) {
			models := newCheckModels(engine.Examination{Made: test.made, Findings: test.findings})
			if got := checkSummary(models, test.work); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
