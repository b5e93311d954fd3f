// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// outcome is a diagnostic as a test expects it.
type outcome struct {
	severity diag.Severity
	// text must occur in the summary or in the detail.
	text string
}

func check(t *testing.T, got diag.Diagnostics, want ...outcome) {
	t.Helper()

	for _, diagnostic := range got {
		t.Logf("%s: %s\n%s", diagnostic.Severity(), diagnostic.Summary(), diagnostic.Detail())
	}

	if len(got) != len(want) {
		t.Fatalf("got %d diagnostics, want %d", len(got), len(want))
	}

	for index, expected := range want {
		if got[index].Severity() != expected.severity {
			t.Errorf("diagnostic %d is a %s", index, got[index].Severity())
		}

		if !strings.Contains(got[index].Summary()+"\n"+got[index].Detail(), expected.text) {
			t.Errorf("diagnostic %d does not say %q", index, expected.text)
		}
	}
}

func TestPlanOfAConvergedClusterIsEmpty(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")

	got, diagnostics := planned(t, fake.clusters(t), state, state)
	check(t, diagnostics)

	if !got.Status.Equal(state.Status) || !got.Nodes.Equal(state.Nodes) {
		t.Error("the plan changes computed values")
	}
}

func TestSpellingIsNoChangeEvenAfterTheFrameworkMarkedComputedValues(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	plan := desired("1.13.4", "")
	plan.ID = state.ID

	got, diagnostics := planned(t, fake.clusters(t), state, plan)
	check(t, diagnostics)

	if !got.Status.Equal(state.Status) || !got.Nodes.Equal(state.Nodes) {
		t.Error("the plan changes computed values")
	}
}

// TestHeldNodeIsNoDrift: the plan after a roll around a held node is empty, and
// so is the one after a refresh.
func TestHeldNodeIsNoDrift(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[2].talos = "1.12.6"

	seen, err := fake.clusters(t).observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	state := desired("1.13.4", "")
	state.NodeOverrides = holding(t, "worker-1")
	wellDone(t, state.observe(t.Context(), seen.Snapshot))

	refreshed, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	got, diagnostics := planned(t, fake.clusters(t), refreshed, refreshed)
	check(t, diagnostics)

	if !got.Status.Equal(state.Status) || !got.Nodes.Equal(state.Nodes) {
		t.Error("the plan changes computed values")
	}

	// Without the hold it is drift.
	got.NodeOverrides = desired("1.13.4", "").NodeOverrides

	_, diagnostics = planned(t, fake.clusters(t), refreshed, got)
	check(t, diagnostics, outcome{diag.SeverityWarning, "Rolling upgrade of 1 of 3 nodes"})
}

func TestDriftMakesComputedValuesUnknownAndShowsTheRoll(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.nodes = append(fake.nodes, fakeNode{name: "worker-2", role: cluster.Worker, talos: "1.13.0", kubernetes: "1.34.2"})

	got, diagnostics := planned(t, fake.clusters(t), state, state)
	check(t, diagnostics, outcome{diag.SeverityWarning, "worker-2"})

	if !got.Status.IsUnknown() || !got.Nodes.IsUnknown() {
		t.Error("computed values are planned as known")
	}

	if got.TalosVersion.ValueString() != "1.13.4" || got.ID.ValueString() != "cluster-a" {
		t.Error("the plan changes what it must not")
	}
}

func TestChangedOptionsMakeComputedValuesUnknown(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	plan := *state
	plan.Order = types.StringValue("control-planes-first")

	got, diagnostics := planned(t, fake.clusters(t), state, &plan)
	check(t, diagnostics)

	if !got.Status.IsUnknown() || !got.Nodes.IsUnknown() {
		t.Error("computed values are planned as known")
	}
}

func TestPlanDiagnostics(t *testing.T) {
	reader := threeNodes("1.12.6", "1.34.2")
	reader.roles = []string{"os:reader"}

	lost := threeNodes("1.12.6", "1.34.2")
	lost.nodes[2].unreachable = cluster.ErrUnreachable

	down := threeNodes("1.12.6", "1.34.2")
	down.down = cluster.ErrUnreachable

	foreign := threeNodes("1.12.6", "1.34.2")
	foreign.down = cluster.ErrCredentials

	for name, test := range map[string]struct {
		fake              *fakeCluster
		talos, kubernetes string
		want              []outcome
	}{
		"the roll is shown": {
			threeNodes("1.12.6", "1.34.2"), "1.13.4", "",
			[]outcome{{diag.SeverityWarning, "one control plane"}, {diag.SeverityWarning, "Rolling upgrade of 3 of 3 nodes"}},
		},
		"a downgrade is an error": {threeNodes("1.13.4", "1.34.2"), "1.12.6", "", []outcome{
			{diag.SeverityError, "worker-0, worker-1, cp-0: the node runs Talos 1.13.4, which is newer than the target 1.12.6"},
		}},
		"another Kubernetes is an error": {threeNodes("1.12.6", "1.34.2"), "", "1.35.0", []outcome{{diag.SeverityError, "asks for 1.35.0"}}},
		"the running Kubernetes is fine": {threeNodes("1.12.6", "1.34.2"), "1.12.6", "1.34.2", nil},
		"a reader may plan": {reader, "1.13.4", "", []outcome{
			{diag.SeverityWarning, "os:reader"}, {diag.SeverityWarning, "one control plane"}, {diag.SeverityWarning, "Rolling upgrade"},
		}},
		"a lost node is a warning": {lost, "1.13.4", "", []outcome{
			{diag.SeverityWarning, "worker-1"}, {diag.SeverityWarning, "one control plane"}, {diag.SeverityWarning, "Rolling upgrade of 2 of 3 nodes"},
		}},
		"a cluster out of reach is a warning":        {down, "1.13.4", "", []outcome{{diag.SeverityWarning, summaryUnobserved}}},
		"credentials that are refused are an error":  {foreign, "1.13.4", "", []outcome{{diag.SeverityError, "Waiting does not help"}}},
		"skipping a release line is an error":        {threeNodes("1.11.3", "1.33.1"), "1.13.4", "", []outcome{{diag.SeverityError, "skip"}}},
		"a version the matrix ignores is an error":   {threeNodes("1.12.6", "1.34.2"), "1.99.0", "", []outcome{{diag.SeverityError, "1.99"}}},
		"both halves at their versions need nothing": {threeNodes("1.13.4", "1.34.2"), "1.13.4", "1.34.2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, diagnostics := planned(t, test.fake.clusters(t), nil, desired(test.talos, test.kubernetes))
			check(t, diagnostics, test.want...)
		})
	}
}

func TestPlanOfAnotherClusterIsRefused(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.id = "cluster-b"

	_, diagnostics := planned(t, fake.clusters(t), state, state)
	check(t, diagnostics, outcome{diag.SeverityError, "The state belongs to cluster cluster-a, but this provider reaches cluster cluster-b"})
}

func TestUnknownValuesAreTolerated(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	plan := desired("1.13.4", "")
	plan.TalosVersion = types.StringUnknown()

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics)

	if fake.dialled != 0 {
		t.Error("the cluster was asked about an unknown version")
	}

	undecided := fake.clusters(t)
	undecided.access.Unknown = []string{attrTalosconfig}

	_, diagnostics = planned(t, undecided, nil, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityWarning, "known only after an apply (talosconfig)"})
}

func TestDestroyIsAnnounced(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")

	_, diagnostics := planned(t, fake.clusters(t), stored(t, fake, "1.13.4", ""), nil)
	check(t, diagnostics, outcome{diag.SeverityWarning, "changes nothing on the nodes"})
}
