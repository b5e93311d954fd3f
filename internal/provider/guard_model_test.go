// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/gate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// skippingChecks is preflight with checks that are skipped.
func skippingChecks(names ...attr.Value) types.Object {
	return types.ObjectValueMust(skipTypes(), map[string]attr.Value{attrSkip: types.SetValueMust(types.StringType, names)})
}

// savedIn is etcd_snapshot with a directory.
func savedIn(directory types.String) types.Object {
	return types.ObjectValueMust(directoryTypes(), map[string]attr.Value{attrDirectory: directory})
}

// gated sets gates.
func gated(t *testing.T, gates ...gateModel) func(*clusterModel) {
	t.Helper()

	value, diagnostics := types.ListValueFrom(t.Context(), types.ObjectType{AttrTypes: gateTypes()}, gates)
	wellDone(t, diagnostics)

	return func(m *clusterModel) { m.Gates = value }
}

// windowed sets maintenance_window.
func windowed(window windowModel) func(*clusterModel) {
	return func(m *clusterModel) {
		m.MaintenanceWindow = types.ObjectValueMust(windowTypes(), map[string]attr.Value{
			attrCron: window.Cron, attrDuration: window.Duration, attrTimeZone: window.TimeZone,
		})
	}
}

func longhorn() gateModel {
	return gateModel{Preset: types.StringValue("longhorn"), Timeout: types.StringValue("5m")}
}

// inConfigMap is a gate over a ConfigMap.
func inConfigMap(expr string) gateModel {
	return gateModel{
		APIVersion: types.StringValue("v1"), Kind: types.StringValue("ConfigMap"), Namespace: types.StringValue("default"), Name: types.StringValue("go"),
		Expr: types.StringValue(expr),
	}
}

func nightly() windowModel {
	return windowModel{Cron: types.StringValue("0 22 * * 1-5"), Duration: types.StringValue("6h"), TimeZone: types.StringValue("Europe/Oslo")}
}

func TestModelBecomesRequest(t *testing.T) {
	directory := t.TempDir()

	model := desired("1.13.4", "1.34.2")
	model.EtcdSnapshot = savedIn(types.StringValue(directory))
	gated(t, longhorn(), inConfigMap("object.data.go == 'yes'"))(model)
	windowed(nightly())(model)

	fake := threeNodes("1.12.6", "1.34.2")
	fake.objects = []map[string]any{{"kind": "ConfigMap", "metadata": map[string]any{"name": "go", "namespace": "default"}, "data": map[string]any{"go": "yes"}}}

	got, diagnostics := model.request(t.Context(), "factory.example.com", fake)
	wellDone(t, diagnostics)

	if got.Target.Talos.String() != "1.13.4" || got.Target.Kubernetes.String() != "1.34.2" || got.Target.ImageFactory != "factory.example.com" {
		t.Errorf("target %+v", got.Target)
	}

	if len(got.Gates) != 2 {
		t.Fatalf("%d gates, want 2", len(got.Gates))
	}

	if got.Gates[0].Timeout() != 5*time.Minute || got.Gates[1].Timeout() != gate.DefaultTimeout {
		t.Errorf("timeouts %s and %s", got.Gates[0].Timeout(), got.Gates[1].Timeout())
	}

	if !strings.Contains(got.Gates[0].String(), "gates[0]") || !strings.Contains(got.Gates[1].String(), "gates[1]") {
		t.Errorf("called %s and %s", got.Gates[0], got.Gates[1])
	}

	if holds, seen, err := got.Gates[1].Holds(t.Context(), ""); !holds || err != nil {
		t.Errorf("the gate holds: %t, %s, %v", holds, seen, err)
	}

	// Monday, 2026-03-16: 22:30 in Oslo is 21:30 UTC.
	night := time.Date(2026, time.March, 16, 21, 30, 0, 0, time.UTC)
	if open, _ := got.Window.Open(night); !open {
		t.Error("the window is closed at night")
	}

	if open, _ := got.Window.Open(night.Add(-time.Hour)); open {
		t.Error("the window is open too early")
	}

	if exposed, err := got.Snapshots.Check(t.Context()); err != nil {
		t.Errorf("the store: %q, %v", exposed, err)
	}

	if left, _ := filepath.Glob(directory + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRequestOfAConfigurationThatSaysNothingHoldsNothingUp(t *testing.T) {
	got, diagnostics := desired("1.13.4", "").request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	if got.Gates != nil || got.Window != nil || got.Snapshots != nil || got.Policy.SkipChecks != nil || got.Policy.SyncInstallImage {
		t.Errorf("got %+v", got)
	}
}

// TestGatesOfAClusterOutOfReachDoNotHold: nobody can tell, which is not the same
// as nothing being wrong.
func TestGatesOfAClusterOutOfReachDoNotHold(t *testing.T) {
	model := desired("1.13.4", "")
	gated(t, longhorn())(model)

	got, diagnostics := model.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	holds, _, err := got.Gates[0].Holds(t.Context(), "worker-0")
	if holds || !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("holds: %t, %v", holds, err)
	}
}

// TestRequestOfRubbishNamesThePlace: state may hold what no validator has seen.
func TestRequestOfRubbishNamesThePlace(t *testing.T) {
	model := desired("1.13.4", "")

	slow := longhorn()
	slow.Timeout = types.StringValue("soon")

	gated(t, slow, inConfigMap("object.data ="))(model)
	windowed(windowModel{Cron: types.StringValue("0 22 * *"), Duration: types.StringValue("6h")})(model)

	_, diagnostics := model.request(t.Context(), "", nil)
	check(t, diagnostics,
		outcome{diag.SeverityError, `gates[0].timeout is "soon"`}, outcome{diag.SeverityError, "gates[1].expr"}, outcome{diag.SeverityError, "maintenance_window.cron"})
}
