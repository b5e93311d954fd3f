// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestValidationOfGuards(t *testing.T) {
	skips := func(names ...string) func(*clusterModel) {
		values := make([]attr.Value, 0, len(names))
		for _, name := range names {
			values = append(values, types.StringValue(name))
		}

		return func(m *clusterModel) { m.Preflight = skippingChecks(values...) }
	}
	saved := func(directory string) func(*clusterModel) {
		return func(m *clusterModel) { m.EtcdSnapshot = savedIn(types.StringValue(directory)) }
	}
	night := func(change func(*windowModel)) func(*clusterModel) {
		window := nightly()
		change(&window)

		return windowed(window)
	}
	gate := func(change func(*gateModel)) func(*clusterModel) {
		made := inConfigMap("object.data.go == 'yes'")
		change(&made)

		return gated(t, longhorn(), made)
	}

	checkValidation(t, map[string]validationCase{
		"all of them": {func(m *clusterModel) {
			skips(cluster.CheckEtcdAlarms, cluster.CheckDrain)(m)
			saved("snapshots")(m)
			gate(func(*gateModel) {})(m)
			windowed(nightly())(m)
			m.SyncInstallImage = types.BoolValue(true)
		}, "", ""},
		"nothing is known": {func(m *clusterModel) {
			m.Preflight, m.EtcdSnapshot = types.ObjectUnknown(skipTypes()), types.ObjectUnknown(directoryTypes())
			m.Gates, m.MaintenanceWindow = types.ListUnknown(m.Gates.ElementType(t.Context())), types.ObjectUnknown(windowTypes())
			m.SyncInstallImage = types.BoolUnknown()
		}, "", ""},
		"values are not known": {func(m *clusterModel) {
			m.Preflight, m.EtcdSnapshot = skippingChecks(types.StringUnknown()), savedIn(types.StringUnknown())
			gate(func(g *gateModel) {
				unknown := types.StringUnknown()
				*g = gateModel{APIVersion: unknown, Kind: unknown, Namespace: unknown, Name: unknown, Selector: unknown, Expr: unknown, Timeout: unknown}
			})(m)
			windowed(windowModel{Cron: types.StringUnknown(), Duration: types.StringUnknown(), TimeZone: types.StringUnknown()})(m)
		}, "", ""},
		"a preset that is not known": {
			gate(func(g *gateModel) { *g = gateModel{Preset: types.StringUnknown(), Expr: types.StringUnknown()} }), "", "",
		},
		"a preset in a namespace that is not known": {
			gate(func(g *gateModel) {
				*g = gateModel{Preset: types.StringValue("longhorn"), Namespace: types.StringUnknown()}
			}), "", "",
		},
		"an expression over something that is not known": {gate(func(g *gateModel) {
			g.Expr, g.APIVersion, g.Kind, g.Namespace = types.StringValue("object.data.go ="), types.StringUnknown(), types.StringUnknown(), types.StringUnknown()
		}), "gates[1]", "expr:1:16"},
		"no cron in a time zone that is not known": {
			night(func(w *windowModel) { w.Cron, w.TimeZone = types.StringValue("never"), types.StringUnknown() }), "maintenance_window", "maintenance_window.cron",
		},
		"a time zone for a window that is not known": {
			windowed(windowModel{Cron: types.StringUnknown(), Duration: types.StringUnknown(), TimeZone: types.StringValue("Mars")}), "maintenance_window", "maintenance_window.time_zone",
		},
		"a gate that is not known": {func(m *clusterModel) {
			m.Gates = types.ListValueMust(m.Gates.ElementType(t.Context()), []attr.Value{types.ObjectUnknown(gateTypes())})
		}, "", ""},

		"no check is skipped": {skips(), "", ""},
		"unknown check":       {skips("etcd-alarm"), "preflight", `preflight.skip names "etcd-alarm", which is no check. Did you mean "etcd-alarms"?`},
		"nothing like a check": {
			skips("everything"), "preflight", "which is no check.\n\nChecks that can be skipped: etcd-alarms,",
		},
		"firm check": {skips("etcd-quorum"), "preflight", `names "etcd-quorum" (a majority of etcd is healthy with one member gone), which cannot be skipped: the cluster could lose its quorum`},
		"check that is null": {
			func(m *clusterModel) { m.Preflight = skippingChecks(types.StringNull()) }, "preflight", "null",
		},

		"empty directory":         {saved(""), "etcd_snapshot", "etcd_snapshot.directory is empty"},
		"blank directory":         {saved(" "), "etcd_snapshot", "is empty"},
		"home directory":          {saved("~/snapshots"), "etcd_snapshot", `pathexpand("~/snapshots")`},
		"address":                 {saved("s3://bucket/snapshots"), "etcd_snapshot", "which is an address"},
		"directory of two lines":  {saved("a\nb"), "etcd_snapshot", "no path can hold"},
		"directory named ~backup": {saved("~backup"), "", ""},

		"gate that is null": {func(m *clusterModel) {
			m.Gates = types.ListValueMust(m.Gates.ElementType(t.Context()), []attr.Value{types.ObjectNull(gateTypes())})
		}, "gates[0]", "null"},
		"expression that does not compile": {gate(func(g *gateModel) { g.Expr = types.StringValue("object.data.go =") }), "gates[1]", "expr:1:16"},
		"expression that is not boolean":   {gate(func(g *gateModel) { g.Expr = types.StringValue("size(objects)") }), "gates[1]", "gates[1].expr"},
		"no expression":                    {gate(func(g *gateModel) { g.Expr = types.StringNull() }), "gates[1]", "gates[1].expr"},
		"unknown preset":                   {gate(func(g *gateModel) { *g = gateModel{Preset: types.StringValue("rook")} }), "gates[1]", "gates[1].preset"},
		"preset with an expression":        {gate(func(g *gateModel) { g.Preset = types.StringValue("longhorn") }), "gates[1]", "gates[1]."},
		"no kind":                          {gate(func(g *gateModel) { g.Kind = types.StringNull() }), "gates[1]", "gates[1].kind"},
		"Secrets":                          {gate(func(g *gateModel) { g.Kind = types.StringValue("Secret") }), "gates[1]", "Secret"},
		"name and selector":                {gate(func(g *gateModel) { g.Selector = types.StringValue("a=b") }), "gates[1]", "gates[1].selector"},
		"timeout that is no duration":      {gate(func(g *gateModel) { g.Timeout = types.StringValue("soon") }), "gates[1]", `gates[1].timeout is "soon"`},
		"timeout of nothing":               {gate(func(g *gateModel) { g.Timeout = types.StringValue("0s") }), "gates[1]", `gates[1].timeout is "0s"`},

		"cron of four fields": {night(func(w *windowModel) { w.Cron = types.StringValue("0 22 * *") }), "maintenance_window", "maintenance_window.cron"},
		"cron that never is":  {night(func(w *windowModel) { w.Cron = types.StringValue("0 0 30 2 *") }), "maintenance_window", "maintenance_window.cron"},
		"unknown time zone":   {night(func(w *windowModel) { w.TimeZone = types.StringValue("Europe/Atlantis") }), "maintenance_window", "maintenance_window.time_zone"},
		"window that opens for no time": {
			night(func(w *windowModel) { w.Duration = types.StringValue("0s") }), "maintenance_window", `maintenance_window.duration is "0s"`,
		},
		"window of a fortnight": {night(func(w *windowModel) { w.Duration = types.StringValue("336h") }), "maintenance_window", "maintenance_window.duration"},
		"window in UTC":         {night(func(w *windowModel) { w.TimeZone = types.StringNull() }), "", ""},
	})
}

// TestExpressionIsShownAsTheCompilerSaysIt: its mark must stay below what it is
// about.
func TestExpressionIsShownAsTheCompilerSaysIt(t *testing.T) {
	model := desired("1.13.4", "")
	model.Kubernetes = types.ObjectNull(kubernetesTypes())
	gated(t, inConfigMap("object.data.go ="))(model)

	diagnostics := validated(t, model)
	if len(diagnostics) != 1 {
		t.Fatalf("%d diagnostics, want 1", len(diagnostics))
	}

	_, source, found := strings.Cut(diagnostics[0].Detail, "| object.data.go =\n")
	if mark := strings.IndexByte(source, '^'); !found || mark < 0 || strings.ContainsFunc(source[:mark], func(r rune) bool { return !strings.ContainsRune(" |.", r) }) {
		t.Errorf("got\n%s", diagnostics[0].Detail)
	}
}
