// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"
	"time"

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
	wellDone(t, state.observe(seen.Observation))

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
		"another Kubernetes is a roll":      {threeNodes("1.12.6", "1.34.2"), "", "1.35.0", []outcome{{diag.SeverityWarning, "Kubernetes 1.34.2 -> 1.35.0"}}},
		"an older Kubernetes is an error":   {threeNodes("1.12.6", "1.34.2"), "", "1.33.1", []outcome{{diag.SeverityError, "1.33.1"}}},
		"two minors of it are an error":     {threeNodes("1.13.4", "1.34.2"), "", "1.36.0", []outcome{{diag.SeverityError, "allow_intermediate_versions"}}},
		"one that Talos does not support":   {threeNodes("1.11.3", "1.34.2"), "", "1.35.0", []outcome{{diag.SeverityError, "Talos"}}},
		"one that nobody knows is an error": {threeNodes("1.13.4", "1.34.2"), "", "1.99.0", []outcome{{diag.SeverityError, "1.99"}}},
		"the running Kubernetes is fine":    {threeNodes("1.12.6", "1.34.2"), "1.12.6", "1.34.2", nil},
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

// TestWarningsNameTheirCluster: the command line folds warnings with the same
// summary, and only one of them would be read.
func TestWarningsNameTheirCluster(t *testing.T) {
	silent := func(fake *fakeCluster) { fake.down = cluster.ErrUnreachable }
	unknown := func(*fakeCluster) {}

	for name, test := range map[string]struct {
		change  func(*fakeCluster)
		unknown []string
		talos   string
		prior   bool
	}{
		"roll, advice, limits":        {func(fake *fakeCluster) { fake.expires = time.Now() }, nil, "1.13.4", false},
		"in the way of an apply":      {func(fake *fakeCluster) { fake.roles = []string{"os:reader"} }, nil, "1.13.4", false},
		"odd, and nothing to do":      {func(fake *fakeCluster) { fake.nodes[2].unreachable = cluster.ErrUnreachable }, nil, "1.12.6", false},
		"out of reach":                {silent, nil, "1.13.4", false},
		"provider not known":          {unknown, []string{attrTalosconfig}, "1.13.4", false},
		"out of reach at the refresh": {silent, nil, "1.12.6", true},
		"anonymous at the refresh": {func(fake *fakeCluster) {
			fake.id, fake.idErr, fake.kubernetesDown = "", cluster.ErrUnreachable, cluster.ErrUnreachable
		}, nil, "1.12.6", true},
		"destroyed": {unknown, nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			summaries := map[string]string{}

			for _, called := range []string{"north", "south"} {
				fake := threeNodes("1.12.6", "1.34.2")
				prior := stored(t, fake, "1.12.6", "")
				prior.Context = types.StringValue(called)
				test.change(fake)

				clusters := fake.clusters(t)
				clusters.access.Unknown = test.unknown

				var diagnostics diag.Diagnostics

				switch {
				case test.prior:
					_, diagnostics = read(t.Context(), t, clusters, prior)
				case test.talos == "":
					_, diagnostics = planned(t, clusters, prior, nil)
				default:
					plan := desired(test.talos, "")
					plan.Context = types.StringValue(called)
					limited("create", "1s")(plan)

					_, diagnostics = planned(t, clusters, nil, plan)
				}

				if len(diagnostics) == 0 {
					t.Error("no warning")
				}

				for _, diagnostic := range diagnostics {
					if diagnostic.Severity() != diag.SeverityWarning || !strings.Contains(diagnostic.Summary(), called) {
						t.Errorf("%s: %q does not name %s", diagnostic.Severity(), diagnostic.Summary(), called)
					}

					if other, taken := summaries[diagnostic.Summary()]; taken {
						t.Errorf("%q is said of %s and of %s", diagnostic.Summary(), other, called)
					}

					summaries[diagnostic.Summary()] = called
				}
			}
		})
	}
}

// TestWhatCannotBeLookedAtIsAppliedLater: Terraform applies no resource whose
// plan changes nothing, and then nothing would ever be looked at.
func TestWhatCannotBeLookedAtIsAppliedLater(t *testing.T) {
	for name, change := range map[string]func(*clusters, *fakeCluster){
		"provider not known": func(clusters *clusters, _ *fakeCluster) { clusters.access.Unknown = []string{attrTalosconfig} },
		"factory not known":  func(clusters *clusters, _ *fakeCluster) { clusters.releases.factoryURL = types.StringUnknown() },
		"out of reach":       func(_ *clusters, fake *fakeCluster) { fake.down = cluster.ErrUnreachable },
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			state := stored(t, fake, "1.13.4", "")
			state.Context = types.StringValue("fake")
			clusters := fake.clusters(t)
			change(clusters, fake)

			got, diagnostics := planned(t, clusters, state, state)
			check(t, diagnostics, outcome{diag.SeverityWarning, "fake"})

			if !got.Status.IsUnknown() || !got.Nodes.IsUnknown() {
				t.Fatal("the plan changes nothing, so that apply checks nothing")
			}

			if !got.ID.Equal(state.ID) || !got.TalosVersion.Equal(state.TalosVersion) {
				t.Error("the plan changes what it must not")
			}

			// It comes back, and is as the state says: the fake refuses to be changed.
			fake.down = nil
			fake.store = refusing{t}

			after, diagnostics := apply(t, fake.clusters(t), state, got)
			check(t, diagnostics)

			if !after.Status.Equal(state.Status) || !after.Nodes.Equal(state.Nodes) {
				t.Errorf("the apply of nothing stored %s, %s", after.Status, after.Nodes)
			}
		})
	}
}

// TestNodesKeepTheirNames: kubectl knows no node Alpha.
func TestNodesKeepTheirNames(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.nodes[0].name = "alpha"

	plan := desired("1.13.4", "")
	plan.Canary = texts("alpha")

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "alpha is a control plane"})
}
