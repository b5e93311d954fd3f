// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// create runs Create on a plan.
func create(t *testing.T, clusters *clusters, plan *clusterModel) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	proposed := stateOf(t, plan)
	resp := resource.CreateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}

	(&clusterResource{clusters: clusters}).Create(t.Context(), resource.CreateRequest{Plan: tfsdk.Plan(proposed)}, &resp)

	return modelOf(t, resp.State), noted(t, resp.Diagnostics)
}

// apply runs Update from a prior state to a plan.
func apply(t *testing.T, clusters *clusters, prior, plan *clusterModel) (*clusterModel, diag.Diagnostics) {
	t.Helper()

	req := resource.UpdateRequest{State: stateOf(t, prior), Plan: tfsdk.Plan(stateOf(t, plan))}
	resp := resource.UpdateResponse{State: stateOf(t, prior), Identity: identityOf(t, prior)}

	(&clusterResource{clusters: clusters}).Update(t.Context(), req, &resp)

	return modelOf(t, resp.State), noted(t, resp.Diagnostics)
}

func TestCreateOnAConvergedClusterStoresWhatRuns(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")

	got, diagnostics := create(t, fake.clusters(t), desired("v1.13.4", ""))
	check(t, diagnostics)

	want := stored(t, fake, "1.13.4", "")
	if got.ID.ValueString() != "cluster-a" || !got.Nodes.Equal(want.Nodes) || !got.Status.Equal(want.Status) {
		t.Errorf("got %s, %s, %s", got.ID, got.Status, got.Nodes)
	}
}

func TestCreateThatIsRefusedStoresNothing(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.roles = []string{"os:reader"}

	got, diagnostics := create(t, fake.clusters(t), desired("1.13.4", ""))
	check(t, diagnostics, outcome{diag.SeverityError, "Terraform stores nothing of this resource"})

	if got != nil {
		t.Error("something was stored, which taints the resource")
	}
}

func TestUpdateThatIsRefusedKeepsTheDesiredVersionsAndStoresWhatRuns(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	prior := stored(t, fake, "1.12.6", "")
	fake.nodes[1].talos = "1.13.4"
	fake.nodes[2].unreachable = cluster.ErrUnreachable

	plan := desired("1.13.4", "")
	plan.ID = prior.ID

	got, diagnostics := apply(t, fake.clusters(t), prior, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "worker-1"})

	if got.TalosVersion.ValueString() != "1.12.6" {
		t.Errorf("talos_version became %s: the work would be lost", got.TalosVersion)
	}

	nodes := map[string]nodeModel{}
	wellDone(t, got.Nodes.ElementsAs(t.Context(), &nodes, false))

	if nodes["worker-0"].TalosVersion.ValueString() != "1.13.4" || nodes["worker-1"].TalosVersion.ValueString() != "1.12.6" {
		t.Errorf("nodes in state: %s", got.Nodes)
	}

	if got.Status.IsUnknown() || !stateOf(t, got).Raw.IsFullyKnown() {
		t.Error("unknown values are left in state")
	}
}

func TestUpdateOutOfReachKeepsTheState(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	prior := stored(t, fake, "1.12.6", "")
	fake.down = cluster.ErrUnreachable

	plan := desired("1.13.4", "")
	plan.ID = prior.ID

	got, diagnostics := apply(t, fake.clusters(t), prior, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "unreachable"})

	if !stateOf(t, got).Raw.Equal(stateOf(t, prior).Raw) {
		t.Error("the state changed")
	}
}

func TestUpdateOfAnotherClusterIsRefused(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	prior := stored(t, fake, "1.12.6", "")
	fake.id = "cluster-b"

	plan := desired("1.13.4", "")
	plan.ID = prior.ID

	got, diagnostics := apply(t, fake.clusters(t), prior, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "cluster-b"})

	if !stateOf(t, got).Raw.Equal(stateOf(t, prior).Raw) {
		t.Error("the state changed")
	}
}

func TestImport(t *testing.T) {
	for name, test := range map[string]struct {
		id   string
		want []outcome
	}{
		"current":         {"current", nil},
		"by ID":           {"cluster-a", nil},
		"with context":    {"prod/current", nil},
		"another cluster": {"cluster-b", []outcome{{diag.SeverityError, `asks for cluster "cluster-b", but this provider reaches cluster "cluster-a"`}}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			fake.nodes[1].talos = "1.13.0"

			resp := resource.ImportStateResponse{State: stateOf(t, nil), Identity: identityOf(t, nil)}
			(&clusterResource{clusters: fake.clusters(t)}).ImportState(t.Context(), resource.ImportStateRequest{ID: test.id}, &resp)
			check(t, noted(t, resp.Diagnostics), test.want...)

			if len(test.want) > 0 {
				return
			}

			got := modelOf(t, resp.State)
			if got.TalosVersion.ValueString() != "1.13.0" || got.KubernetesVersion.ValueString() != "1.34.2" {
				t.Errorf("imported %s and %s, want the lowest that run", got.TalosVersion, got.KubernetesVersion)
			}

			if got.ID.ValueString() != "cluster-a" || !resp.State.Raw.IsFullyKnown() {
				t.Errorf("imported %s", resp.State.Raw)
			}
		})
	}
}
