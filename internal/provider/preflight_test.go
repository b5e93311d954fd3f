// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// preflighting is a configuration of the data source in which only the given
// attributes are set.
func preflighting(t *testing.T, set map[string]attr.Value) tfsdk.Config {
	t.Helper()

	schema := preflightSchema(t.Context())

	object, isObject := schema.Type().TerraformType(t.Context()).(tftypes.Object)
	if !isObject {
		t.Fatal("the schema is no object")
	}

	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
	}

	for name, value := range set {
		terraform, err := value.ToTerraformValue(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		values[name] = terraform
	}

	return tfsdk.Config{Schema: schema, Raw: tftypes.NewValue(object, values)}
}

func readPreflight(t *testing.T, clusters *connection.Clusters, set map[string]attr.Value) (preflightModel, diag.Diagnostics) {
	t.Helper()

	config := preflighting(t, set)
	resp := datasource.ReadResponse{State: tfsdk.State{Schema: config.Schema, Raw: tftypes.NewValue(config.Raw.Type(), nil)}}
	(&preflightDataSource{clusters: clusters}).Read(t.Context(), datasource.ReadRequest{Config: config}, &resp)

	var model preflightModel
	if !resp.Diagnostics.HasError() {
		wellDone(t, resp.State.Get(t.Context(), &model))
	}

	return model, told.Noted(t, resp.Diagnostics)
}

// found are the rows of a check.
func (m preflightModel) found(name string) []row {
	return slices.DeleteFunc(rows(m.Checks), func(r row) bool { return r.name != name })
}

func skipping(t *testing.T, names ...string) attr.Value {
	t.Helper()

	elements := make([]attr.Value, 0, len(names))
	for _, name := range names {
		elements = append(elements, types.StringValue(name))
	}

	return types.ObjectValueMust(skipTypes(), map[string]attr.Value{attrname.Skip: types.SetValueMust(types.StringType, elements)})
}

// TestPreflight_TakesWhatTheResourceTakes: an option that is new in the resource, and that
// shapes the roll, is one of the data source as well.
func TestPreflight_TakesWhatTheResourceTakes(t *testing.T) {
	taken, resource := preflightSchema(t.Context()), clusterSchema(t.Context())
	inputs := map[string]bool{attrname.Timeouts: true}

	for _, option := range (clusterModel{}).choices() {
		if option.decides == aboutRun {
			continue
		}

		inputs[option.name] = true

		input, there := taken.Attributes[option.name]
		if !there || input == nil {
			t.Errorf("there is no %s", option.name)

			continue
		}

		if !input.GetType().Equal(resource.Attributes[option.name].GetType()) {
			t.Errorf("%s is %s, and %s in the resource", option.name, input.GetType(), resource.Attributes[option.name].GetType())
		}

		if input.IsComputed() || input.IsRequired() {
			t.Errorf("%s is not optional", option.name)
		}
	}

	for name, attribute := range taken.Attributes {
		if !attribute.IsComputed() && !inputs[name] {
			t.Errorf("%s is no option of the resource", name)
		}
	}
}

// TestPreflight_FillsInEveryDefault: a configuration that sets nothing asks for what Terraform plans for the resource, and
// so does an import.
func TestPreflight_FillsInEveryDefault(t *testing.T) {
	var (
		model preflightModel
		want  clusterModel
	)

	wellDone(t, preflighting(t, map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4")}).Get(t.Context(), &model))

	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	plan := tfsdk.Plan{Schema: testSchema(t), Raw: d.planOf(map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4")})}
	wellDone(t, plan.Get(t.Context(), &want))

	asked, imported := model.planned(t.Context()), newClusterModel(t.Context(), version.MustParse("1.13.4"), version.Version{})

	for index, option := range want.choices() {
		// Whether the manifests are synced is left to the plan of the resource.
		if got := asked.choices()[index].value; option.decides != aboutRun && option.name != attrname.Kubernetes && !got.Equal(option.value) {
			t.Errorf("%s is %s, want %s", option.name, got, option.value)
		}

		if got := imported.choices()[index].value; !got.Equal(option.value) {
			t.Errorf("an import has %s %s, want %s", option.name, got, option.value)
		}
	}

	if asked.syncs() {
		t.Error("manifests of a Kubernetes that is not managed are synced")
	}
}

// TestPreflight_GivesTheWholeRoll: what the table of the plan folds and cuts short is
// complete here.
func TestPreflight_GivesTheWholeRoll(t *testing.T) {
	got, diagnostics := readPreflight(t, threeNodes("1.12.6", "1.34.2").clusters(t), map[string]attr.Value{
		attrname.TalosVersion: types.StringValue("1.13.4"), attrname.KubernetesVersion: types.StringValue("1.35.2"),
		attrname.Canary: texts("worker-1"), attrname.NodeOverrides: overrides(t, map[string]nodeOverrideModel{"worker-0": {Hold: types.BoolValue(true)}}),
	})
	check(t, diagnostics)

	var hops []string
	for _, hop := range got.Hops {
		hops = append(hops, fmt.Sprintf("%s %s -> %s %s", hop.Product.ValueString(), hop.From.ValueString(), hop.To.ValueString(), hop.ReleaseNotes.ValueString()))
	}

	want := []string{
		"talos 1.12.6 -> 1.13.4 https://github.com/siderolabs/talos/releases/tag/v1.13.4",
		"kubernetes 1.34.2 -> 1.35.2 https://github.com/kubernetes/kubernetes/blob/master/CHANGELOG/CHANGELOG-1.35.md",
	}
	if !slices.Equal(hops, want) {
		t.Errorf("the hops are %q, want %q", hops, want)
	}

	if !slices.Equal(got.Held, []string{"worker-0"}) {
		t.Errorf("held are %q", got.Held)
	}

	steps := []string{}
	for _, step := range got.Steps {
		steps = append(steps, fmt.Sprintf("%d %s %s %s %s->%s %t %s", step.Hop.ValueInt64(), step.Node.ValueString(), step.Role.ValueString(),
			step.Component.ValueString(), step.From.ValueString(), step.To.ValueString(), step.Canary.ValueBool(), step.Image.ValueString()))

		if step.Estimate.ValueInt64() <= 0 {
			t.Errorf("nobody knows how long %v takes", step)
		}
	}

	want = []string{
		"0 worker-1 worker  1.12.6->1.13.4 true " + genericImage + ":v1.13.4",
		"0 cp-0 controlplane  1.12.6->1.13.4 false " + genericImage + ":v1.13.4",
		"1 cp-0 controlplane kube-apiserver 1.34.2->1.35.2 false registry.k8s.io/kube-apiserver:v1.35.2",
		"1 cp-0 controlplane kube-controller-manager 1.34.2->1.35.2 false registry.k8s.io/kube-controller-manager:v1.35.2",
		"1 cp-0 controlplane kube-scheduler 1.34.2->1.35.2 false registry.k8s.io/kube-scheduler:v1.35.2",
		"1 cp-0 controlplane kube-proxy 1.34.2->1.35.2 false registry.k8s.io/kube-proxy:v1.35.2",
		"1 worker-1 worker kubelet 1.34.2->1.35.2 true registry.k8s.io/kubelet:v1.35.2",
		"1 cp-0 controlplane kubelet 1.34.2->1.35.2 false registry.k8s.io/kubelet:v1.35.2",
		"1   manifests 1.34.2->1.35.2 false ",
	}
	if difference := cmp.Diff(want, steps); difference != "" {
		t.Errorf("the steps differ (-want +got):\n%s", difference)
	}

	if sum := got.Estimate.ValueInt64(); sum < got.Steps[0].Estimate.ValueInt64() {
		t.Errorf("all of it takes %d seconds", sum)
	}
}

// TestPreflight_OfNothingIsEmpty: lists that a policy looks at are there also where
// nothing is in them.
func TestPreflight_OfNothingIsEmpty(t *testing.T) {
	got, diagnostics := readPreflight(t, threeNodes("1.13.4", "1.34.2").clusters(t), map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4")})
	check(t, diagnostics)

	if got.Hops == nil || got.Steps == nil || got.Held == nil || len(got.Hops)+len(got.Steps)+len(got.Held) > 0 || got.Estimate.ValueInt64() != 0 {
		t.Errorf("got %v, %v, %v, %s", got.Hops, got.Steps, got.Held, got.Estimate)
	}
}

func TestPreflight_HasTheDefaultsOfTheResource(t *testing.T) {
	drain, diagnostics := types.ObjectValueFrom(t.Context(), typesOf[drainModel](), drainModel{Timeout: types.StringValue("1m")})
	wellDone(t, diagnostics)

	gates := types.ListValueMust(types.ObjectType{AttrTypes: typesOf[gateModel]()}, []attr.Value{gateValue(map[string]string{attrname.Preset: "longhorn"})})

	var model preflightModel

	wellDone(t, preflighting(t, map[string]attr.Value{
		attrname.TalosVersion: types.StringValue("1.13.4"), attrname.KubernetesVersion: types.StringValue("1.34.2"), attrname.Drain: drain, attrname.Gates: gates,
	}).Get(t.Context(), &model))

	asked := model.planned(t.Context())

	policy, diagnostics := asked.policy(t.Context())
	wellDone(t, diagnostics)

	want := cluster.DefaultPolicy()
	if !policy.Drain.Enabled || policy.Drain.OnTimeout != want.Drain.OnTimeout || policy.Drain.Volumes != want.Drain.Volumes || policy.Drain.Timeout.String() != "1m0s" {
		t.Errorf("drain is %+v", policy.Drain)
	}

	if policy.MaxUnavailable != want.MaxUnavailable || !reflect.DeepEqual(policy.Kubernetes.Manifests, want.Kubernetes.Manifests) || policy.Order != want.Order {
		t.Errorf("got %+v", policy)
	}

	if text := asked.Gates.String(); !strings.Contains(text, `"timeout":"10m"`) {
		t.Errorf("the gates are %s", text)
	}
}

// gateValue is a gate in which only the given attributes are set.
func gateValue(set map[string]string) attr.Value {
	values := map[string]attr.Value{}
	for name := range typesOf[gateModel]() {
		values[name] = attribute.TextValue(set[name])
	}

	return types.ObjectValueMust(typesOf[gateModel](), values)
}

func TestPreflight_ListsWhatItFinds(t *testing.T) {
	lost := threeNodes("1.12.6", "1.34.2")
	lost.nodes[2].unreachable = cluster.ErrUnreachable

	reader := threeNodes("1.12.6", "1.34.2")
	reader.roles = []string{"os:reader"}

	for name, test := range map[string]struct {
		fake   *fakeCluster
		talos  string
		more   map[string]attr.Value
		check  string
		want   row
		passed bool
	}{
		"what passes":       {threeNodes("1.12.6", "1.34.2"), "1.13.4", nil, cluster.CheckRoles, row{status: checkPassed, severity: severityNone}, true},
		"what is advice":    {threeNodes("1.12.6", "1.34.2"), "1.13.4", nil, cluster.CheckSingleControlPlane, row{status: checkWarning, severity: severityWarning}, true},
		"what was observed": {reader, "1.13.4", nil, cluster.CheckRoles, row{status: checkFailed, severity: severityError}, false},
		"what waiting does not cure": {
			threeNodes("1.13.4", "1.34.2"), "1.12.6", nil, cluster.CheckVersions, row{status: checkFailed, severity: severityError}, false,
		},
		"a node that does not answer": {lost, "1.13.4", nil, cluster.CheckTalosAPI, row{severity: severityError, node: "worker-1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := map[string]attr.Value{attrname.TalosVersion: types.StringValue(test.talos)}
			for attribute, value := range test.more {
				set[attribute] = value
			}

			got, diagnostics := readPreflight(t, test.fake.clusters(t), set)
			check(t, diagnostics)

			found := got.found(test.check)
			if len(found) == 0 {
				t.Fatalf("no row of %s: %+v", test.check, rows(got.Checks))
			}

			if found[0].severity != test.want.severity || test.want.status != "" && found[0].status != test.want.status {
				t.Errorf("got %+v, want %+v", found[0], test.want)
			}

			if test.want.node != "" && found[0].node != test.want.node {
				t.Errorf("it is about %q, want %q", found[0].node, test.want.node)
			}

			if test.want.status != checkPassed && found[0].finding == "" {
				t.Error("it does not say what was found")
			}

			if got.Passed.ValueBool() != test.passed {
				t.Errorf("passed is %s: %s, %+v", got.Passed, got.Summary, rows(got.Checks))
			}

			if test.passed == strings.Contains(got.Summary.ValueString(), test.check) {
				t.Errorf("the summary is %s", got.Summary)
			}
		})
	}
}

func TestPreflight_WithoutAClusterIsAnError(t *testing.T) {
	version := map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4")}

	silent := threeNodes("1.12.6", "1.34.2")
	for index := range silent.nodes {
		silent.nodes[index].unreachable = cluster.ErrUnreachable
	}

	_, diagnostics := readPreflight(t, silent.clusters(t), version)
	check(t, diagnostics, outcome{diag.SeverityError, "No node answered over the Talos API"})

	undecided := threeNodes("1.12.6", "1.34.2").clusters(t)
	undecided.Access.Unknown = []string{attrname.Talosconfig}

	_, diagnostics = readPreflight(t, undecided, version)
	check(t, diagnostics, outcome{diag.SeverityError, "known only after an apply (talosconfig)"})
}

func TestPreflight_RefusesWhatTheResourceRefuses(t *testing.T) {
	list := func(texts ...string) attr.Value {
		elements := make([]attr.Value, 0, len(texts))
		for _, text := range texts {
			elements = append(elements, types.StringValue(text))
		}

		return types.ListValueMust(types.StringType, elements)
	}

	for name, test := range map[string]struct {
		set  map[string]attr.Value
		want []outcome
	}{
		"nothing contradicts itself":     {map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4"), attrname.Preflight: skipping(t, "disk-space")}, nil},
		"a canary twice":                 {map[string]attr.Value{attrname.Canary: list("worker-0", "worker-0")}, []outcome{{diag.SeverityError, "worker-0"}}},
		"intermediate without allowance": {map[string]attr.Value{attrname.IntermediateVersions: list("1.12.6")}, []outcome{{diag.SeverityError, "allow_intermediate_versions"}}},
		"a rollback of nothing": {
			map[string]attr.Value{attrname.KubernetesVersion: types.StringValue("1.35.2"), attrname.OnFailure: types.StringValue("rollback")},
			[]outcome{{diag.SeverityError, "without talos_version"}},
		},
		"a delegate that is nobody": {
			map[string]attr.Value{attrname.TalosVersion: types.StringValue("1.13.4"), attrname.Mode: types.StringValue(modeDelegate)},
			[]outcome{{diag.SeverityError, "publish_to"}},
		},
		"an expression that is none": {
			map[string]attr.Value{attrname.Gates: types.ListValueMust(types.ObjectType{AttrTypes: typesOf[gateModel]()}, []attr.Value{
				gateValue(map[string]string{attrname.APIVersion: "v1", attrname.Kind: "ConfigMap", attrname.Expr: "object.data.open =="}),
			})},
			[]outcome{{diag.SeverityError, "gates[0]"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var resp datasource.ValidateConfigResponse

			(&preflightDataSource{}).ValidateConfig(t.Context(), datasource.ValidateConfigRequest{Config: preflighting(t, test.set)}, &resp)
			check(t, told.Noted(t, resp.Diagnostics), test.want...)
		})
	}
}

// TestPreflight_GuideNamesEveryCheck keeps the table of the documentation at what the
// catalogue says.
func TestPreflight_GuideNamesEveryCheck(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "templates", "guides", "guards.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}

	_, table, _ := strings.Cut(string(guide), "## All checks")
	plain := strings.ReplaceAll(table, "`", "")

	for _, named := range cluster.Checks() {
		begin := "\n| " + named.Name + " | " + named.About

		_, rest, there := strings.Cut(plain, begin)
		if !there {
			t.Errorf("the guide has no line %q", strings.TrimSpace(begin))

			continue
		}

		line, _, _ := strings.Cut(rest, "\n")
		if want := map[bool]string{true: "| yes |", false: "| no: " + named.Firm + " |"}[named.Firm == ""]; !strings.HasSuffix(line, want) {
			t.Errorf("the line of %s ends with %q, want %q", named.Name, line, want)
		}
	}
}

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

func TestPreflight_FindingsBecomeRowsInCatalogueOrder(t *testing.T) {
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

func TestPreflight_SummaryOfChecks(t *testing.T) {
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
