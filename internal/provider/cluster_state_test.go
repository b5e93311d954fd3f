// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// earlierState is what a version of the provider that knew nothing of guards
// stored.
const earlierState = `{
	"talos_version": "1.13.4", "kubernetes_version": null, "context": null, "order": "workers-first", "reboot_mode": "default", "node_timeout": "30m",
	"drain": {"enabled": true, "timeout": "5m", "on_timeout": "abort"}, "installer_image": null,
	"allow_intermediate_versions": false, "intermediate_versions": null, "allow_unknown_versions": false,
	"max_unavailable": "1", "canary": null, "settle": "0s", "node_overrides": null,
	"kubernetes": {"images": null, "max_unavailable_kubelets": "1", "manifests": {"sync": true, "prune": false, "timeout": "5m", "force": false}},
	"timeouts": null, "id": "cluster-a", "status": null, "nodes": {}
}`

// driven is a configured provider behind its protocol, with a cluster behind it.
type driven struct {
	*testing.T

	server tfprotov6.ProviderServer
	kind   tftypes.Object
}

func drive(t *testing.T, fake *fakeCluster) driven {
	t.Helper()

	server, err := providerserver.NewProtocol6WithError(New("test", func(s *connection.Settings) { s.Dial, s.Registry = fake.dial, nil })())()
	if err != nil {
		t.Fatal(err)
	}

	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}

	d := driven{T: t, server: server}
	d.kind = d.object(schemas.ResourceSchemas[attrname.TypeName+"_cluster"].ValueType())

	configured, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: d.dynamic(empty(d.object(schemas.Provider.ValueType()), nil))})
	if err != nil {
		t.Fatal(err)
	}

	d.silent(configured.Diagnostics)

	return d
}

func (d driven) object(kind tftypes.Type) tftypes.Object {
	d.Helper()

	object, is := kind.(tftypes.Object)
	if !is {
		d.Fatalf("%s is no object", kind)
	}

	return object
}

// empty is an object in which only the given attributes are not null.
func empty(kind tftypes.Object, given map[string]tftypes.Value) tftypes.Value {
	values := map[string]tftypes.Value{}

	for name, attribute := range kind.AttributeTypes {
		values[name] = tftypes.NewValue(attribute, nil)
		if value, there := given[name]; there {
			values[name] = value
		}
	}

	return tftypes.NewValue(kind, values)
}

func (d driven) dynamic(value tftypes.Value) *tfprotov6.DynamicValue {
	d.Helper()

	made, err := tfprotov6.NewDynamicValue(value.Type(), value)
	if err != nil {
		d.Fatal(err)
	}

	return &made
}

func (d driven) value(of *tfprotov6.DynamicValue) tftypes.Value {
	d.Helper()

	value, err := of.Unmarshal(d.kind)
	if err != nil {
		d.Fatal(err)
	}

	return value
}

func (d driven) silent(diagnostics []*tfprotov6.Diagnostic) {
	d.Helper()

	for _, diagnostic := range diagnostics {
		d.Fatalf("%s: %s: %s", diagnostic.Severity, diagnostic.Summary, diagnostic.Detail)
	}
}

// read is the stored state as this version of the provider reads it.
func (d driven) read(stored []byte) *tfprotov6.DynamicValue {
	d.Helper()

	return d.readVersion(0, stored)
}

// readVersion is the stored state of a version of the schema as this version of the provider reads it.
func (d driven) readVersion(version int64, stored []byte) *tfprotov6.DynamicValue {
	d.Helper()

	upgraded, err := d.server.UpgradeResourceState(d.Context(), &tfprotov6.UpgradeResourceStateRequest{
		TypeName: attrname.TypeName + "_cluster", Version: version, RawState: &tfprotov6.RawState{JSON: stored},
	})
	if err != nil {
		d.Fatal(err)
	}

	d.silent(upgraded.Diagnostics)

	return upgraded.UpgradedState
}

// refreshed is the earlier state as this version of the provider reads it.
func (d driven) refreshed() *tfprotov6.DynamicValue {
	d.Helper()

	read, err := d.server.ReadResource(d.Context(), &tfprotov6.ReadResourceRequest{TypeName: attrname.TypeName + "_cluster", CurrentState: d.read([]byte(earlierState))})
	if err != nil {
		d.Fatal(err)
	}

	d.silent(read.Diagnostics)

	return read.NewState
}

// attribute is an attribute of a state.
func (d driven) attribute(of tftypes.Value, name string) tftypes.Value {
	d.Helper()

	attributes := map[string]tftypes.Value{}
	if err := of.As(&attributes); err != nil {
		d.Fatal(err)
	}

	return attributes[name]
}

// presets are the attributes that the earlier version did not know and that have a
// default.
var presets = []string{attrname.Mode, attrname.OnFailure, attrname.OnSuspend, attrname.Retry, attrname.SyncInstallImage}

// TestState_OfAnEarlierVersionNeedsNoChange: who only upgrades the provider must
// not be shown anything, in the refresh or in the plan.
func TestState_OfAnEarlierVersionNeedsNoChange(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	state := d.refreshed()
	refreshed := d.value(state)

	var stored map[string]any
	if err := json.Unmarshal([]byte(earlierState), &stored); err != nil {
		t.Fatal(err)
	}

	for name := range d.kind.AttributeTypes {
		if _, there := stored[name]; there {
			continue
		}

		if value := d.attribute(refreshed, name); !value.IsNull() && !slices.Contains(presets, name) {
			t.Errorf("the refresh made %s %s, and the earlier version knew no such attribute", name, value)
		}
	}

	resp, err := d.server.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: attrname.TypeName + "_cluster", PriorState: state, ProposedNewState: state,
		Config: d.dynamic(empty(d.kind, map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4")})),
	})
	if err != nil {
		t.Fatal(err)
	}

	d.silent(resp.Diagnostics)

	planned := d.value(resp.PlannedState)

	for name := range d.kind.AttributeTypes {
		if got, want := d.attribute(planned, name), d.attribute(refreshed, name); !got.Equal(want) {
			t.Errorf("the plan makes %s %s, and it was %s", name, got, want)
		}
	}
}

// TestState_AttributeOfALaterVersionIsNoChange: a version of the provider that adds an attribute with a default shows
// no difference to whoever only upgrades the provider.
func TestState_AttributeOfALaterVersionIsNoChange(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	kind, _ := d.kind.AttributeTypes[attrname.NodeOverrides].(tftypes.Map)
	overrides := tftypes.NewValue(kind, map[string]tftypes.Value{
		"worker-0": empty(d.object(kind.ElementType), map[string]tftypes.Value{attrname.Hold: tftypes.NewValue(tftypes.Bool, false)}),
	})

	before, err := tftypes.Transform(d.value(d.refreshed()), func(path *tftypes.AttributePath, value tftypes.Value) (tftypes.Value, error) {
		if path.String() == `AttributeName("node_overrides")` {
			return overrides, nil
		}

		return value, nil
	})
	if err != nil {
		t.Fatal(err)
	}

	without := func(path *tftypes.AttributePath, value tftypes.Value) (tftypes.Value, error) {
		switch path.String() {
		case `AttributeName("settle")`, `AttributeName("mode")`, `AttributeName("drain").AttributeName("on_timeout")`, `AttributeName("retry")`,
			`AttributeName("node_overrides").ElementKeyString("worker-0").AttributeName("hold")`:
			return tftypes.NewValue(value.Type(), nil), nil
		default:
			return value, nil
		}
	}

	earlier, err := tftypes.Transform(before, without)
	if err != nil {
		t.Fatal(err)
	}

	if earlier.Equal(before) {
		t.Fatal("nothing is missing in the state")
	}

	read, err := d.server.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{TypeName: attrname.TypeName + "_cluster", CurrentState: d.dynamic(earlier)})
	if err != nil {
		t.Fatal(err)
	}

	d.silent(read.Diagnostics)

	if got := d.value(read.NewState); !got.Equal(before) {
		t.Errorf("read as %s, want %s", got, before)
	}
}

// TestState_OneResourceMayBeUpdatedMoreThanOnce: test runs of Terraform update a resource
// again through the same provider. It is told from others by its private state.
func TestState_OneResourceMayBeUpdatedMoreThanOnce(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	config := d.dynamic(empty(d.kind, map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.4")}))
	state := d.refreshed()

	update := func(private []byte) *tfprotov6.ApplyResourceChangeResponse {
		resp, err := d.server.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
			TypeName: attrname.TypeName + "_cluster", PriorState: state, PlannedState: state, Config: config, PlannedPrivate: private,
		})
		if err != nil {
			t.Fatal(err)
		}

		return resp
	}

	first := update(nil)
	d.silent(first.Diagnostics)

	again := update(first.Private)
	d.silent(again.Diagnostics)

	if other := update(nil); len(other.Diagnostics) != 1 || other.Diagnostics[0].Summary != "Unable to upgrade the cluster: another resource does" {
		t.Errorf("another resource: %v", other.Diagnostics)
	}
}

// plan is the plan of a resource with a Talos version; prior is nil for a resource that does not exist yet.
func (d driven) plan(talos string, prior *tfprotov6.DynamicValue, private []byte) *tfprotov6.PlanResourceChangeResponse {
	d.Helper()

	config := d.dynamic(empty(d.kind, map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, talos)}))
	if prior == nil {
		prior = d.dynamic(tftypes.NewValue(d.kind, nil))
	}

	resp, err := d.server.PlanResourceChange(d.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: attrname.TypeName + "_cluster", PriorState: prior, ProposedNewState: config, Config: config, PriorPrivate: private,
	})
	if err != nil {
		d.Fatal(err)
	}

	return resp
}

// errors are the summaries and the details of the errors.
func (d driven) errors(diagnostics []*tfprotov6.Diagnostic) string {
	d.Helper()

	var text []string

	for _, one := range told.NotedOnWire(d.T, diagnostics) {
		if one.Severity == tfprotov6.DiagnosticSeverityError {
			text = append(text, one.Summary+": "+one.Detail)
		}
	}

	return strings.Join(text, "\n")
}

// TestState_OneResourceMayBePlannedMoreThanOnce: test runs of Terraform plan it through the same provider with one
// version after the other.
func TestState_OneResourceMayBePlannedMoreThanOnce(t *testing.T) {
	d := drive(t, threeNodes("1.13.0", "1.34.2"))

	first := d.plan("1.13.0", nil, nil)

	created, err := d.server.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: attrname.TypeName + "_cluster", PriorState: d.dynamic(tftypes.NewValue(d.kind, nil)), PlannedState: first.PlannedState, PlannedPrivate: first.PlannedPrivate,
		Config: d.dynamic(empty(d.kind, map[string]tftypes.Value{attrname.TalosVersion: tftypes.NewValue(tftypes.String, "1.13.0")})),
	})
	if err != nil {
		t.Fatal(err)
	}

	d.silent(created.Diagnostics)

	for _, talos := range []string{"1.13.4", "1.13.3"} {
		if said := d.errors(d.plan(talos, created.NewState, created.Private).Diagnostics); said != "" {
			t.Errorf("%s: %s", talos, said)
		}
	}

	if said := d.errors(d.plan("1.13.4", nil, nil).Diagnostics); !strings.Contains(said, "another talosupgrade_cluster resource of the same provider block brings it to") {
		t.Errorf("another resource: %q", said)
	}
}

// TestState_OfVersion0IsRead: an apply before 0.1.0 has stored the first file, but for the
// identity of the cluster and the directory of its snapshots, and the
// second has what that one left unset as well.
func TestState_OfVersion0IsRead(t *testing.T) {
	for _, name := range []string{"cluster-state-version-0", "cluster-state-version-0-every-attribute"} {
		t.Run(name, func(t *testing.T) { readState(t, "testdata/"+name+".json") })
	}
}

func readState(t *testing.T, path string) {
	t.Helper()

	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var attributes map[string]any
	if err := json.Unmarshal(stored, &attributes); err != nil {
		t.Fatal(err)
	}

	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	state := d.value(d.read(stored))

	for name, was := range attributes {
		if value := d.attribute(state, name); value.IsNull() != (was == nil && !slices.Contains(presets, name)) || !value.IsFullyKnown() {
			t.Errorf("%s was read as %s", name, value)
		}
	}

	read, err := d.server.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{TypeName: attrname.TypeName + "_cluster", CurrentState: d.dynamic(state)})
	if err != nil {
		t.Fatal(err)
	}

	for _, diagnostic := range read.Diagnostics {
		if diagnostic.Severity == tfprotov6.DiagnosticSeverityError {
			t.Errorf("%s: %s", diagnostic.Summary, diagnostic.Detail)
		}
	}

	refreshed := d.value(read.NewState)

	for name := range attributes {
		switch name {
		case attrname.Status, attrname.Nodes, attrname.TalosVersion, attrname.KubernetesVersion:
			// What is observed.
		default:
			if got, want := d.attribute(refreshed, name), d.attribute(state, name); !got.Equal(want) {
				t.Errorf("the refresh made %s %s, and it was %s", name, got, want)
			}
		}
	}
}

// TestState_Of010IsRead: an apply of 0.1.0 with every attribute has stored the file, after a roll of both products. An
// attribute that it lacks has no later version that still reads it.
func TestState_Of010IsRead(t *testing.T) {
	stored, err := os.ReadFile("testdata/cluster-state-0.1.0.json")
	if err != nil {
		t.Fatal(err)
	}

	var written any
	if err := json.Unmarshal(stored, &written); err != nil {
		t.Fatal(err)
	}

	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	state := d.value(d.readVersion(1, stored))

	for _, path := range lacking(state.Type(), []any{written}, "") {
		t.Errorf("the state has no value of %s", path)
	}

	raw := tfprotov6.RawState{JSON: stored}

	want, err := raw.Unmarshal(state.Type())
	if err != nil {
		t.Fatal(err)
	}

	if !state.Equal(want) {
		t.Errorf("it was read as %s, want %s", state, want)
	}
}

// lacking returns the paths of attributes that are null, or absent, in all of the decoded JSON values of a type.
func lacking(kind tftypes.Type, values []any, at string) []string {
	values = slices.DeleteFunc(values, func(value any) bool { return value == nil })
	if len(values) == 0 {
		return []string{at}
	}

	var (
		missing []string
		element tftypes.Type
	)

	switch kind := kind.(type) {
	case tftypes.Object:
		for name, attribute := range kind.AttributeTypes {
			var nested []any

			for _, value := range values {
				if object, isObject := value.(map[string]any); isObject {
					nested = append(nested, object[name])
				}
			}

			missing = append(missing, lacking(attribute, nested, strings.TrimPrefix(at+"."+name, "."))...)
		}

		return missing
	case tftypes.Map:
		element = kind.ElementType
	case tftypes.List:
		element = kind.ElementType
	case tftypes.Set:
		element = kind.ElementType
	default:
		return nil
	}

	var elements []any

	for _, value := range values {
		switch value := value.(type) {
		case map[string]any:
			elements = slices.AppendSeq(elements, maps.Values(value))
		case []any:
			elements = append(elements, value...)
		}
	}

	return lacking(element, elements, at+"[*]")
}

// TestState_RenamedAttributesKeepTheirValues: what a user wrote under an earlier name is in
// state under the one of today.
func TestState_RenamedAttributesKeepTheirValues(t *testing.T) {
	stored, err := os.ReadFile("testdata/cluster-state-version-0-every-attribute.json")
	if err != nil {
		t.Fatal(err)
	}

	d := drive(t, threeNodes("1.13.4", "1.34.2"))
	state := d.value(d.read(stored)).String()

	for _, want := range []string{
		`"retry_boot_id":tftypes.String<"5b1e8e4f-27b0-4a0c-9f6e-0d6d6f1c3f57">`,
		`"install_image":tftypes.String<"factory.talos.dev/metal-installer/`,
		`"kubelet":tftypes.String<"registry.example.com/kubelet">`,
		`"kube_apiserver":tftypes.String<"registry.example.com/api_server">`,
		`"kube_controller_manager":tftypes.String<"registry.example.com/controller_manager">`,
		`"kube_scheduler":tftypes.String<"registry.example.com/scheduler">`,
		`"kube_proxy":tftypes.String<"registry.example.com/proxy">`,
	} {
		if !strings.Contains(state, want) {
			t.Errorf("%s is not in the state %s", want, state)
		}
	}
}

// TestState_OfAnotherToolIsRefused: a state that another tool wrote fails in words.
func TestState_OfAnotherToolIsRefused(t *testing.T) {
	d := drive(t, threeNodes("1.13.4", "1.34.2"))

	resp, err := d.server.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{
		TypeName: attrname.TypeName + "_cluster", RawState: &tfprotov6.RawState{JSON: []byte(`{"settle": {"a": 1}}`)},
	})
	if err != nil {
		t.Fatal(err)
	}

	if told := told.NotedOnWire(t, resp.Diagnostics); len(told) != 1 || !strings.Contains(told[0].Detail, "terraform state rm") {
		t.Errorf("got %v", told)
	}
}
