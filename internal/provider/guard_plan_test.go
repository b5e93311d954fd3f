// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// leapDay is a window that is closed on nearly every day.
func leapDay() windowModel {
	return windowModel{Cron: types.StringValue("0 0 29 2 *"), Duration: types.StringValue("1m"), TimeZone: types.StringValue("UTC")}
}

// TestWhatGuardsFindIsAWarningAtPlan: tonight's apply may be planned by day, and a
// plan writes nothing.
func TestWhatGuardsFindIsAWarningAtPlan(t *testing.T) {
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

// TestSkippedChecksAreToldApart: an apply is not refused because of them, and what
// refuses it is not hidden among them.
func TestSkippedChecksAreToldApart(t *testing.T) {
	skipped := cluster.Finding{Check: cluster.CheckEtcdAlarms, Node: "cp-0", Severity: cluster.Advice, Skipped: true, Found: "etcd raised NOSPACE"}
	observed := cluster.Finding{Check: cluster.CheckLock, Severity: cluster.Observed, Found: "the lease is held"}
	permanent := cluster.Finding{Check: cluster.CheckVersions, Severity: cluster.Permanent, Found: "that is a downgrade"}

	const says = "cp-0: etcd raised NOSPACE (check etcd-alarms, skipped).\n\nAn apply continues despite them, because preflight.skip names their checks."

	for name, work := range map[string]bool{"work": true, "nothing to do": false} {
		t.Run(name, func(t *testing.T) {
			seen := observation{name: "demo"}

			check(t, planFindings([]cluster.Finding{skipped}, work, seen), outcome{diag.SeverityWarning, says})

			got := planFindings([]cluster.Finding{skipped, observed, permanent}, work, seen)
			check(t, got, outcome{diag.SeverityError, "downgrade"}, outcome{diag.SeverityWarning, "the lease is held"}, outcome{diag.SeverityWarning, says})

			if strings.Contains(got[1].Detail(), "NOSPACE") {
				t.Error("a skipped check is among those that refuse an apply")
			}
		})
	}
}

// TestPlanThatHasNothingToDoAsksNoGuard: gates and registries are asked before
// something happens, not with every refresh.
func TestPlanThatHasNothingToDoAsksNoGuard(t *testing.T) {
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

// TestClosedWindowRefusesTheApply: what a plan only warns of.
func TestClosedWindowRefusesTheApply(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.store = refusing{t}

	plan := desired("1.13.4", "")
	windowed(leapDay())(plan)

	_, diagnostics := create(t, fake.clusters(t), plan)
	check(t, diagnostics, outcome{diag.SeverityError, "maintenance window"})

	if got := pathText(diagnostics[0]); got != attrMaintenanceWindow {
		t.Errorf("points at %q", got)
	}
}
