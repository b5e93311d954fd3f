// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

// listing is what a query wants of the clusters.
type listing struct {
	contexts []string
	bare     bool
	limit    int64
}

// query is the display names of the clusters that the query finds, with the resources
// in the same order, and what is said besides.
func query(ctx context.Context, t *testing.T, clusters *connection.Clusters, of listing) (names []string, models []clusterModel, said diag.Diagnostics) {
	t.Helper()

	subject := &clusterList{clusters: clusters}

	var described list.ListResourceSchemaResponse

	subject.ListResourceConfigSchema(t.Context(), list.ListResourceSchemaRequest{}, &described)

	contexts := types.ListNull(types.StringType)

	if of.contexts != nil {
		made, diagnostics := types.ListValueFrom(t.Context(), types.StringType, of.contexts)
		wellDone(t, diagnostics)

		contexts = made
	}

	kind := described.Schema.Type().TerraformType(t.Context())
	state := tfsdk.State{Schema: described.Schema, Raw: tftypes.NewValue(kind, nil)}
	wellDone(t, state.Set(t.Context(), clusterListModel{Contexts: contexts}))

	req := list.ListRequest{
		Config: tfsdk.Config(state), IncludeResource: !of.bare, Limit: of.limit,
		ResourceSchema: testSchema(t), ResourceIdentitySchema: identityOf(t, nil).Schema,
	}

	var stream list.ListResultsStream

	subject.List(ctx, req, &stream)

	for result := range stream.Results {
		said = append(said, result.Diagnostics...)

		if result.Identity == nil {
			continue
		}

		var identity identityModel

		wellDone(t, result.Identity.Get(t.Context(), &identity))

		names = append(names, result.DisplayName+" = "+identity.ID.ValueString())

		if of.bare {
			if !result.Resource.Raw.IsNull() {
				t.Error("the resource is there although nobody asked for it")
			}

			continue
		}

		if !result.Resource.Raw.IsFullyKnown() {
			t.Errorf("the resource is not known: %s", result.Resource.Raw)
		}

		models = append(models, *modelOf(t, tfsdk.State{Schema: result.Resource.Schema, Raw: result.Resource.Raw}))
	}

	return names, models, told.Noted(t, said)
}

func TestList_OfTheClustersOfATalosconfig(t *testing.T) {
	names, models, said := query(t.Context(), t, fleet("east", "north", "south").clusters(t, "north"), listing{})
	check(t, said)

	want := []string{"east = id-of-east", "north = id-of-north", "south = id-of-south"}
	if !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v", names, want)
	}

	// As an import stores it, so that the configuration which is made of it changes nothing.
	for index, context := range []types.String{types.StringValue("east"), types.StringNull(), types.StringValue("south")} {
		if got := models[index]; !got.Context.Equal(context) || got.TalosVersion.ValueString() != "1.13.4" || got.KubernetesVersion.ValueString() != "1.34.2" {
			t.Errorf("%s has the context %s and runs %s, %s", names[index], got.Context, got.TalosVersion, got.KubernetesVersion)
		}
	}
}

// TestList_WithoutResourcesAsksNoNodes: their nodes need not answer.
func TestList_WithoutResourcesAsksNoNodes(t *testing.T) {
	contexts := fleet("north")
	for index := range contexts["north"].nodes {
		contexts["north"].nodes[index].unreachable = cluster.ErrUnreachable
	}

	names, _, said := query(t.Context(), t, contexts.clusters(t, ""), listing{bare: true})
	check(t, said)

	if !slices.Equal(names, []string{"north = id-of-north"}) {
		t.Errorf("listed %v", names)
	}
}

// TestList_UnusableContextHidesNoOther: neither one that says nothing, nor one that
// does not say which cluster it reaches, nor one of whose nodes none answers.
func TestList_UnusableContextHidesNoOther(t *testing.T) {
	contexts := fleet("a", "b", "c", "d", "e")
	contexts["a"].down = cluster.ErrUnreachable
	contexts["b"].id, contexts["b"].uidErr = "", cluster.ErrDenied
	contexts["c"].idErr = cluster.ErrCredentials

	for index := range contexts["d"].nodes {
		contexts["d"].nodes[index].unreachable = cluster.ErrUnreachable
	}

	names, _, said := query(t.Context(), t, contexts.clusters(t, ""), listing{limit: 2})
	check(t, said,
		outcome{diag.SeverityWarning, `Unable to observe the cluster (talosconfig context "a")`},
		outcome{diag.SeverityWarning, `Unable to observe the cluster (talosconfig context "b")`},
		outcome{diag.SeverityWarning, `Unable to observe the cluster (talosconfig context "c")`},
		outcome{diag.SeverityWarning, "No node answered over the Talos API"},
	)

	if !slices.Equal(names, []string{"e = id-of-e"}) {
		t.Errorf("listed %v", names)
	}
}

func TestList_SeveralContextsOfOneClusterAppearOnce(t *testing.T) {
	for own, want := range map[string]string{"": "admin", "reader": "reader"} {
		contexts := fleet("admin", "north", "reader")
		contexts["admin"].id, contexts["reader"].id = "id-of-both", "id-of-both"

		names, _, said := query(t.Context(), t, contexts.clusters(t, own), listing{bare: true})
		check(t, said, outcome{diag.SeverityWarning, `The contexts "admin", "reader" reach cluster id-of-both. It is listed once, from "` + want + `".`})

		if !slices.Equal(names, []string{want + " = id-of-both", "north = id-of-north"}) {
			t.Errorf("listed %v, want %s", names, want)
		}
	}
}

func TestList_OfChosenContexts(t *testing.T) {
	contexts := fleet("east", "north", "south")

	names, _, said := query(t.Context(), t, contexts.clusters(t, "north"), listing{contexts: []string{"south", "north"}, bare: true})
	check(t, said)

	if !slices.Equal(names, []string{"north = id-of-north", "south = id-of-south"}) || contexts["east"].dialled > 0 {
		t.Errorf("listed %v", names)
	}

	_, _, said = query(t.Context(), t, contexts.clusters(t, "north"), listing{contexts: []string{"south", "west"}})
	check(t, said, outcome{diag.SeverityError, `contexts names "west", which is no context of the talosconfig: there are "east", "north", "south".`})
}

// TestList_OfTheOneClusterOfCredentials: where there are no contexts there is one cluster.
func TestList_OfTheOneClusterOfCredentials(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	clusters := fake.clusters(t)
	clusters.Access.From = &connection.CredentialsSource{Namespace: "tenants", Name: "prod"}

	names, models, said := query(t.Context(), t, clusters, listing{})
	check(t, said)

	if !slices.Equal(names, []string{"cluster of tenants/prod = cluster-a"}) || !models[0].Context.IsNull() {
		t.Errorf("listed %v with context %s", names, models[0].Context)
	}

	_, _, said = query(t.Context(), t, clusters, listing{contexts: []string{"north"}})
	check(t, said, outcome{diag.SeverityError, "one cluster, without contexts"})
}

func TestList_StopsWhereEnoughIsListed(t *testing.T) {
	contexts := fleet("east", "north", "south")

	names, _, said := query(t.Context(), t, contexts.clusters(t, ""), listing{limit: 2})
	check(t, said)

	if len(names) != 2 {
		t.Errorf("listed %v", names)
	}
}

func TestList_InterruptedIsAnError(t *testing.T) {
	contexts := fleet("east", "north")
	contexts["east"].down = context.Canceled

	interrupted, cancel := context.WithCancel(t.Context())
	cancel()

	names, _, said := query(interrupted, t, contexts.clusters(t, ""), listing{})
	check(t, said, outcome{diag.SeverityError, "Interrupted before it was done"})

	if len(names) > 0 {
		t.Errorf("listed %v", names)
	}
}

func TestList_WithoutCredentialsIsAnError(t *testing.T) {
	t.Setenv("TALOSCONFIG", "")

	_, _, said := query(t.Context(), t, connection.NewClusters(&connection.Settings{Dial: connection.Dial}, connection.Credentials{}), listing{})
	check(t, said, outcome{diag.SeverityError, "Missing credentials for the Talos API"})
}
