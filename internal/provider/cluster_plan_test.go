// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/roll"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
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

func TestPlan_OfAConvergedClusterIsEmpty(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")

	got, diagnostics := planned(t, fake.clusters(t), state, state)
	check(t, diagnostics)

	if !got.Status.Equal(state.Status) || !got.Nodes.Equal(state.Nodes) {
		t.Error("the plan changes computed values")
	}
}

func TestPlan_SpellingIsNoChangeAfterTheFrameworkMarkedValues(t *testing.T) {
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

// TestPlan_HeldNodeIsNoDrift: the plan after a roll around a held node is empty, and
// so is the one after a refresh.
func TestPlan_HeldNodeIsNoDrift(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[2].talos = "1.12.6"

	seen, err := fake.clusters(t).Observe(t.Context(), "")
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

func TestPlan_DriftMakesValuesUnknownAndShowsTheRoll(t *testing.T) {
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

func TestPlan_ChangedOptionsMakeComputedValuesUnknown(t *testing.T) {
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

func TestPlan_Diagnostics(t *testing.T) {
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
		"a cluster out of reach is a warning":        {down, "1.13.4", "", []outcome{{diag.SeverityWarning, connection.SummaryUnobserved}}},
		"credentials that are refused are an error":  {foreign, "1.13.4", "", []outcome{{diag.SeverityError, "Waiting does not help"}}},
		"skipping a minor version is an error":       {threeNodes("1.11.3", "1.33.1"), "1.13.4", "", []outcome{{diag.SeverityError, "skip"}}},
		"a version the matrix ignores is an error":   {threeNodes("1.12.6", "1.34.2"), "1.99.0", "", []outcome{{diag.SeverityError, "1.99"}}},
		"both halves at their versions need nothing": {threeNodes("1.13.4", "1.34.2"), "1.13.4", "1.34.2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, diagnostics := planned(t, test.fake.clusters(t), nil, desired(test.talos, test.kubernetes))
			check(t, diagnostics, test.want...)
		})
	}
}

func TestPlan_OfAnotherClusterIsRefused(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	fake.id = "cluster-b"

	_, diagnostics := planned(t, fake.clusters(t), state, state)
	check(t, diagnostics, outcome{diag.SeverityError, "The state belongs to cluster cluster-a, but this provider reaches cluster cluster-b"})
}

func TestPlan_ToleratesUnknownValues(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	plan := desired("1.13.4", "")
	plan.TalosVersion = types.StringUnknown()

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics)

	if fake.dialled != 0 {
		t.Error("the cluster was asked about an unknown version")
	}

	undecided := fake.clusters(t)
	undecided.Access.Unknown = []string{attrname.Talosconfig}

	_, diagnostics = planned(t, undecided, nil, desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityWarning, "known only after an apply (talosconfig)"})
}

func TestPlan_AnnouncesADestroy(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")

	_, diagnostics := planned(t, fake.clusters(t), stored(t, fake, "1.13.4", ""), nil)
	check(t, diagnostics, outcome{diag.SeverityWarning, "changes nothing on the nodes"})
}

// TestPlan_WarningsNameTheirCluster: the command line folds warnings with the same
// summary, and only one of them would be read.
func TestPlan_WarningsNameTheirCluster(t *testing.T) {
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
		"provider not known":          {unknown, []string{attrname.Talosconfig}, "1.13.4", false},
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
				clusters.Access.Unknown = test.unknown

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

// TestPlan_LeavesAnUnreachableClusterToTheApply: Terraform applies no resource whose
// plan changes nothing, and then nothing would ever be looked at.
func TestPlan_LeavesAnUnreachableClusterToTheApply(t *testing.T) {
	for name, change := range map[string]func(*connection.Clusters, *fakeCluster){
		"provider not known": func(clusters *connection.Clusters, _ *fakeCluster) {
			clusters.Access.Unknown = []string{attrname.Talosconfig}
		},
		"factory not known": func(clusters *connection.Clusters, _ *fakeCluster) {
			clusters.Releases.FactoryURL = types.StringUnknown()
		},
		"out of reach": func(_ *connection.Clusters, fake *fakeCluster) { fake.down = cluster.ErrUnreachable },
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

// TestPlan_NodesKeepTheirNames: kubectl knows no node Alpha.
func TestPlan_NodesKeepTheirNames(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.nodes[0].name = "alpha"

	plan := desired("1.13.4", "")
	plan.Canary = texts("alpha")

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "alpha is a control plane"})
}

func TestPlan_WarnsOfARollThatOutlastsItsLimit(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

	for name, test := range map[string]struct {
		estimate time.Duration
		first    bool
		change   func(*clusterModel)
		expires  time.Time
		want     []outcome
		at       string
	}{
		"fits":               {4 * time.Hour, true, func(*clusterModel) {}, now.Add(5 * time.Hour), nil, ""},
		"nobody knows":       {0, true, limited("create", "1s"), now, nil, ""},
		"no certificate":     {time.Hour, true, func(*clusterModel) {}, time.Time{}, nil, ""},
		"limit of an update": {2 * time.Hour, true, limited("update", "1h"), time.Time{}, nil, ""},
		"limit not known": {24 * time.Hour, true, func(m *clusterModel) {
			m.Timeouts.Object = types.ObjectUnknown(timeoutTypes())
		}, time.Time{}, nil, ""},
		"longer than the default": {
			4*time.Hour + time.Minute, true, func(*clusterModel) {},
			time.Time{},
			[]outcome{{diag.SeverityWarning, "about 4 hours 1 minute (an estimate from typical durations, not a promise), and timeouts.create is 4h."}},
			"timeouts",
		},
		"longer than the limit of a first apply": {
			time.Hour, true, limited("create", "30m"),
			time.Time{},
			[]outcome{{diag.SeverityWarning, "timeouts.create is 30m"}},
			"timeouts",
		},
		"longer than the limit of an update": {
			2 * time.Hour, false, limited("update", "1h"),
			time.Time{},
			[]outcome{{diag.SeverityWarning, "Raise timeouts.update"}},
			"timeouts",
		},
		"outlives the certificate": {
			time.Hour, false, func(*clusterModel) {}, now.Add(59 * time.Minute),
			[]outcome{{diag.SeverityWarning, `certificate of talosconfig context "demo" expires on 2026-11-21T12:59:00Z, and the upgrade takes about 1 hour`}},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", "")
			test.change(model)

			seen := connection.Observation{Observation: cluster.Observation{Taken: now}, Name: `talosconfig context "demo"`, Expires: test.expires}

			diagnostics := model.limitWarnings(t.Context(), seen, test.estimate, test.first)
			check(t, diagnostics, test.want...)

			for _, diagnostic := range diagnostics {
				if at := pathText(diagnostic); at != test.at {
					t.Errorf("points at %s, want %s", at, test.at)
				}
			}
		})
	}
}

// TestPlan_LooksAtTheLimits: the estimate of any roll is longer than a second.
func TestPlan_LooksAtTheLimits(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.expires = time.Now().Add(time.Second)

	plan := desired("1.13.4", "")
	limited("create", "1s")(plan)

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics,
		outcome{diag.SeverityWarning, "one control plane"},
		outcome{diag.SeverityWarning, "Rolling upgrade of 3 of 3 nodes"},
		outcome{diag.SeverityWarning, "timeouts.create is 1s"},
		outcome{diag.SeverityWarning, "expires on"})
}

// leapDay is a window that is closed on nearly every day.
func leapDay() windowModel {
	return windowModel{Cron: types.StringValue("0 0 29 2 *"), Duration: types.StringValue("1m"), TimeZone: types.StringValue("UTC")}
}

// TestPlan_GuardFindingsAreWarnings: tonight's apply may be planned by day, and a
// plan writes nothing.
func TestPlan_GuardFindingsAreWarnings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	missing := filepath.Join(t.TempDir(), "not", "there", "yet")

	advice := outcome{diag.SeverityWarning, "one control plane"}
	roll := outcome{diag.SeverityWarning, "Rolling upgrade of 3 of 3 nodes"}
	refused := func(text string) []outcome { return []outcome{{diag.SeverityWarning, text}, advice, roll} }

	for name, test := range map[string]struct {
		change func(*fakeCluster, *clusterModel)
		want   []outcome
	}{
		"nothing": {func(*fakeCluster, *clusterModel) {}, []outcome{advice, roll}},
		"a node that hides its disk and its clock": {
			func(f *fakeCluster, _ *clusterModel) { f.vitalsErr = errors.New("no mounts") },
			[]outcome{refused("check time-sync")[0], {diag.SeverityWarning, "(check disk-space). Its kubelet reports no DiskPressure"}, roll},
		},
		"a skipped check": {func(f *fakeCluster, m *clusterModel) {
			f.crowded = true
			m.Preflight = skippingChecks(types.StringValue(cluster.CheckDiskSpace))
		}, refused("(check disk-space, skipped)")},
		"an image that is missing": {func(f *fakeCluster, _ *clusterModel) { f.imageErr = cluster.ErrNotFound }, refused("check installer-image")},
		"a closed window":          {func(_ *fakeCluster, m *clusterModel) { windowed(leapDay())(m) }, refused("the maintenance window (0 0 29 2 * for 1m, UTC) is closed")},
		"a closed gate": {func(f *fakeCluster, m *clusterModel) {
			f.objects = []map[string]any{{"metadata": map[string]any{"name": "go"}, "data": map[string]any{"go": "no"}}}
			gated(t, inConfigMap("object.data.go == 'yes'"))(m)
		}, refused("gates[0]")},
		"an open gate": {func(f *fakeCluster, m *clusterModel) {
			f.objects = []map[string]any{{"metadata": map[string]any{"name": "go"}, "data": map[string]any{"go": "yes"}}}
			gated(t, inConfigMap("object.data.go == 'yes'"))(m)
		}, []outcome{advice, roll}},
		"a snapshot that has nowhere to go": {func(_ *fakeCluster, m *clusterModel) { m.EtcdSnapshot = savedIn(types.StringValue(file)) }, refused("check etcd-snapshot")},
		"a directory that is still to be made": {
			func(_ *fakeCluster, m *clusterModel) { m.EtcdSnapshot = savedIn(types.StringValue(missing)) }, []outcome{advice, roll},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.12.6", "1.34.2")
			fake.store = refusing{t}

			plan := desired("1.13.4", "")
			test.change(fake, plan)

			_, diagnostics := planned(t, fake.clusters(t), nil, plan)
			check(t, diagnostics, test.want...)
		})
	}

	if _, err := os.Stat(filepath.Dir(filepath.Dir(missing))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plan made a directory: %v", err)
	}
}

// TestPlan_SkippedChecksAreToldApart: an apply is not refused because of them, and what
// refuses it is not hidden among them.
func TestPlan_SkippedChecksAreToldApart(t *testing.T) {
	skipped := cluster.Finding{Check: cluster.CheckEtcdAlarms, Node: "cp-0", Severity: cluster.Advice, Skipped: true, Found: "etcd raised NOSPACE"}
	observed := cluster.Finding{Check: cluster.CheckLock, Severity: cluster.Observed, Found: "the lease is held"}
	permanent := cluster.Finding{Check: cluster.CheckVersions, Severity: cluster.Permanent, Found: "that is a downgrade"}

	const says = "cp-0: etcd raised NOSPACE (check etcd-alarms, skipped).\n\nAn apply continues despite them, because preflight.skip names their checks."

	for name, work := range map[string]bool{"work": true, "nothing to do": false} {
		t.Run(name, func(t *testing.T) {
			seen := connection.Observation{Name: "demo"}

			check(t, diagnostic.OfFindings([]cluster.Finding{skipped}, work, work, seen.Name, seen.Nodes), outcome{diag.SeverityWarning, says})

			got := diagnostic.OfFindings([]cluster.Finding{skipped, observed, permanent}, work, work, seen.Name, seen.Nodes)
			check(t, got, outcome{diag.SeverityError, "downgrade"}, outcome{diag.SeverityWarning, "the lease is held"}, outcome{diag.SeverityWarning, says})

			if strings.Contains(got[1].Detail(), "NOSPACE") {
				t.Error("a skipped check is among those that refuse an apply")
			}
		})
	}
}

// TestPlan_WithNothingToDoAsksNoGuard: gates and registries are asked before
// something happens, not with every refresh.
func TestPlan_WithNothingToDoAsksNoGuard(t *testing.T) {
	for name, talos := range map[string]string{"nothing to do": "1.12.6", "refused": "1.11.0"} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.12.6", "1.34.2")
			plan := desired(talos, "")
			gated(t, inConfigMap("object.data.go == 'yes'"))(plan)

			_, _ = planned(t, fake.clusters(t), nil, plan)

			if fake.gated.Load() > 0 {
				t.Errorf("a gate was asked %d times", fake.gated.Load())
			}
		})
	}
}

// TestPlan_ClosedWindowWarnsAndRefusesTheApply: what a plan only warns of.
func TestPlan_ClosedWindowWarnsAndRefusesTheApply(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.store = refusing{t}

	plan := desired("1.13.4", "")
	windowed(leapDay())(plan)

	_, diagnostics := create(t, fake.clusters(t), plan)
	check(t, diagnostics, outcome{diag.SeverityError, "maintenance window"})

	if got := pathText(diagnostics[0]); got != attrname.MaintenanceWindow {
		t.Errorf("points at %q", got)
	}
}

// TestPlan_OneKubeletSetBackIsDrift: it is found at the refresh, and only that one is
// brought back.
func TestPlan_OneKubeletSetBackIsDrift(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "1.34.2")
	fake.nodes[1].kubelet, fake.nodes[1].images = "1.34.1", map[cluster.Component]string{cluster.Kubelet: "ghcr.io/siderolabs/kubelet:v1.34.1"}

	refreshed, diagnostics := read(t.Context(), t, fake.clusters(t), state)
	check(t, diagnostics)

	got, diagnostics := planned(t, fake.clusters(t), refreshed, refreshed)
	check(t, diagnostics, outcome{diag.SeverityWarning, "Rolling upgrade of 1 of 3 nodes"})

	if !got.Status.IsUnknown() || !got.Nodes.IsUnknown() {
		t.Error("computed values are planned as known")
	}

	if text := diagnostics[0].Detail(); !strings.Contains(text, "kubelet              worker-0") || strings.Contains(text, "cp-0") || strings.Contains(text, "kube-apiserver") {
		t.Errorf("the plan is\n%s", text)
	}
}

func TestPlan_SaysWhatStandsInTheWayOfKubernetes(t *testing.T) {
	gate := cluster.Removal{
		Kind: "feature gate", Name: "SizeMemoryBackedVolumes", Address: address(0), Component: cluster.APIServer, In: version.MustParse("1.35.0"),
	}
	change := cluster.ManifestChange{Object: "DaemonSet/kube-system/kube-proxy", Action: cluster.ManifestConfigured, Diff: "-  image: old\n+  image: new\n"}
	roll := outcome{diag.SeverityWarning, "Kubernetes 1.34.2 -> 1.35.0"}

	for name, test := range map[string]struct {
		change            func(*fakeCluster)
		talos, kubernetes string
		want              []outcome
		asked             bool
	}{
		"nothing": {func(*fakeCluster) {}, "", "1.35.0", []outcome{roll}, true},
		"what is removed is a warning": {
			func(f *fakeCluster) { f.removals = []cluster.Removal{gate} }, "", "1.35.0",
			[]outcome{{diag.SeverityWarning, "cp-0: its kube-apiserver uses the feature gate SizeMemoryBackedVolumes"}, roll},
			true,
		},
		"manifests that differ are shown": {
			func(f *fakeCluster) { f.changes = []cluster.ManifestChange{change} }, "", "1.35.0",
			[]outcome{{diag.SeverityWarning, "  change DaemonSet/kube-system/kube-proxy\n      -  image: old\n      +  image: new\n"}},
			true,
		},
		"manifests follow Kubernetes into a roll of Talos": {
			func(f *fakeCluster) { f.changes = []cluster.ManifestChange{change} }, "1.13.4", "1.34.2",
			[]outcome{{diag.SeverityWarning, "one control plane"}, {diag.SeverityWarning, "change DaemonSet/kube-system/kube-proxy"}},
			true,
		},
		"a plan that is refused is not looked at": {
			func(f *fakeCluster) { f.removals = []cluster.Removal{gate} }, "", "1.36.0",
			[]outcome{{diag.SeverityError, "1.36.0 is asked for"}},
			false,
		},
		"a cluster with nothing to do is not looked at": {
			func(f *fakeCluster) { f.changes = []cluster.ManifestChange{change} }, "1.12.6", "1.34.2", nil, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.12.6", "1.34.2")
			fake.store = refusing{t}
			test.change(fake)

			_, diagnostics := planned(t, fake.clusters(t), nil, desired(test.talos, test.kubernetes))
			check(t, diagnostics, test.want...)

			if asked := fake.inspected.Load() > 0; asked != test.asked {
				t.Errorf("the cluster was asked: %t", asked)
			}
		})
	}
}

// TestPlan_BothHalvesAreShownInTheirOrder: what moves first comes first.
func TestPlan_BothHalvesAreShownInTheirOrder(t *testing.T) {
	plan := desired("1.13.4", "1.36.0")
	plan.AllowIntermediate = types.BoolValue(true)

	_, diagnostics := planned(t, threeNodes("1.12.6", "1.34.2").clusters(t), nil, plan)

	text := diagnostics[len(diagnostics)-1].Detail()
	last := -1

	for _, heading := range []string{"Hop 1 of 3: Talos 1.12.6 -> 1.13.4", "Hop 2 of 3: Kubernetes 1.34.2 -> 1.35.", "Hop 3 of 3: Kubernetes 1.35.", "bootstrap manifests"} {
		at := strings.LastIndex(text, heading)
		if at <= last {
			t.Errorf("%q is not where it should be in\n%s", heading, text)
		}

		last = at
	}
}

// TestPlan_SaysWhyManifestsStay: who does not manage Kubernetes is told that nothing of
// it is synced, and how to have it synced all the same.
func TestPlan_SaysWhyManifestsStay(t *testing.T) {
	sync := func(on bool) func(*clusterModel) {
		return inManifests(t, func(m *manifestsModel) { m.Sync = types.BoolValue(on) })
	}

	for name, test := range map[string]struct {
		kubernetes string
		change     func(*clusterModel)
		says       string
	}{
		"Kubernetes is not managed":                 {"", nothingElse, "because kubernetes_version is unset; kubernetes.manifests.sync = true brings them up to date."},
		"Kubernetes is not managed, and they are":   {"", sync(true), ""},
		"Kubernetes is managed":                     {"1.34.2", nothingElse, ""},
		"Kubernetes is managed, and they are not":   {"1.34.2", sync(false), "because kubernetes.manifests.sync is false."},
		"somebody else upgrades, and knows of none": {"", func(m *clusterModel) { m.Mode = types.StringValue(modeDelegate) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", test.kubernetes)
			test.change(model)

			text := told.Noted(t, diag.Diagnostics{roll.Warning(plan.Plan{}, "demo", nil, model.unsynced())})[0].Detail()
			if test.says == "" && strings.Contains(text, "stay as they are") || !strings.Contains(text, test.says) {
				t.Errorf("got\n%s", text)
			}
		})
	}
}
