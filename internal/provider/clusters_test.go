// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
)

func TestClusters_ConcurrentOperationsShareOneConnection(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	clusters := fake.clusters(t)

	first, releaseFirst, err := clusters.Connect(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	second, releaseSecond, err := clusters.Connect(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	if first != second || fake.dialled != 1 {
		t.Errorf("%d connections were made", fake.dialled)
	}

	_, releaseOther, err := clusters.Connect(t.Context(), "another")
	if err != nil {
		t.Fatal(err)
	}

	if fake.dialled != 2 {
		t.Error("another context shares the connection")
	}

	releaseFirst()
	releaseFirst()

	if fake.closed != 0 {
		t.Error("the connection was closed while it is in use")
	}

	releaseSecond()
	releaseOther()

	if fake.closed != 2 {
		t.Errorf("%d connections were closed, want 2", fake.closed)
	}
}

func TestClusters_PlanUsesWhatTheRefreshJustSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := threeNodes("1.13.4", "1.34.2")
		clusters := fake.clusters(t)
		state := stored(t, fake, "1.13.4", "")
		before := fake.dialled

		_, diagnostics := read(t.Context(), t, clusters, state)
		wellDone(t, diagnostics)
		_, diagnostics = planned(t, clusters, state, state)
		wellDone(t, diagnostics)

		if got := fake.dialled - before; got != 1 {
			t.Errorf("refresh and plan looked %d times, want once", got)
		}

		time.Sleep(10 * time.Second)

		_, diagnostics = planned(t, clusters, state, state)
		wellDone(t, diagnostics)

		if got := fake.dialled - before; got != 2 {
			t.Errorf("a plan trusted an old look: %d looks", got)
		}

		_, diagnostics = apply(t, clusters, state, desired("1.13.4", ""))
		wellDone(t, diagnostics)

		// The rig keeps no private state, by which the resource would be known.
		clusters.Claims = connection.NewClaims()

		before = fake.dialled
		_, diagnostics = planned(t, clusters, state, state)
		wellDone(t, diagnostics)

		if got := fake.dialled - before; got != 1 {
			t.Errorf("a plan after an upgrade looked %d times, want once", got)
		}
	})
}

// TestClaim_SecondResourceIsRefused: whether the first one is done or not,
// and whatever came of it.
func TestClaim_SecondResourceIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*fakeCluster)
		first  diag.Severity
	}{
		"after the first is done": {func(*fakeCluster) {}, diag.SeverityInvalid},
		"after the first failed":  {func(f *fakeCluster) { f.nodes[1].talos, f.roles = "1.13.0", []string{"os:reader"} }, diag.SeverityError},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			prior := stored(t, fake, "1.13.4", "")
			test.change(fake)

			clusters := fake.clusters(t)

			_, diagnostics := create(t, clusters, inContext("north"))
			if diagnostics.HasError() != (test.first == diag.SeverityError) {
				t.Fatalf("the first: %v", diagnostics)
			}

			got, diagnostics := create(t, clusters, inContext("south"))
			check(t, diagnostics, outcome{diag.SeverityError, "South is cluster cluster-a: another talosupgrade_cluster resource has upgraded it in this apply, or is upgrading it. Nothing was touched for this one.\n\nKeep one resource per cluster"})

			if strings.Contains(diagnostics[0].Detail(), "run apply again") {
				t.Error("another apply is no cure")
			}

			if got != nil {
				t.Error("something was stored, which taints the resource")
			}

			after, diagnostics := apply(t, clusters, prior, desired("1.13.4", ""))
			check(t, diagnostics, outcome{diag.SeverityError, "another resource does"})

			if !stateOf(t, after).Raw.Equal(stateOf(t, prior).Raw) {
				t.Error("the state of a resource that was refused changed")
			}
		})
	}
}

// TestClaim_SecondResourceIsAWarningAtPlan: where contexts tell the two apart.
func TestClaim_SecondResourceIsAWarningAtPlan(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")
	clusters := fake.clusters(t)

	for _, name := range []string{"north", "north", "other cluster", "south", "north"} {
		fake.id = "cluster-a"
		if name == "other cluster" {
			fake.id = "cluster-b"
		}

		want := []outcome{{diag.SeverityWarning, "one control plane"}, {diag.SeverityWarning, "Rolling upgrade"}}
		if name == "south" {
			want = append([]outcome{{diag.SeverityWarning, "another talosupgrade_cluster resource is for this cluster, which it reaches through north"}}, want...)
		}

		_, diagnostics := planned(t, clusters, nil, inContext(name))
		check(t, diagnostics, want...)
	}
}

// TestClaim_SecondResourceWithAnotherTargetIsAnErrorAtPlan: also where one of the two is at its
// target already, and would be at work against the other with the next apply.
func TestClaim_SecondResourceWithAnotherTargetIsAnErrorAtPlan(t *testing.T) {
	for name, targets := range map[string][2]*clusterModel{
		"another Talos":            {desired("1.13.4", ""), desired("1.13.3", "")},
		"Talos that runs":          {desired("1.13.0", ""), desired("1.13.3", "")},
		"each manages one product": {desired("1.13.4", ""), desired("", "1.34.2")},
		"another Kubernetes":       {desired("1.13.4", "1.34.2"), desired("1.13.4", "1.34.3")},
	} {
		t.Run(name, func(t *testing.T) {
			clusters := threeNodes("1.13.0", "1.34.2").clusters(t)

			if _, diagnostics := planned(t, clusters, nil, targets[0]); diagnostics.HasError() {
				t.Fatalf("the first: %v", diagnostics)
			}

			_, diagnostics := planned(t, clusters, nil, targets[1])
			if diagnostics.ErrorsCount() != 1 {
				t.Fatalf("the second: %v", diagnostics)
			}

			if detail := told.Noted(t, diagnostics).Errors()[0].Detail(); !strings.Contains(detail, "another talosupgrade_cluster resource of the same provider block brings it to") || !strings.Contains(detail, "Keep one resource per cluster.") {
				t.Errorf("it says %s", detail)
			}
		})
	}
}

func TestClaim_TwoClustersGoAheadTogether(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	clusters := fake.clusters(t)

	_, diagnostics := create(t, clusters, inContext("north"))
	check(t, diagnostics)

	fake.id = "cluster-b"

	_, diagnostics = create(t, clusters, inContext("south"))
	check(t, diagnostics)
}

// TestClaim_ResourceOfAnotherClusterClaimsNothing: it is refused itself, and must not
// be in the way of the one that is right.
func TestClaim_ResourceOfAnotherClusterClaimsNothing(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "")
	fake.id = "cluster-b"

	clusters := fake.clusters(t)

	_, diagnostics := apply(t, clusters, prior, prior)
	check(t, diagnostics, outcome{diag.SeverityError, "The state belongs to cluster cluster-a, this provider reaches cluster-b"})

	_, diagnostics = create(t, clusters, desired("1.13.4", ""))
	check(t, diagnostics)
}

// TestClaim_ClustersWithoutIDAreToldApartByName: the lease in the cluster keeps the
// others away.
func TestClaim_ClustersWithoutIDAreToldApartByName(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	fake.id, fake.idErr = "", cluster.ErrUnreachable

	clusters := fake.clusters(t)

	for _, name := range []string{"north", "south"} {
		if _, diagnostics := create(t, clusters, inContext(name)); diagnostics.HasError() {
			t.Errorf("%s: %v", name, diagnostics)
		}
	}

	_, diagnostics := create(t, clusters, inContext("south"))
	check(t, diagnostics, outcome{diag.SeverityError, "South is cluster south: another"})
}

// inContext is the plan of a resource that reaches its cluster through a context.
func inContext(name string) *clusterModel {
	model := desired("1.13.4", "")
	model.Context = types.StringValue(name)

	return model
}

// kept is the private state of a resource.
type kept map[string][]byte

func (k *kept) GetKey(_ context.Context, key string) ([]byte, diag.Diagnostics) {
	if k == nil {
		return nil, nil
	}

	return (*k)[key], nil
}

func (k *kept) SetKey(_ context.Context, key string, value []byte) diag.Diagnostics {
	(*k)[key] = value

	return nil
}

func TestClaim_IsKeptForTheLifeOfTheResource(t *testing.T) {
	first, second := &kept{}, &kept{}

	if unnamed, diagnostics := connection.ClaimantOf(t.Context(), first); unnamed != "" || len(diagnostics) > 0 || len(*first) > 0 {
		t.Errorf("before it has a name it is %q: %v", unnamed, diagnostics)
	}

	name, diagnostics := connection.ClaimantIn(t.Context(), first)
	wellDone(t, diagnostics)

	if again, _ := connection.ClaimantIn(t.Context(), first); again != name || name == "" {
		t.Errorf("%q became %q", name, again)
	}

	if known, _ := connection.ClaimantOf(t.Context(), first); known != name {
		t.Errorf("%q is known as %q", name, known)
	}

	if other, _ := connection.ClaimantIn(t.Context(), second); other == name {
		t.Error("two resources share a claim")
	}

	if anonymous, _ := connection.ClaimantIn(t.Context(), (*kept)(nil)); anonymous == "" || anonymous == name {
		t.Errorf("without a private state it is %q", anonymous)
	}
}

// TestClaim_ReplacedResourceIsCreatedAgain: Terraform deletes it first.
func TestClaim_ReplacedResourceIsCreatedAgain(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	clusters := fake.clusters(t)
	prior := stored(t, fake, "1.13.4", "")

	resp := resource.DeleteResponse{State: stateOf(t, prior)}
	(&clusterResource{clusters: clusters}).Delete(t.Context(), resource.DeleteRequest{State: stateOf(t, prior)}, &resp)
	check(t, resp.Diagnostics)

	_, diagnostics := create(t, clusters, desired("1.13.4", ""))
	check(t, diagnostics)
}
