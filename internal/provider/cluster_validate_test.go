// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
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

	value, diagnostics := types.MapValueFrom(t.Context(), types.ObjectType{AttrTypes: typesOf[nodeOverrideModel]()}, models)
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

	resp, err := server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{TypeName: attrname.TypeName + "_cluster", Config: &config})
	if err != nil {
		t.Fatal(err)
	}

	return told.NotedOnWire(t, resp.Diagnostics)
}

// TestValidate_ImportIsAConfiguration: what Terraform generates for an import, which states every default, is accepted.
func TestValidate_ImportIsAConfiguration(t *testing.T) {
	for name, imported := range map[string]*clusterModel{
		"both products": desired("1.13.4", "1.35.2"), "Talos alone": desired("1.13.4", ""), "Kubernetes alone": desired("", "1.35.2"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, diagnostic := range validated(t, imported) {
				t.Errorf("%s: %s", diagnostic.Summary, diagnostic.Detail)
			}
		})
	}
}

func TestValidate_Configuration(t *testing.T) {
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
			m.Canary, m.NodeOverrides = types.ListUnknown(types.StringType), types.MapUnknown(types.ObjectType{AttrTypes: typesOf[nodeOverrideModel]()})
			m.CanarySelector, m.SelectorOverrides = types.StringUnknown(), types.ListUnknown(types.ObjectType{AttrTypes: typesOf[selectorOverrideModel]()})
			m.Pools = types.MapUnknown(types.ObjectType{AttrTypes: typesOf[poolModel]()})
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
		"a selector override that is idle": {selecting(t, selectorOverrideModel{Selector: types.StringValue("a=b")}), `selector_overrides[0]`, "selector_overrides[0]: none of hold, installer_image and reboot_mode is set"},
		"image of labels with a tag that is no version": {
			selecting(t, selectorOverrideModel{Selector: types.StringValue("a=b"), InstallerImage: types.StringValue("ghcr.io/siderolabs/installer:latest")}),
			`selector_overrides[0]`, `selector_overrides[0].installer_image: not an image reference with the tag of a version`,
		},
		"a selector override that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: typesOf[selectorOverrideModel]()}
			m.SelectorOverrides = types.ListValueMust(kind, []attr.Value{types.ObjectNull(kind.AttrTypes)})
		}, `selector_overrides[0]`, "null"},
		"a pool that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: typesOf[poolModel]()}
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
		}, `node_overrides`, `node_overrides["worker-0"], node_overrides["worker-1"]: none of hold, installer_image, reboot_mode, retry_boot_id is set`},
		"an override that is null": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: typesOf[nodeOverrideModel]()}
			m.NodeOverrides = types.MapValueMust(kind, map[string]attr.Value{"worker-0": types.ObjectNull(kind.AttrTypes)})
		}, `node_overrides`, `node_overrides = { for name, entry in var.node_overrides : name => entry if anytrue(`},
		"an override that is not known": {func(m *clusterModel) {
			kind := types.ObjectType{AttrTypes: typesOf[nodeOverrideModel]()}
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
		"no pull":                            {pulling(0), attrname.ParallelPulls, "parallel_pulls is 0: value must be a whole number from 1 to 200.\n\nWrite 1 for one node after the other"},
		"half a pull":                        {pulling(1.5), attrname.ParallelPulls, "parallel_pulls is 1.5"},
		"more pulls than a registry bears":   {pulling(201), attrname.ParallelPulls, "parallel_pulls is 201"},
		"percentage above all":               {unavailable("101%"), `max_unavailable`, `max_unavailable: "101%" is not`},
		"percentage of nothing":              {unavailable("0%"), `max_unavailable`, "1%"},
		"no worker":                          {unavailable("0"), `max_unavailable`, "from 1 on"},
		"half a worker":                      {unavailable("1.5"), `max_unavailable`, "whole number"},
		"fewer than none":                    {unavailable("-1"), `max_unavailable`, "whole number"},
		"a word":                             {unavailable("all"), `max_unavailable`, "whole number"},
		"all workers":                        {unavailable("100%"), "", ""},
		"settle without unit":                {func(m *clusterModel) { m.Settle = types.StringValue("30") }, `settle`, `"30"`},
		"settle below zero":                  {func(m *clusterModel) { m.Settle = types.StringValue("-1s") }, `settle`, `"-1s"`},
		"image of a node with a tag":         {ownImage("ghcr.io/siderolabs/installer:v1.13.4"), "", ""},
		"image of a node with another tag":   {ownImage("ghcr.io/siderolabs/installer:latest"), `node_overrides["worker-0"]`, `node_overrides["worker-0"].installer_image: not an image reference with the tag of a version`},
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
		override := types.ObjectValueMust(typesOf[nodeOverrideModel](), map[string]attr.Value{
			attrname.InstallerImage: types.StringValue(repository), attrname.Hold: types.BoolNull(), attrname.RebootMode: types.StringNull(), attrname.RetryBootID: types.StringNull(),
		})
		m.NodeOverrides = types.MapValueMust(types.ObjectType{AttrTypes: typesOf[nodeOverrideModel]()}, map[string]attr.Value{"worker-0": override})
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

// TestValidate_EmptyTimeoutsAreAWarning: what is left of a misspelt limit is said, and refuses nothing.
func TestValidate_EmptyTimeoutsAreAWarning(t *testing.T) {
	limits := func(update types.String) timeouts.Value {
		return timeouts.Value{Object: types.ObjectValueMust(timeoutTypes(), map[string]attr.Value{
			"create": types.StringNull(), "read": types.StringNull(), "update": update, "delete": types.StringNull(),
		})}
	}

	for name, test := range map[string]struct {
		given timeouts.Value
		warns bool
	}{
		"none":           {newClusterModel(t.Context(), version.Version{}, version.Version{}).Timeouts, false},
		"nothing in it":  {limits(types.StringNull()), true},
		"one limit":      {limits(types.StringValue("1h")), false},
		"one to be seen": {limits(types.StringUnknown()), false},
	} {
		model := newClusterModel(t.Context(), version.MustParse("1.13.4"), version.Version{})
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

// TestValidate_LimitsThatProtectNothingAreAWarning: they can be applied, and mean something else than they say.
func TestValidate_LimitsThatProtectNothingAreAWarning(t *testing.T) {
	window := func(cron, duration string) func(*clusterModel) {
		return windowed(windowModel{Cron: types.StringValue(cron), Duration: types.StringValue(duration), TimeZone: types.StringValue("Europe/Oslo")})
	}
	within := func(limit types.String) func(*clusterModel) { return func(m *clusterModel) { m.NodeTimeout = limit } }

	for name, test := range map[string]struct {
		change func(*clusterModel)
		// at is empty where nothing is said.
		at, says string
	}{
		"a node has a second":             {within(types.StringValue("1s")), "node_timeout", "node_timeout is 1s, from the cordon of a node until it is back in service. Machines that go through their firmware may take 5m"},
		"a node has a boot's time":        {within(types.StringValue("5m")), "", ""},
		"a node has a time to be seen":    {within(types.StringUnknown()), "", ""},
		"30 hours of each day":            {window("0 22 * * *", "30h"), "maintenance_window", "opens again before it closes, so that it is always open"},
		"24 hours of each day":            {window("0 22 * * *", "24h"), "maintenance_window", "always open"},
		"23 hours of each day":            {window("0 22 * * *", "23h"), "", ""},
		"every minute":                    {window("* * * * *", "1m"), "maintenance_window", "always open"},
		"two days of each week, in a row": {window("0 0 * * 6", "48h"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			model := desired("1.13.4", "")
			model.Kubernetes = types.ObjectNull(kubernetesTypes())
			test.change(model)

			told := validated(t, model)
			if test.at == "" {
				if len(told) > 0 {
					t.Errorf("told %v", told)
				}

				return
			}

			if len(told) != 1 || told[0].Severity != tfprotov6.DiagnosticSeverityWarning || attributeText(t, told[0]) != test.at || !strings.Contains(told[0].Detail, test.says) {
				t.Errorf("told %v, want a warning at %s that says %q", told, test.at, test.says)
			}
		})
	}
}

func pulling(nodes float64) func(*clusterModel) {
	return func(m *clusterModel) { m.ParallelPulls = times(nodes) }
}

// failing is a change to what happens when something fails; repeating is one to
// how often it is tried before.
func failing(how string) func(*clusterModel) {
	return func(m *clusterModel) { m.OnFailure = types.StringValue(how) }
}

func repeating(attempts types.Number, backoff types.String) func(*clusterModel) {
	return func(m *clusterModel) {
		m.Retry = types.ObjectValueMust(typesOf[retryModel](), map[string]attr.Value{attrname.Attempts: attempts, attrname.Backoff: backoff})
	}
}

func times(count float64) types.Number { return types.NumberValue(big.NewFloat(count)) }

func TestValidate_Failures(t *testing.T) {
	attempts := func(count float64) func(*clusterModel) { return repeating(times(count), types.StringNull()) }
	backoff := func(text string) func(*clusterModel) { return repeating(types.NumberNull(), types.StringValue(text)) }

	checkValidation(t, map[string]validationCase{
		"stop":     {failing("stop"), "", ""},
		"rollback": {failing("rollback"), "", ""},
		"nothing is known": {func(m *clusterModel) {
			m.TalosVersion, m.OnFailure, m.Retry = types.StringUnknown(), types.StringUnknown(), types.ObjectUnknown(typesOf[retryModel]())
		}, "", ""},
		"values are not known":           {repeating(types.NumberUnknown(), types.StringUnknown()), "", ""},
		"retry that says nothing":        {repeating(types.NumberNull(), types.StringNull()), "", ""},
		"one attempt without a pause":    {repeating(times(1), types.StringValue("0s")), "", ""},
		"as many attempts as there are":  {repeating(times(maxAttempts), types.StringValue("1h30m")), "", ""},
		"another word":                   {failing("revert"), attrname.OnFailure, `on_failure is "revert".` + "\n\n" + `Write "stop" to leave`},
		"almost the word":                {failing("roll-back"), attrname.OnFailure, `on_failure is "roll-back". Did you mean "rollback"?`},
		"other capitals":                 {failing("Stop"), attrname.OnFailure, `Did you mean "stop"?`},
		"no word":                        {failing(""), attrname.OnFailure, `on_failure is ""`},
		"rollback of Kubernetes":         {onlyKubernetes("rollback"), attrname.OnFailure, "without talos_version no node gets another one"},
		"Kubernetes that stops":          {onlyKubernetes("stop"), "", ""},
		"no attempt":                     {attempts(0), attrname.Retry, "retry.attempts is 0: value must be a whole number from 1 to 10.\n\nThe first attempt counts: write 1"},
		"fewer attempts than none":       {attempts(-3), attrname.Retry, "retry.attempts is -3"},
		"half an attempt":                {attempts(1.5), attrname.Retry, "retry.attempts is 1.5: value must be a whole number"},
		"attempts without end":           {attempts(1e30), attrname.Retry, "retry.attempts is 1e+30"},
		"more attempts than of any use":  {attempts(11), attrname.Retry, "retry.attempts is 11: value must be a whole number from 1 to 10.\n\nWhat fails that often"},
		"pause without a unit":           {backoff("30"), attrname.Retry, `retry.backoff is "30": value must be a duration such as "0s"`},
		"pause that goes back in time":   {backoff("-1s"), attrname.Retry, `retry.backoff is "-1s"`},
		"pause that is said with a word": {backoff("soon"), attrname.Retry, `retry.backoff is "soon"`},
	})
}

func onlyKubernetes(how string) func(*clusterModel) {
	return func(m *clusterModel) {
		m.TalosVersion, m.KubernetesVersion, m.OnFailure = types.StringNull(), types.StringValue("1.35.2"), types.StringValue(how)
	}
}

// TestValidate_RetryIsPlannedWithItsDefaults: state says what will be done, whatever of it
// the configuration leaves out.
func TestValidate_RetryIsPlannedWithItsDefaults(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	state := d.refreshed()
	retry := d.object(d.kind.AttributeTypes[attrname.Retry])
	number := func(value int64) tftypes.Value { return tftypes.NewValue(tftypes.Number, value) }
	text := func(value string) tftypes.Value { return tftypes.NewValue(tftypes.String, value) }

	for name, test := range map[string]struct {
		given    map[string]tftypes.Value
		attempts tftypes.Value
		backoff  tftypes.Value
	}{
		"nothing":  {nil, number(2), text("30s")},
		"attempts": {map[string]tftypes.Value{attrname.Attempts: number(4)}, number(4), text("30s")},
		"backoff":  {map[string]tftypes.Value{attrname.Backoff: text("1m")}, number(2), text("1m")},
	} {
		t.Run(name, func(t *testing.T) {
			given := map[string]tftypes.Value{attrname.TalosVersion: text("1.13.4"), attrname.OnFailure: text("rollback"), attrname.Retry: empty(retry, test.given)}

			proposed := map[string]tftypes.Value{}
			if err := d.value(state).As(&proposed); err != nil {
				t.Fatal(err)
			}

			proposed[attrname.OnFailure], proposed[attrname.Retry] = given[attrname.OnFailure], given[attrname.Retry]

			resp, err := d.server.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
				TypeName: attrname.TypeName + "_cluster", PriorState: state, ProposedNewState: d.dynamic(tftypes.NewValue(d.kind, proposed)), Config: d.dynamic(empty(d.kind, given)),
			})
			if err != nil {
				t.Fatal(err)
			}

			// It says how, not what: a plan in which nodes move would say which.
			d.silent(resp.Diagnostics)

			planned := d.value(resp.PlannedState)
			want := empty(retry, map[string]tftypes.Value{attrname.Attempts: test.attempts, attrname.Backoff: test.backoff})

			if got := d.attribute(planned, attrname.Retry); !got.Equal(want) {
				t.Errorf("retry is planned as %s, want %s", got, want)
			}
		})
	}
}

func TestValidate_Guards(t *testing.T) {
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
			m.Gates, m.MaintenanceWindow = types.ListUnknown(m.Gates.ElementType(t.Context())), types.ObjectUnknown(typesOf[windowModel]())
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
		"a preset beside values that are not known": {
			gate(func(g *gateModel) {
				unknown := types.StringUnknown()
				*g = gateModel{Preset: types.StringValue("longhorn"), APIVersion: unknown, Kind: unknown, Name: unknown, Selector: unknown, Expr: unknown}
			}), "", "",
		},
		"a preset beside a value that is known, and others that are not": {
			gate(func(g *gateModel) {
				*g = gateModel{Preset: types.StringValue("longhorn"), APIVersion: types.StringUnknown(), Kind: types.StringValue("ConfigMap")}
			}), "gates[1]", "kind is set beside preset",
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
			m.Gates = types.ListValueMust(m.Gates.ElementType(t.Context()), []attr.Value{types.ObjectUnknown(typesOf[gateModel]())})
		}, "", ""},

		"no check is skipped": {skips(), "", ""},
		"unknown check":       {skips("etcd-alarm"), "preflight", `preflight.skip names "etcd-alarm", which is not a check. Did you mean "etcd-alarms"?`},
		"nothing like a check": {
			skips("everything"), "preflight", "which is not a check.\n\nChecks that can be skipped: known-defects, etcd-alarms,",
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
			m.Gates = types.ListValueMust(m.Gates.ElementType(t.Context()), []attr.Value{types.ObjectNull(typesOf[gateModel]())})
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

// TestValidate_ExpressionIsShownAsTheCompilerSaysIt: its mark must stay below what it is
// about.
func TestValidate_ExpressionIsShownAsTheCompilerSaysIt(t *testing.T) {
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

// inKubernetes changes the kubernetes object of a model, which says nothing but
// the defaults where it is null.
func inKubernetes(t *testing.T, change func(*kubernetesModel)) func(*clusterModel) {
	t.Helper()

	return func(model *clusterModel) {
		made := kubernetesModel{
			Images: types.ObjectNull(overrideImageTypes()), UnavailableKubelets: types.StringNull(), Manifests: types.ObjectNull(manifestsTypes()),
		}
		if !model.Kubernetes.IsNull() {
			wellDone(t, model.Kubernetes.As(t.Context(), &made, basetypes.ObjectAsOptions{}))
		}

		change(&made)

		value, diagnostics := types.ObjectValueFrom(t.Context(), kubernetesTypes(), made)
		wellDone(t, diagnostics)

		model.Kubernetes = value
	}
}

// leaving leaves an object out of the manifests.
func leaving(t *testing.T, kind, namespace, name string) func(*manifestsModel) {
	t.Helper()

	return leavingIn(t, kind, types.StringValue(namespace), name)
}

func leavingIn(t *testing.T, kind string, namespace types.String, name string) func(*manifestsModel) {
	t.Helper()

	value, diagnostics := types.ListValueFrom(t.Context(), manifestObjectType(), []manifestObjectModel{
		{Kind: types.StringValue(kind), Namespace: namespace, Name: types.StringValue(name)},
	})
	if diagnostics.HasError() {
		t.Fatal(diagnostics)
	}

	return func(m *manifestsModel) { m.Exclude = value }
}

// inManifests changes kubernetes.manifests of a model.
func inManifests(t *testing.T, change func(*manifestsModel)) func(*clusterModel) {
	t.Helper()

	return inKubernetes(t, func(kubernetes *kubernetesModel) {
		made := manifestsModel{Sync: types.BoolNull(), Prune: types.BoolNull(), Timeout: types.StringNull(), Force: types.BoolNull(), Exclude: types.ListNull(manifestObjectType())}
		if !kubernetes.Manifests.IsNull() {
			wellDone(t, kubernetes.Manifests.As(t.Context(), &made, basetypes.ObjectAsOptions{}))
		}

		change(&made)

		value, diagnostics := types.ObjectValueFrom(t.Context(), manifestsTypes(), made)
		wellDone(t, diagnostics)

		kubernetes.Manifests = value
	})
}

// overriding is kubernetes.images; what is not given is null.
func overriding(t *testing.T, repositories map[string]string) types.Object {
	t.Helper()

	values := map[string]attr.Value{}
	for _, image := range imageAttributes() {
		values[image.name] = attribute.TextValue(repositories[image.name])
	}

	return types.ObjectValueMust(overrideImageTypes(), values)
}

func managing(change func(*clusterModel)) func(*clusterModel) {
	return func(model *clusterModel) {
		model.KubernetesVersion = types.StringValue("1.35.2")

		change(model)
	}
}

func TestValidate_Kubernetes(t *testing.T) {
	image := func(name, repository string) func(*clusterModel) {
		return inKubernetes(t, func(k *kubernetesModel) { k.Images = overriding(t, map[string]string{name: repository}) })
	}

	kubelets := func(share string) func(*clusterModel) {
		return inKubernetes(t, func(k *kubernetesModel) { k.UnavailableKubelets = types.StringValue(share) })
	}

	off := func(change func(*manifestsModel)) func(*clusterModel) {
		return inManifests(t, func(m *manifestsModel) {
			m.Sync = types.BoolValue(false)

			change(m)
		})
	}

	everything := func(model *clusterModel) {
		image(attrname.Proxy, "registry.example.com:5000/kube-proxy")(model)
		kubelets("25%")(model)
		inManifests(t, func(m *manifestsModel) {
			m.Sync, m.Prune, m.Force, m.Timeout = types.BoolValue(true), types.BoolValue(true), types.BoolValue(true), types.StringValue("0s")
		})(model)
	}

	checkValidation(t, map[string]validationCase{
		"everything":                  {managing(everything), "", ""},
		"image with a tag":            {managing(image(attrname.Kubelet, "ghcr.io/siderolabs/kubelet:v1.35.2")), "kubernetes", "kubernetes.images.kubelet: not an image reference without tag"},
		"the tag has another owner":   {managing(image(attrname.Kubelet, "ghcr.io/siderolabs/kubelet:v1.35.2")), "kubernetes", "the tag is chosen by kubernetes_version"},
		"image with a digest":         {managing(image(attrname.Proxy, "r.io/p@sha256:376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba")), "kubernetes", "kubernetes.images.kube_proxy"},
		"image that is none":          {managing(image(attrname.Scheduler, "Not A Reference")), "kubernetes", "not an image reference"},
		"half a kubelet":              {managing(kubelets("0.5")), "kubernetes", "kubernetes.max_unavailable_kubelets"},
		"timeout without unit":        {managing(inManifests(t, func(m *manifestsModel) { m.Timeout = types.StringValue("5") })), "kubernetes", "kubernetes.manifests.timeout"},
		"timeout below zero":          {managing(inManifests(t, func(m *manifestsModel) { m.Timeout = types.StringValue("-5m") })), "kubernetes", `"0s"`},
		"image without a version":     {image(attrname.APIServer, "registry.example.com/apiserver"), "kubernetes", "kubernetes.images.kube_apiserver"},
		"kubelets without a version":  {kubelets("2"), "kubernetes", "set kubernetes_version"},
		"default without a version":   {kubelets("1"), "", ""},
		"no image without a version":  {inKubernetes(t, func(k *kubernetesModel) { k.Images = overriding(t, nil) }), "", ""},
		"manifests without a version": {inManifests(t, func(m *manifestsModel) { m.Prune = types.BoolValue(true) }), "kubernetes", "without kubernetes_version the bootstrap manifests are not synced unless kubernetes.manifests.sync = true says so"},
		"manifests without a version, asked for": {inManifests(t, func(m *manifestsModel) {
			m.Sync, m.Prune = types.BoolValue(true), types.BoolValue(true)
		}), "", ""},
		"no sync":                       {off(func(*manifestsModel) {}), "", ""},
		"no sync, and no prune":         {off(func(m *manifestsModel) { m.Prune, m.Force = types.BoolValue(false), types.BoolValue(false) }), "", ""},
		"no sync with prune":            {off(func(m *manifestsModel) { m.Prune = types.BoolValue(true) }), "kubernetes", "kubernetes.manifests says sync = false"},
		"no sync with what is left out": {off(leaving(t, "Job", "setup", "once")), "kubernetes", "exclude as well"},
		"a Job is left out":             {managing(inManifests(t, leaving(t, "Job", "setup", "once"))), "", ""},
		"kube-proxy is left out":        {managing(inManifests(t, leaving(t, "DaemonSet", "kube-system", "kube-proxy"))), "kubernetes", "kubernetes.manifests.exclude[0] is kube-proxy"},
		"kube-proxy somewhere":          {managing(inManifests(t, leavingIn(t, "DaemonSet", types.StringUnknown(), "kube-proxy"))), "", ""},
		"kube-proxy anywhere":           {managing(inManifests(t, leavingIn(t, "DaemonSet", types.StringNull(), "kube-proxy"))), "kubernetes", "kubernetes.manifests.exclude[0] is kube-proxy"},
		"no sync with force":            {off(func(m *manifestsModel) { m.Force = types.BoolValue(true) }), "kubernetes", "force = true"},
		"no sync with a timeout":        {off(func(m *manifestsModel) { m.Timeout = types.StringValue("10m") }), "kubernetes", "remove timeout"},
		"no sync with the default":      {off(func(m *manifestsModel) { m.Timeout = types.StringValue("300s") }), "", ""},
		"no sync with all of them": {off(func(m *manifestsModel) {
			m.Prune, m.Force, m.Timeout = types.BoolValue(true), types.BoolValue(true), types.StringValue("10m")
		}), "kubernetes", "prune = true and force = true and timeout"},
		"nothing is known": {func(model *clusterModel) { model.Kubernetes = types.ObjectUnknown(kubernetesTypes()) }, "", ""},
		"nothing in it is known": {inKubernetes(t, func(k *kubernetesModel) {
			k.Images, k.UnavailableKubelets, k.Manifests = types.ObjectUnknown(overrideImageTypes()), types.StringUnknown(), types.ObjectUnknown(manifestsTypes())
		}), "", ""},
		"whether to sync is not known": {inManifests(t, func(m *manifestsModel) {
			m.Sync, m.Prune = types.BoolUnknown(), types.BoolValue(true)
		}), "", ""},
		"what not to sync is not known": {off(func(m *manifestsModel) { m.Prune, m.Timeout = types.BoolUnknown(), types.StringUnknown() }), "", ""},
		"the version is not known": {func(model *clusterModel) {
			everything(model)

			model.KubernetesVersion = types.StringUnknown()
		}, "", ""},
	})
}

// publishedTo is publish_to; a part that is empty is not set.
func publishedTo(apiVersion, kind, namespace, name string) types.Object {
	return types.ObjectValueMust(publishToTypes(), map[string]attr.Value{
		attrname.APIVersion: attribute.TextValue(apiVersion), attrname.Kind: attribute.TextValue(kind), attrname.Namespace: attribute.TextValue(namespace), attrname.Name: attribute.TextValue(name),
	})
}

// publishing is a change to where progress is published.
func publishing(to types.Object) func(*clusterModel) {
	return func(m *clusterModel) { m.PublishTo = to }
}

// delegating is a configuration that leaves everything to the operator of the
// object that may be left to it, but for the change.
func delegating(to types.Object, change func(*clusterModel)) func(*clusterModel) {
	return func(m *clusterModel) {
		m.PublishTo, m.Mode = to, types.StringValue(modeDelegate)
		m.Order, m.RebootMode, m.MaxUnavailable, m.Settle = types.StringNull(), types.StringNull(), types.StringNull(), types.StringNull()
		m.Drain, m.SyncInstallImage = types.ObjectNull(typesOf[drainModel]()), types.BoolNull()
		m.OnFailure, m.Retry = types.StringNull(), types.ObjectNull(typesOf[retryModel]())

		change(m)
	}
}

func nothingElse(*clusterModel) {}

func TestValidate_Publishing(t *testing.T) {
	vitistack := publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	declarative := publishedTo("", "TalosControlPlane", "tenant-a", "prod")
	mode := func(value types.String) func(*clusterModel) { return func(m *clusterModel) { m.Mode = value } }
	part := func(name string, value types.String) func(*clusterModel) {
		return func(m *clusterModel) {
			parts := vitistack.Attributes()
			parts[name] = value
			m.PublishTo = types.ObjectValueMust(publishToTypes(), parts)
		}
	}

	checkValidation(t, map[string]validationCase{
		"a KubernetesCluster":        {publishing(vitistack), "", ""},
		"one of another API version": {publishing(publishedTo("vitistack.io/v1", "KubernetesCluster", "tenant-a", "prod")), "", ""},
		"a ConfigMap":                {publishing(publishedTo("", "ConfigMap", "kube-system", "progress")), "", ""},
		"another kind":               {publishing(publishedTo("example.com/v1beta1", "Site", "tenant-a", "prod.example")), "", ""},
		"nothing is known": {func(m *clusterModel) {
			m.PublishTo, m.Mode = types.ObjectUnknown(publishToTypes()), types.StringUnknown()
		}, "", ""},
		"an unknown kind":                  {part(attrname.Kind, types.StringUnknown()), "", ""},
		"an unknown API version":           {part(attrname.APIVersion, types.StringUnknown()), "", ""},
		"an unknown name":                  {part(attrname.Name, types.StringUnknown()), "", ""},
		"direct":                           {mode(types.StringValue("direct")), "", ""},
		"direct beside an operator":        {func(m *clusterModel) { m.PublishTo, m.Mode = vitistack, types.StringValue("direct") }, "", ""},
		"a kind without an API version":    {publishing(publishedTo("", "Site", "tenant-a", "prod")), attrname.PublishTo, `publish_to.kind is "Site", and the API version of that kind is not known`},
		"almost a kind":                    {publishing(publishedTo("", "KubernetesClusters", "tenant-a", "prod")), attrname.PublishTo, `Did you mean "KubernetesCluster"?`},
		"a kind in other capitals":         {publishing(publishedTo("", "kubernetesCluster", "tenant-a", "prod")), attrname.PublishTo, `Did you mean "KubernetesCluster"?`},
		"no kind":                          {part(attrname.Kind, types.StringValue("")), attrname.PublishTo, `publish_to.kind is ""`},
		"a Secret":                         {publishing(publishedTo("v1", "Secret", "tenant-a", "prod")), attrname.PublishTo, "Secrets are neither read nor written"},
		"a name with a path":               {part(attrname.Name, types.StringValue("../secrets/prod")), attrname.PublishTo, `publish_to.name is "../secrets/prod"`},
		"no name":                          {part(attrname.Name, types.StringValue("")), attrname.PublishTo, `publish_to.name is ""`},
		"a name without end":               {part(attrname.Name, types.StringValue(strings.Repeat("a", 254))), attrname.PublishTo, "must be the name of an object"},
		"no namespace":                     {part(attrname.Namespace, types.StringValue("")), attrname.PublishTo, `publish_to.namespace is ""`},
		"an API version without a version": {part(attrname.APIVersion, types.StringValue("vitistack.io")), attrname.PublishTo, `publish_to.api_version is "vitistack.io"`},
		"an API version with a path":       {part(attrname.APIVersion, types.StringValue("a/b/v1")), attrname.PublishTo, "must be an API version such as v1"},
		"another mode":                     {mode(types.StringValue("operator")), attrname.Mode, `mode is "operator".` + "\n\n" + `Write "direct"`},
		"almost a mode":                    {mode(types.StringValue("delegated")), attrname.Mode, `Did you mean "delegate"?`},
		"delegate without an object":       {delegating(types.ObjectNull(publishToTypes()), nothingElse), attrname.Mode, "without publish_to there is none to ask"},
		"delegate to a ConfigMap":          {delegating(publishedTo("", "ConfigMap", "a", "b"), nothingElse), attrname.Mode, "acts on a ConfigMap"},
		"delegate to another kind":         {delegating(publishedTo("example.com/v1", "Site", "a", "b"), nothingElse), attrname.Mode, "acts on a Site"},
		"delegate to an unknown object":    {delegating(types.ObjectUnknown(publishToTypes()), nothingElse), "", ""},
		"delegate to Vitistack":            {delegating(vitistack, nothingElse), "", ""},
		"delegate to the other operator":   {delegating(declarative, nothingElse), "", ""},
		"one that cannot be held":          {publishing(declarative), attrname.PublishTo, `Set mode = "delegate"`},
		"one of an unknown API version": {func(m *clusterModel) {
			parts := declarative.Attributes()
			parts[attrname.APIVersion] = types.StringUnknown()
			m.PublishTo = types.ObjectValueMust(publishToTypes(), parts)
		}, "", ""},
		"delegate to an unknown API version": {delegating(publishedTo("", "Site", "a", "b"), func(m *clusterModel) {
			parts := m.PublishTo.Attributes()
			parts[attrname.APIVersion] = types.StringUnknown()
			m.PublishTo = types.ObjectValueMust(publishToTypes(), parts)
		}), "", ""},
		"one that may be asked": {func(m *clusterModel) { m.PublishTo, m.Mode = declarative, types.StringUnknown() }, "", ""},
		"one that cannot be held, directly": {
			func(m *clusterModel) { m.PublishTo, m.Mode = declarative, types.StringValue("direct") },
			attrname.PublishTo, "cannot be held",
		},
		"delegate with what is allowed": {delegating(vitistack, func(m *clusterModel) {
			m.AllowIntermediate, m.IntermediateVersions, m.AllowUnknown = types.BoolValue(true), texts("1.12.8"), types.BoolValue(true)
			m.NodeTimeout = types.StringValue("10m")
			m.Preflight, m.EtcdSnapshot = skippingChecks(types.StringValue(cluster.CheckDiskSpace)), saving("snapshots")
			windowed(leapDay())(m)
		}), "", ""},
	})
}

func saving(directory string) types.Object {
	return types.ObjectValueMust(directoryTypes(), map[string]attr.Value{attrname.Directory: types.StringValue(directory)})
}

// TestValidate_DelegationRefusesUnusedAttributes: an attribute that nothing looks at would be a
// promise that is not kept.
func TestValidate_DelegationRefusesUnusedAttributes(t *testing.T) {
	vitistack := publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	defaults := desired("1.13.4", "")
	cases := map[string]validationCase{}

	for name, change := range map[string]func(*clusterModel){
		attrname.Order:          func(m *clusterModel) { m.Order = defaults.Order },
		attrname.RebootMode:     func(m *clusterModel) { m.RebootMode = defaults.RebootMode },
		attrname.Drain:          func(m *clusterModel) { m.Drain = defaults.Drain },
		attrname.InstallerImage: func(m *clusterModel) { m.InstallerImage = types.StringValue("ghcr.io/siderolabs/installer") },
		attrname.MaxUnavailable: func(m *clusterModel) { m.MaxUnavailable = defaults.MaxUnavailable },
		attrname.ParallelPulls:  func(m *clusterModel) { m.ParallelPulls = times(7) },
		attrname.Canary:         func(m *clusterModel) { m.Canary = texts("worker-0") },
		attrname.Settle:         func(m *clusterModel) { m.Settle = defaults.Settle },
		attrname.NodeOverrides:  func(m *clusterModel) { m.NodeOverrides = holding(t, "worker-0") },
		attrname.Kubernetes: func(m *clusterModel) {
			m.KubernetesVersion, m.Kubernetes = types.StringValue("1.35.2"), desired("1.13.4", "1.35.2").Kubernetes
		},
		attrname.SyncInstallImage: func(m *clusterModel) { m.SyncInstallImage = types.BoolValue(false) },
		attrname.OnFailure:        failing("stop"),
		attrname.Retry:            repeating(times(1), types.StringNull()),
	} {
		cases[name] = validationCase{delegating(vitistack, change), name, "nothing looks at " + name + "."}
	}

	nothing := func(of types.Object) types.Object {
		values := map[string]attr.Value{}

		for name, kind := range of.AttributeTypes(t.Context()) {
			value, err := kind.ValueFromTerraform(t.Context(), tftypes.NewValue(kind.TerraformType(t.Context()), nil))
			if err != nil {
				t.Fatal(err)
			}

			values[name] = value
		}

		return types.ObjectValueMust(of.AttributeTypes(t.Context()), values)
	}

	// A module passes them on for variables that are not set.
	for name, change := range map[string]func(*clusterModel){
		"an empty list": func(m *clusterModel) { m.Canary = texts() },
		"an empty map": func(m *clusterModel) {
			m.NodeOverrides = types.MapValueMust(defaults.NodeOverrides.ElementType(t.Context()), nil)
		},
		"an object of nulls": func(m *clusterModel) { m.Drain = nothing(defaults.Drain) },
		"objects in an object": func(m *clusterModel) {
			parts := nothing(defaults.Kubernetes).Attributes()
			parts[attrname.Manifests] = nothing(types.ObjectNull(manifestsTypes()))
			m.Kubernetes = types.ObjectValueMust(kubernetesTypes(), parts)
		},
		"an object that may turn out to be one of nulls": func(m *clusterModel) {
			parts := nothing(defaults.Drain).Attributes()
			parts[attrname.Timeout] = types.StringUnknown()
			m.Drain = types.ObjectValueMust(defaults.Drain.AttributeTypes(t.Context()), parts)
		},
	} {
		cases[name] = validationCase{delegating(vitistack, change), "", ""}
	}

	cases["a part of an object"] = validationCase{delegating(vitistack, func(m *clusterModel) {
		parts := nothing(defaults.Drain).Attributes()
		parts[attrname.Timeout] = types.StringValue("5m")
		m.Drain = types.ObjectValueMust(defaults.Drain.AttributeTypes(t.Context()), parts)
	}), attrname.Drain, "nothing looks at drain."}

	cases["several of them"] = validationCase{
		delegating(vitistack, func(m *clusterModel) { m.Order, m.OnFailure = defaults.Order, types.StringValue("rollback") }),
		attrname.Order, "Remove order, on_failure, or set",
	}

	checkValidation(t, cases)
}

func TestValidate_ObjectIsCompleted(t *testing.T) {
	for name, test := range map[string]struct {
		to        types.Object
		mode      string
		want      string
		version   string
		delegated bool
	}{
		"default":           {types.ObjectNull(publishToTypes()), "", publication.DefaultObject, "", false},
		"KubernetesCluster": {publishedTo("", "KubernetesCluster", "a", "b"), "", "KubernetesCluster a/b", "vitistack.io/v1alpha1", false},
		"as written":        {publishedTo("vitistack.io/v1", "KubernetesCluster", "a", "b"), modeDirect, "KubernetesCluster a/b", "vitistack.io/v1", false},
		"delegated":         {publishedTo("", "TalosControlPlane", "a", "b"), modeDelegate, "TalosControlPlane a/b", "talos.alperen.cloud/v1alpha1", true},
	} {
		t.Run(name, func(t *testing.T) {
			model := clusterModel{optionsModel: optionsModel{PublishTo: test.to, Mode: attribute.TextValue(test.mode)}}

			got := model.publication()
			if got.String() != test.want || got.Delegated != test.delegated {
				t.Errorf("got %s, delegated %t", got, got.Delegated)
			}

			if got.To != nil && got.To.APIVersion != test.version {
				t.Errorf("API version %s, want %s", got.To.APIVersion, test.version)
			}

			if !model.PublishTo.Equal(test.to) {
				t.Error("what was written changed")
			}
		})
	}
}

// TestValidate_PublicationDecidesAboutTheUpdate: who names another object has it told of the
// cluster by the next apply, and who leaves it out sees no change.
func TestValidate_PublicationDecidesAboutTheUpdate(t *testing.T) {
	before := desired("1.13.4", "")

	for name, change := range map[string]func(*clusterModel){
		"object": publishing(publishedTo("", "KubernetesCluster", "a", "b")),
		"mode":   func(m *clusterModel) { m.Mode = types.StringValue(modeDelegate) },
	} {
		after := desired("1.13.4", "")
		if !after.sameAs(*before) {
			t.Fatal("two models of the same configuration differ")
		}

		change(after)

		if after.sameAs(*before) {
			t.Errorf("another %s is no change", name)
		}
	}

	unknown := desired("1.13.4", "")
	unknown.PublishTo = basetypes.NewObjectUnknown(publishToTypes())

	if unknown.known(t.Context()) {
		t.Error("an object that is not known counts as known")
	}
}

func TestValidate_SuggestsTheNearestName(t *testing.T) {
	for written, want := range map[string]string{
		"etcd-alarm":      "etcd-alarms",
		"etcd_alarms":     "etcd-alarms",
		"disk-spcae":      "disk-space",
		"drian":           "",
		"drains":          "drain",
		"installer-imgae": "installer-image",
		"schematics":      "schematic",
		"":                "",
		"x":               "",
		"everything":      "",
	} {
		if want != "" {
			want = fmt.Sprintf(" Did you mean %q?", want)
		}

		if got := attribute.DidYouMean(written, checkNames()...); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
}

// TestValidate_ExcludedObjectThatIsNotKnownIsAccepted.
func TestValidate_ExcludedObjectThatIsNotKnownIsAccepted(t *testing.T) {
	kind := manifestObjectType().AttrTypes

	for _, value := range []attr.Value{types.ObjectNull(kind), types.ObjectUnknown(kind)} {
		if refused := excludedObjects().Check(path.Root(attrname.Kubernetes), value); refused != nil {
			t.Errorf("%s: %s", value, refused.Detail())
		}
	}
}
