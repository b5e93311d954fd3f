// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// texts is a list of strings; overrides is node_overrides.
func texts(elements ...string) types.List {
	values := make([]attr.Value, 0, len(elements))
	for _, element := range elements {
		values = append(values, types.StringValue(element))
	}

	return types.ListValueMust(types.StringType, values)
}

func overrides(t *testing.T, models map[string]nodeOverrideModel) types.Map {
	t.Helper()

	value, diagnostics := types.MapValueFrom(t.Context(), types.ObjectType{AttrTypes: nodeOverrideTypes()}, models)
	wellDone(t, diagnostics)

	return value
}

func holding(t *testing.T, names ...string) types.Map {
	t.Helper()

	models := map[string]nodeOverrideModel{}
	for _, name := range names {
		models[name] = nodeOverrideModel{Hold: types.BoolValue(true)}
	}

	return overrides(t, models)
}

// validated is what Terraform is told about a configuration before anything
// else is looked at.
func validated(t *testing.T, model *clusterModel) []*tfprotov6.Diagnostic {
	t.Helper()

	model.ID, model.Status = types.StringNull(), types.ObjectNull(statusTypes())
	model.Nodes = types.MapNull(types.ObjectType{AttrTypes: nodeTypes()})
	model.Snapshot = types.ObjectNull(snapshotTypes())

	raw := stateOf(t, model).Raw

	config, err := tfprotov6.NewDynamicValue(raw.Type(), raw)
	if err != nil {
		t.Fatal(err)
	}

	server, _ := serve(t)

	resp, err := server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: typeName + "_cluster", Config: &config})
	if err != nil {
		t.Fatal(err)
	}

	return notedOnWire(t, resp.Diagnostics)
}

func TestValidation(t *testing.T) {
	checkValidation(t, map[string]validationCase{
		"nothing but a version": {func(*clusterModel) {}, "", ""},
		"everything": {func(m *clusterModel) {
			m.AllowIntermediate, m.IntermediateVersions = types.BoolValue(true), texts("v1.12.8", "1.33.4")
			m.MaxUnavailable, m.Canary, m.Settle = types.StringValue("25%"), texts("worker-0", "worker-1"), types.StringValue("5m")
			m.NodeOverrides, m.CanarySelector = holding(t, "worker-2"), types.StringValue("upgrade=first,!spare")
			selecting(t, selectorOverrideModel{Selector: types.StringValue("upgrade in (hold, later)"), Hold: types.BoolValue(true)})(m)
			inPools(t, poolModel{Selector: types.StringValue("pool=storage"), MaxUnavailable: types.StringValue("25%")})(m)
		}, "", ""},
		"nothing is known": {func(m *clusterModel) {
			m.AllowIntermediate, m.IntermediateVersions = types.BoolUnknown(), types.ListUnknown(types.StringType)
			m.AllowUnknown, m.MaxUnavailable, m.Settle = types.BoolUnknown(), types.StringUnknown(), types.StringUnknown()
			m.Canary, m.NodeOverrides = types.ListUnknown(types.StringType), types.MapUnknown(types.ObjectType{AttrTypes: nodeOverrideTypes()})
			m.CanarySelector, m.SelectorOverrides = types.StringUnknown(), types.ListUnknown(types.ObjectType{AttrTypes: selectorOverrideTypes()})
			m.Pools = types.MapUnknown(types.ObjectType{AttrTypes: poolTypes()})
			m.Timeouts.Object = types.ObjectUnknown(timeoutTypes())
		}, "", ""},
		"selectors are not known": {func(m *clusterModel) {
			selecting(t, selectorOverrideModel{Selector: types.StringUnknown(), Hold: types.BoolUnknown()})(m)
			inPools(t, poolModel{Selector: types.StringUnknown(), MaxUnavailable: types.StringUnknown()})(m)
		}, "", ""},
		"a canary selector that is none":   {func(m *clusterModel) { m.CanarySelector = types.StringValue("upgrade in first") }, `canary_selector`, `canary_selector is "upgrade in first": `},
		"a canary selector that is empty":  {func(m *clusterModel) { m.CanarySelector = types.StringValue(" ") }, `canary_selector`, "an empty selector matches every node"},
		"a selector that matches all":      {selecting(t, selectorOverrideModel{Selector: types.StringValue(""), Hold: types.BoolValue(true)}), `selector_overrides[0]`, `selector_overrides[0].selector is "": it is empty, and an empty selector matches every node`},
		"a selector that is none":          {selecting(t, selectorOverrideModel{Selector: types.StringValue("a b"), Hold: types.BoolValue(true)}), `selector_overrides[0]`, `selector_overrides[0].selector is "a b": `},
		"a selector override that is idle": {selecting(t, selectorOverrideModel{Selector: types.StringValue("a=b")}), `selector_overrides[0]`, "selector_overrides[0]: neither hold nor installer_image is set"},
		"image of labels with a tag": {
			selecting(t, selectorOverrideModel{Selector: types.StringValue("a=b"), InstallerImage: types.StringValue("ghcr.io/siderolabs/installer:v1.13.4")}),
			`selector_overrides[0]`, `selector_overrides[0].installer_image: not an image reference without tag`,
		},
		"a selector override that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: selectorOverrideTypes()}
			m.SelectorOverrides = types.ListValueMust(kind, []attr.Value{types.ObjectNull(kind.AttrTypes)})
		}, `selector_overrides[0]`, "null"},
		"a pool that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: poolTypes()}
			m.Pools = types.MapValueMust(kind, map[string]attr.Value{"storage": types.ObjectNull(kind.AttrTypes)})
		}, `pools["storage"]`, "null"},
		"a pool of nobody":       {inPools(t, poolModel{Selector: types.StringValue(""), MaxUnavailable: types.StringValue("1")}), `pools["storage"]`, `pools["storage"].selector is ""`},
		"a pool without a bound": {inPools(t, poolModel{Selector: types.StringValue("a=b"), MaxUnavailable: types.StringValue("0")}), `pools["storage"]`, `pools["storage"].max_unavailable`},
		"elements are not known": {func(m *clusterModel) {
			unknown := types.ListValueMust(types.StringType, []attr.Value{types.StringUnknown(), types.StringUnknown()})
			m.AllowIntermediate, m.IntermediateVersions, m.Canary = types.BoolUnknown(), unknown, unknown
			m.NodeOverrides = overrides(t, map[string]nodeOverrideModel{"worker-0": {Hold: types.BoolUnknown(), InstallerImage: types.StringUnknown()}})
		}, "", ""},
		"overrides that say nothing": {func(m *clusterModel) {
			m.NodeOverrides = overrides(t, map[string]nodeOverrideModel{"worker-1": {}, "worker-2": {Hold: types.BoolValue(true)}, "worker-0": {}})
		}, `node_overrides`, `node_overrides["worker-0"], node_overrides["worker-1"]: none of hold, installer_image, retry_boot_id is set`},
		"an override that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: nodeOverrideTypes()}
			m.NodeOverrides = types.MapValueMust(kind, map[string]attr.Value{"worker-0": types.ObjectNull(kind.AttrTypes)})
		}, `node_overrides`, `node_overrides = { for name, entry in var.node_overrides : name => entry if anytrue(`},
		"an override that is not known": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: nodeOverrideTypes()}
			m.NodeOverrides = types.MapValueMust(kind, map[string]attr.Value{"worker-0": types.ObjectUnknown(kind.AttrTypes)})
		}, "", ""},
		"a hold that is none": {func(m *clusterModel) { m.Canary, m.NodeOverrides = texts("worker-0"), notHeld(t, "worker-0") }, "", ""},
		"hold and canary on one node": {func(m *clusterModel) {
			m.Canary, m.NodeOverrides = texts("worker-0", "worker-1"), holding(t, "worker-1")
		}, `canary[1]`, `node_overrides["worker-1"].hold`},
		"canary twice":          {func(m *clusterModel) { m.Canary = texts("worker-0", "worker-1", "worker-0") }, `canary[2]`, "canary[0]"},
		"canary without a name": {func(m *clusterModel) { m.Canary = texts("") }, `canary[0]`, "at least 1"},
		"canary that is null": {func(m *clusterModel) {
			m.Canary = types.ListValueMust(types.StringType, []attr.Value{types.StringNull()})
		}, `canary[0]`, "null"},
		"intermediate versions alone":        {func(m *clusterModel) { m.IntermediateVersions = texts("1.12.8") }, `intermediate_versions`, "allow_intermediate_versions = true"},
		"no intermediate versions alone":     {func(m *clusterModel) { m.IntermediateVersions = texts() }, "", ""},
		"malformed intermediate version":     {intermediate("1.12.8", "1.13"), `intermediate_versions[1]`, `intermediate_versions[1]: malformed version "1.13"`},
		"intermediate version twice":         {intermediate("1.12.8", "v1.12.8"), `intermediate_versions[1]`, "intermediate_versions[0]"},
		"one pull at a time":                 {pulling(1), "", ""},
		"as many pulls as there may be":      {pulling(maxParallelPulls), "", ""},
		"no pull":                            {pulling(0), attrParallelPulls, "parallel_pulls is 0: value must be a whole number from 1 to 200.\n\nWrite 1 for one node after the other"},
		"half a pull":                        {pulling(1.5), attrParallelPulls, "parallel_pulls is 1.5"},
		"more pulls than a registry bears":   {pulling(201), attrParallelPulls, "parallel_pulls is 201"},
		"percentage above all":               {unavailable("101%"), `max_unavailable`, `max_unavailable: "101%" is not`},
		"percentage of nothing":              {unavailable("0%"), `max_unavailable`, "1%"},
		"no worker":                          {unavailable("0"), `max_unavailable`, "from 1 on"},
		"half a worker":                      {unavailable("1.5"), `max_unavailable`, "whole number"},
		"fewer than none":                    {unavailable("-1"), `max_unavailable`, "whole number"},
		"a word":                             {unavailable("all"), `max_unavailable`, "whole number"},
		"all workers":                        {unavailable("100%"), "", ""},
		"settle without unit":                {func(m *clusterModel) { m.Settle = types.StringValue("30") }, `settle`, `"30"`},
		"settle below zero":                  {func(m *clusterModel) { m.Settle = types.StringValue("-1s") }, `settle`, `"-1s"`},
		"image of a node with a tag":         {ownImage("ghcr.io/siderolabs/installer:v1.13.4"), `node_overrides["worker-0"]`, `node_overrides["worker-0"].installer_image: not an image reference without tag`},
		"image of a node that is none":       {ownImage("Not A Reference"), `node_overrides["worker-0"]`, "not an image reference"},
		"image of a node":                    {ownImage("registry.example.com:5000/talos/installer"), "", ""},
		"override of a node without name":    {func(m *clusterModel) { m.NodeOverrides = holding(t, "") }, `node_overrides[""]`, "at least 1"},
		"limit of zero":                      {limited("update", "0s"), `timeouts`, `timeouts.update is "0s": value must be a duration above zero`},
		"limit that is no duration":          {limited("read", "soon"), `timeouts`, `timeouts.read is "soon"`},
		"malformed version":                  {func(m *clusterModel) { m.TalosVersion = types.StringValue("1.13") }, `talos_version`, "1.13"},
		"versions that do not go together":   {func(m *clusterModel) { m.KubernetesVersion = types.StringValue("1.37.0") }, `kubernetes_version`, "Talos 1.13.4 needs Kubernetes 1.36 or older, and 1.37.0 is asked for beside it"},
		"versions that go together":          {func(m *clusterModel) { m.KubernetesVersion = types.StringValue("1.36.1") }, "", ""},
		"a version that nobody knows":        {pair("1.99.0", "1.36.1", types.BoolNull()), `kubernetes_version`, "allow_unknown_versions = true"},
		"a version that need not be known":   {pair("1.99.0", "1.36.1", types.BoolValue(true)), "", ""},
		"whether it need be is not known":    {pair("1.99.0", "1.36.1", types.BoolUnknown()), "", ""},
		"a version before all that is known": {pair("1.1.0", "1.36.1", types.BoolValue(true)), `kubernetes_version`, "choose versions that the support matrix knows"},
		"neither of both versions is there":  {func(m *clusterModel) { m.TalosVersion = types.StringNull() }, `talos_version`, "kubernetes_version"},
	})
}

func pair(talos, kubernetes string, unknown types.Bool) func(*clusterModel) {
	return func(m *clusterModel) {
		m.TalosVersion, m.KubernetesVersion, m.AllowUnknown = types.StringValue(talos), types.StringValue(kubernetes), unknown
	}
}

// validationCase is a change of a configuration that is fine, and what is to be
// said of it.
type validationCase struct {
	change func(*clusterModel)
	// at is the path of the one error, empty for none.
	at, says string
}

func checkValidation(t *testing.T, cases map[string]validationCase) {
	t.Helper()

	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", "")
			model.Kubernetes = types.ObjectNull(kubernetesTypes())
			test.change(model)

			diagnostics := validated(t, model)
			for _, diagnostic := range diagnostics {
				t.Logf("%s: %s\n%s", diagnostic.Attribute, diagnostic.Summary, diagnostic.Detail)
			}

			if test.at == "" {
				if len(diagnostics) > 0 {
					t.Error("refused")
				}

				return
			}

			if len(diagnostics) != 1 {
				t.Fatalf("got %d diagnostics, want 1", len(diagnostics))
			}

			if at := attributeText(t, diagnostics[0]); at != test.at {
				t.Errorf("points at %s, want %s", at, test.at)
			}

			if said := diagnostics[0].Summary + "\n" + diagnostics[0].Detail; !strings.Contains(strings.ToLower(said), strings.ToLower(test.says)) {
				t.Errorf("does not say %q", test.says)
			}
		})
	}
}

func notHeld(t *testing.T, name string) types.Map {
	t.Helper()

	return overrides(t, map[string]nodeOverrideModel{name: {Hold: types.BoolValue(false)}})
}

func intermediate(versions ...string) func(*clusterModel) {
	return func(m *clusterModel) {
		m.AllowIntermediate, m.IntermediateVersions = types.BoolValue(true), texts(versions...)
	}
}

func unavailable(share string) func(*clusterModel) {
	return func(m *clusterModel) { m.MaxUnavailable = types.StringValue(share) }
}

func ownImage(repository string) func(*clusterModel) {
	return func(m *clusterModel) {
		override := types.ObjectValueMust(nodeOverrideTypes(), map[string]attr.Value{
			attrInstallerImage: types.StringValue(repository), attrHold: types.BoolNull(), attrRetryBootID: types.StringNull(),
		})
		m.NodeOverrides = types.MapValueMust(types.ObjectType{AttrTypes: nodeOverrideTypes()}, map[string]attr.Value{"worker-0": override})
	}
}

func limited(name, limit string) func(*clusterModel) {
	return func(m *clusterModel) {
		values := map[string]attr.Value{"create": types.StringNull(), "update": types.StringNull(), "read": types.StringNull(), "delete": types.StringNull()}
		values[name] = types.StringValue(limit)
		m.Timeouts.Object = types.ObjectValueMust(timeoutTypes(), values)
	}
}

// attributeText is the path of a diagnostic as the configuration would write it.
func attributeText(t *testing.T, diagnostic *tfprotov6.Diagnostic) string {
	t.Helper()

	if diagnostic.Attribute == nil {
		return ""
	}

	at := path.Empty()

	for _, step := range diagnostic.Attribute.Steps() {
		switch step := step.(type) {
		case tftypes.AttributeName:
			at = at.AtName(string(step))
		case tftypes.ElementKeyString:
			at = at.AtMapKey(string(step))
		case tftypes.ElementKeyInt:
			at = at.AtListIndex(int(step))
		default:
			t.Fatalf("a path with %T", step)
		}
	}

	return at.String()
}

// TestEmptyTimeoutsAreAWarning: what is left of a misspelt limit is said, and refuses nothing.
func TestEmptyTimeoutsAreAWarning(t *testing.T) {
	limits := func(update types.String) timeouts.Value {
		return timeouts.Value{Object: types.ObjectValueMust(timeoutTypes(), map[string]attr.Value{
			"create": types.StringNull(), "read": types.StringNull(), "update": update, "delete": types.StringNull(),
		})}
	}

	for name, test := range map[string]struct {
		given timeouts.Value
		warns bool
	}{
		"none":           {newClusterModel(version.Version{}, version.Version{}).Timeouts, false},
		"nothing in it":  {limits(types.StringNull()), true},
		"one limit":      {limits(types.StringValue("1h")), false},
		"one to be seen": {limits(types.StringUnknown()), false},
	} {
		model := newClusterModel(version.MustParse("1.13.4"), version.Version{})
		model.Timeouts = test.given

		told := model.validateTimeouts()
		if (len(told) == 1) != test.warns || told.HasError() {
			t.Errorf("%s: %v", name, told)
		}
	}

	model := desired("1.13.4", "")
	model.Kubernetes = types.ObjectNull(kubernetesTypes())
	model.Timeouts = limits(types.StringNull())

	told := validated(t, model)
	if len(told) != 1 || told[0].Severity != tfprotov6.DiagnosticSeverityWarning || !strings.Contains(told[0].Detail, "none of create, delete, read, update is set") {
		t.Errorf("it is told %v", told)
	}
}

func pulling(nodes float64) func(*clusterModel) {
	return func(m *clusterModel) { m.ParallelPulls = times(nodes) }
}
