// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"reflect"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// stateOf is the model as a state; nil is a resource that does not exist.
func stateOf(t *testing.T, model *clusterModel) tfsdk.State {
	t.Helper()

	state := tfsdk.State{Schema: testSchema(t), Raw: tftypes.NewValue(testSchema(t).Type().TerraformType(t.Context()), nil)}
	if model != nil {
		wellDone(t, state.Set(t.Context(), model))
	}

	return state
}

// identityOf is the identity that is stored for the model; none for nil.
func identityOf(t *testing.T, model *clusterModel) *tfsdk.ResourceIdentity {
	t.Helper()

	var described resource.IdentitySchemaResponse

	(&clusterResource{}).IdentitySchema(t.Context(), resource.IdentitySchemaRequest{}, &described)

	kind := described.IdentitySchema.Type().TerraformType(t.Context())
	identity := &tfsdk.ResourceIdentity{Schema: described.IdentitySchema, Raw: tftypes.NewValue(kind, nil)}

	if model != nil {
		wellDone(t, model.writeIdentity(t.Context(), identity))
	}

	return identity
}

func testSchema(t *testing.T) schema.Schema {
	t.Helper()

	return clusterSchema(t.Context())
}

func wellDone(t *testing.T, diagnostics diag.Diagnostics) {
	t.Helper()

	for _, diagnostic := range diagnostics {
		t.Fatalf("%s: %s: %s", diagnostic.Severity(), diagnostic.Summary(), diagnostic.Detail())
	}
}

// modelOf reads a state back; nil when it is null.
func modelOf(t *testing.T, state tfsdk.State) *clusterModel {
	t.Helper()

	if state.Raw.IsNull() {
		return nil
	}

	var model clusterModel

	wellDone(t, state.Get(t.Context(), &model))

	return &model
}

// desired is the model of a plan in which nothing was computed yet.
func desired(talos, kubernetes string) *clusterModel {
	parse := func(text string) version.Version {
		if text == "" {
			return version.Version{}
		}

		return version.MustParse(text)
	}

	model := newClusterModel(context.Background(), parse(talos), parse(kubernetes))
	model.ID = types.StringUnknown()
	model.Status = types.ObjectUnknown(statusTypes())
	model.Nodes = types.MapUnknown(types.ObjectType{AttrTypes: nodeTypes()})
	model.Snapshot = types.ObjectUnknown(snapshotTypes())

	return &model
}

// stored is the state of a cluster that an apply brought to the versions.
func stored(t *testing.T, fake *fakeCluster, talos, kubernetes string) *clusterModel {
	t.Helper()

	seen, err := fake.clusters(t).Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	model := desired(talos, kubernetes)
	wellDone(t, model.observe(seen.Observation))

	return model
}

// planned runs ModifyPlan on a plan against a prior state.
func planned(t *testing.T, clusters *connection.Clusters, prior, plan *clusterModel) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	proposed := stateOf(t, plan)
	req := resource.ModifyPlanRequest{
		State: stateOf(t, prior), Plan: tfsdk.Plan(proposed),
		Config: tfsdk.Config(proposed),
	}
	resp := resource.ModifyPlanResponse{Plan: req.Plan}

	(&clusterResource{clusters: clusters}).ModifyPlan(t.Context(), req, &resp)

	return modelOf(t, tfsdk.State{Schema: resp.Plan.Schema, Raw: resp.Plan.Raw}), told.Noted(t, resp.Diagnostics)
}

// read runs Read on a state.
func read(ctx context.Context, t *testing.T, clusters *connection.Clusters, prior *clusterModel) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	req := resource.ReadRequest{State: stateOf(t, prior)}
	resp := resource.ReadResponse{State: stateOf(t, prior), Identity: identityOf(t, nil)}

	(&clusterResource{clusters: clusters}).Read(ctx, req, &resp)

	return modelOf(t, resp.State), told.Noted(t, resp.Diagnostics)
}

// Images of nodes that were installed without and with a schematic.
const (
	genericImage = "ghcr.io/siderolabs/installer"
	factoryImage = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// typesOf returns the types of the attributes of an object, from the model of the object. The model must have no
// collections.
func typesOf[M any]() map[string]attr.Type {
	var model M

	found := map[string]attr.Type{}
	fields := reflect.ValueOf(model)

	for index := range fields.NumField() {
		if value, isValue := fields.Field(index).Interface().(attr.Value); isValue {
			found[fields.Type().Field(index).Tag.Get("tfsdk")] = value.Type(context.Background())
		}
	}

	return found
}

func timeoutTypes() map[string]attr.Type {
	return map[string]attr.Type{"create": types.StringType, "update": types.StringType, "read": types.StringType, "delete": types.StringType}
}

func skipTypes() map[string]attr.Type { return attributeTypes(attrname.Preflight) }

func directoryTypes() map[string]attr.Type { return attributeTypes(attrname.EtcdSnapshot) }

func publishToTypes() map[string]attr.Type { return attributeTypes(attrname.PublishTo) }

func kubernetesTypes() map[string]attr.Type { return attributeTypes(attrname.Kubernetes) }

func manifestsTypes() map[string]attr.Type { return attribute.ObjectType(manifestsSchema()).AttrTypes }

func manifestObjectType() types.ObjectType { return attribute.ObjectType(manifestObjectsSchema()) }

// attributeTypes returns the types within an attribute of the resource.
func attributeTypes(name string) map[string]attr.Type {
	return attribute.ObjectType(clusterSchema(context.Background()).Attributes[name]).AttrTypes
}
