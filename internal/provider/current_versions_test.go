// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

func readCurrent(t *testing.T, clusters *connection.Clusters) (currentVersionsModel, diag.Diagnostics) {
	t.Helper()

	schema := currentVersionsSchema()

	object, ok := schema.Type().TerraformType(t.Context()).(tftypes.Object)
	if !ok {
		t.Fatal("the schema is no object")
	}

	empty := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		empty[name] = tftypes.NewValue(kind, nil)
	}

	resp := datasource.ReadResponse{State: tfsdk.State{Schema: schema, Raw: tftypes.NewValue(object, nil)}}
	(&currentVersionsDataSource{clusters: clusters}).Read(t.Context(),
		datasource.ReadRequest{Config: tfsdk.Config{Schema: schema, Raw: tftypes.NewValue(object, empty)}}, &resp)

	var model currentVersionsModel
	if !resp.Diagnostics.HasError() {
		wellDone(t, resp.State.Get(t.Context(), &model))
	}

	return model, told.Noted(t, resp.Diagnostics)
}

func TestCurrentVersions_ListNodesThatDoNotAnswer(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.nodes[0].talos = "1.13.0"
	fake.nodes[2].unreachable = cluster.ErrUnreachable

	got, diagnostics := readCurrent(t, fake.clusters(t))
	check(t, diagnostics)

	if got.ID.ValueString() != "cluster-a" || got.Talos.Lowest.ValueString() != "1.13.0" || got.Talos.Highest.ValueString() != "1.13.4" {
		t.Errorf("got %s, Talos %s to %s", got.ID, got.Talos.Lowest, got.Talos.Highest)
	}

	lost, there := got.Nodes["worker-1"], got.Nodes["worker-0"]
	if lost.Reachable.ValueBool() || lost.Ready.ValueBool() || !lost.TalosVersion.IsNull() {
		t.Errorf("worker-1 is %+v", lost)
	}

	if !there.Reachable.ValueBool() || !there.Ready.ValueBool() || there.BootID.ValueString() != "boot-worker-0" {
		t.Errorf("worker-0 is %+v", there)
	}
}

func TestCurrentVersions_OfASilentClusterAreAnError(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	for index := range fake.nodes {
		fake.nodes[index].unreachable = cluster.ErrUnreachable
	}

	_, diagnostics := readCurrent(t, fake.clusters(t))
	check(t, diagnostics, outcome{diag.SeverityError, "No node answered over the Talos API"})
}

// TestCurrentVersions_EmptyContextIsRefused: it would be that of the provider block.
func TestCurrentVersions_EmptyContextIsRefused(t *testing.T) {
	for text, want := range map[string]string{"": "context", "prod": ""} {
		got := validateData(t, "talosupgrade_current_versions", configOf(t, currentVersionsSchema(), map[string]tftypes.Value{"context": textOf(text)}))
		if strings.Join(got, " ") != want {
			t.Errorf("%q: errors at %q, want %q", text, got, want)
		}
	}
}
