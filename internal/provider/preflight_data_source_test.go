// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
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

func readPreflight(t *testing.T, clusters *clusters, set map[string]attr.Value) (preflightModel, diag.Diagnostics) {
	t.Helper()

	config := preflighting(t, set)
	resp := datasource.ReadResponse{State: tfsdk.State{Schema: config.Schema, Raw: tftypes.NewValue(config.Raw.Type(), nil)}}
	(&preflightDataSource{clusters: clusters}).Read(t.Context(), datasource.ReadRequest{Config: config}, &resp)

	var model preflightModel
	if !resp.Diagnostics.HasError() {
		wellDone(t, resp.State.Get(t.Context(), &model))
	}

	return model, noted(t, resp.Diagnostics)
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

	return types.ObjectValueMust(skipTypes(), map[string]attr.Value{attrSkip: types.SetValueMust(types.StringType, elements)})
}

func TestPreflightTakesWhatTheResourceTakes(t *testing.T) {
	taken, resource := preflightSchema(t.Context()), clusterSchema(t.Context())

	for _, name := range preflightInputs() {
		input, there := taken.Attributes[name]
		if !there || input == nil {
			t.Errorf("there is no %s", name)

			continue
		}

		if !input.GetType().Equal(resource.Attributes[name].GetType()) {
			t.Errorf("%s is %s, and %s in the resource", name, input.GetType(), resource.Attributes[name].GetType())
		}

		if input.IsComputed() || input.IsRequired() {
			t.Errorf("%s is not optional", name)
		}
	}
}

func TestPreflightHasTheDefaultsOfTheResource(t *testing.T) {
	attributes := clusterSchema(t.Context()).Attributes
	drain := types.ObjectValueMust(drainTypes(), map[string]attr.Value{
		"enabled": types.BoolNull(), "timeout": types.StringValue("1m"), "on_timeout": types.StringNull(),
	})

	gates := types.ListValueMust(types.ObjectType{AttrTypes: gateTypes()}, []attr.Value{gateValue(map[string]string{attrPreset: "longhorn"})})

	var model preflightModel

	wellDone(t, preflighting(t, map[string]attr.Value{
		attrTalosVersion: types.StringValue("1.13.4"), attrKubernetesVersion: types.StringValue("1.34.2"), attrDrain: drain, attrGates: gates,
	}).Get(t.Context(), &model))

	asked := model.cluster(t.Context(), attributes)

	policy, diagnostics := asked.policy(t.Context())
	wellDone(t, diagnostics)

	want := cluster.DefaultPolicy()
	if !policy.Drain.Enabled || policy.Drain.OnTimeout != want.Drain.OnTimeout || policy.Drain.Timeout.String() != "1m0s" {
		t.Errorf("drain is %+v", policy.Drain)
	}

	if policy.MaxUnavailable != want.MaxUnavailable || policy.Kubernetes.Manifests != want.Kubernetes.Manifests || policy.Order != want.Order {
		t.Errorf("got %+v", policy)
	}

	if text := asked.Gates.String(); !strings.Contains(text, `"timeout":"10m"`) {
		t.Errorf("the gates are %s", text)
	}
}

// gateValue is a gate in which only the given attributes are set.
func gateValue(set map[string]string) attr.Value {
	values := map[string]attr.Value{}
	for name := range gateTypes() {
		values[name] = textValue(set[name])
	}

	return types.ObjectValueMust(gateTypes(), values)
}

func TestPreflightListsWhatItFinds(t *testing.T) {
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
			set := map[string]attr.Value{attrTalosVersion: types.StringValue(test.talos)}
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

func TestPreflightWithoutAClusterIsAnError(t *testing.T) {
	version := map[string]attr.Value{attrTalosVersion: types.StringValue("1.13.4")}

	silent := threeNodes("1.12.6", "1.34.2")
	for index := range silent.nodes {
		silent.nodes[index].unreachable = cluster.ErrUnreachable
	}

	_, diagnostics := readPreflight(t, silent.clusters(t), version)
	check(t, diagnostics, outcome{diag.SeverityError, "No node answered over the Talos API"})

	undecided := threeNodes("1.12.6", "1.34.2").clusters(t)
	undecided.access.Unknown = []string{attrTalosconfig}

	_, diagnostics = readPreflight(t, undecided, version)
	check(t, diagnostics, outcome{diag.SeverityError, "known only after an apply (talosconfig)"})
}

func TestPreflightRefusesWhatTheResourceRefuses(t *testing.T) {
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
		"nothing contradicts itself":     {map[string]attr.Value{attrTalosVersion: types.StringValue("1.13.4"), attrPreflight: skipping(t, "disk-space")}, nil},
		"a canary twice":                 {map[string]attr.Value{attrCanary: list("worker-0", "worker-0")}, []outcome{{diag.SeverityError, "worker-0"}}},
		"intermediate without allowance": {map[string]attr.Value{attrIntermediateVersions: list("1.12.6")}, []outcome{{diag.SeverityError, "allow_intermediate_versions"}}},
		"an expression that is none": {
			map[string]attr.Value{attrGates: types.ListValueMust(types.ObjectType{AttrTypes: gateTypes()}, []attr.Value{
				gateValue(map[string]string{attrAPIVersion: "v1", attrKind: "ConfigMap", attrExpr: "object.data.open =="}),
			})},
			[]outcome{{diag.SeverityError, "gates[0]"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var resp datasource.ValidateConfigResponse

			(&preflightDataSource{}).ValidateConfig(t.Context(), datasource.ValidateConfigRequest{Config: preflighting(t, test.set)}, &resp)
			check(t, noted(t, resp.Diagnostics), test.want...)
		})
	}
}

// TestTheGuideNamesEveryCheck keeps the table of the documentation at what the
// catalogue says.
func TestTheGuideNamesEveryCheck(t *testing.T) {
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
