// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// annotated is an object of an operator with the annotations.
func annotated(annotations map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster",
		"metadata": map[string]any{"namespace": "tenant-a", "name": "prod", "resourceVersion": "1", "annotations": annotations},
		"spec":     map[string]any{"data": map[string]any{"clusterId": "c-1"}},
	}
}

// TestWhatTheOperatorDoesIsAWarningAtPlan: it may be done by the time of the apply.
func TestWhatTheOperatorDoesIsAWarningAtPlan(t *testing.T) {
	advice := outcome{diag.SeverityWarning, "one control plane"}
	roll := outcome{diag.SeverityWarning, "Rolling upgrade of 3 of 3 nodes"}
	refused := func(text string) []outcome { return []outcome{{diag.SeverityWarning, text}, advice, roll} }
	denied := fmt.Errorf("%w: not allowed to get kubernetesclusters", cluster.ErrDenied)

	for name, test := range map[string]struct {
		home *fakeHome
		mode string
		want []outcome
	}{
		"nothing": {&fakeHome{object: annotated(nil)}, "", []outcome{advice, roll}},
		"an upgrade that was asked for": {
			&fakeHome{object: annotated(map[string]any{"upgrade.vitistack.io/talos-target": "1.13.0"})}, modeDirect,
			refused("the operator of KubernetesCluster tenant-a/prod is asked to bring Talos to 1.13.0"),
		},
		"an upgrade that goes on": {
			&fakeHome{object: annotated(map[string]any{"upgrade.vitistack.io/talos-status": "in-progress"})}, "",
			refused("While planning, an apply would have been refused"),
		},
		"no object":     {&fakeHome{err: cluster.ErrNotFound}, "", []outcome{{diag.SeverityWarning, "KubernetesCluster tenant-a/prod cannot be read"}, roll}},
		"no permission": {&fakeHome{err: denied}, "", []outcome{{diag.SeverityWarning, "not allowed to get kubernetesclusters"}, roll}},
		"nothing answers": {
			&fakeHome{err: cluster.ErrUnreachable}, "", []outcome{{diag.SeverityWarning, "(management in the provider block)"}, roll},
		},
		"delegated":              {&fakeHome{object: annotated(nil)}, modeDelegate, []outcome{advice, {diag.SeverityWarning, "The operator of KubernetesCluster tenant-a/prod is asked for this"}}},
		"delegated to no object": {&fakeHome{err: cluster.ErrNotFound}, modeDelegate, refused("While planning, an apply would have been refused")},
	} {
		for _, managed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, managed %t", name, managed), func(t *testing.T) {
				fake := threeNodes("1.12.6", "1.34.2")
				fake.home, fake.managed = test.home, managed

				plan := desired("1.13.4", "")
				plan.PublishTo, plan.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), textValue(test.mode)

				_, diagnostics := planned(t, fake.clusters(t), nil, plan)
				check(t, diagnostics, test.want...)
			})
		}
	}
}

// TestManagementClusterOfNoUseIsAnErrorAtPlan: waiting does not make a kubeconfig.
func TestManagementClusterOfNoUseIsAnErrorAtPlan(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.unmanaged = fmt.Errorf("%w: provider attribute management.kubeconfig_path: no such file", errUnusable)

	plan := desired("1.13.4", "")
	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics, outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})

	plan.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	clusters := fake.clusters(t)

	_, diagnostics = planned(t, clusters, nil, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "management.kubeconfig_path: no such file"})

	if located, is := diagnostics[0].(diag.DiagnosticWithPath); !is || located.Path().String() != attrPublishTo {
		t.Errorf("does not point at %s: %v", attrPublishTo, diagnostics[0])
	}

	_, diagnostics = create(t, clusters, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "management.kubeconfig_path: no such file"})
}

// TestObjectIsLookedAtOnce: an object that is misspelled shows where it is named, and
// one that was named before is no reason to say anything.
func TestObjectIsLookedAtOnce(t *testing.T) {
	named := publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	other := publishedTo("", "KubernetesCluster", "tenant-a", "staging")
	none := types.ObjectNull(publishToTypes())
	unread := []outcome{{diag.SeverityWarning, "KubernetesCluster tenant-a/prod cannot be read: permission denied"}}

	for name, test := range map[string]struct {
		before, after types.Object
		err           error
		want          []outcome
		asked         int32
	}{
		"the default object":         {none, none, cluster.ErrDenied, nil, 0},
		"as before":                  {named, named, nil, nil, 1},
		"as before, unreadable":      {named, named, cluster.ErrDenied, nil, 1},
		"for the first time":         {none, named, cluster.ErrDenied, unread, 1},
		"another one":                {other, named, cluster.ErrDenied, unread, 1},
		"one that can be read":       {none, named, nil, nil, 1},
		"back to the default object": {named, none, cluster.ErrDenied, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.12.6", "1.34.2")
			fake.home = &fakeHome{object: annotated(map[string]any{"upgrade.vitistack.io/do-not-reconcile": "true"}), err: test.err}

			prior := stored(t, fake, "1.12.6", "")
			prior.PublishTo = test.before
			plan := desired("1.12.6", "")
			plan.PublishTo = test.after

			got, diagnostics := planned(t, fake.clusters(t), prior, plan)
			check(t, diagnostics, test.want...)

			if asked := fake.home.asked.Load(); asked != test.asked {
				t.Errorf("the object was read %d times, want %d", asked, test.asked)
			}

			if changes := !test.before.Equal(test.after); got.Status.IsUnknown() != changes {
				t.Errorf("the plan changes something: %t, want %t", got.Status.IsUnknown(), changes)
			}
		})
	}
}

func TestDelegationWithoutAKubernetesAPIIsRefused(t *testing.T) {
	plan := desired("1.13.4", "")
	plan.PublishTo, plan.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), types.StringValue(modeDelegate)

	got, diagnostics := create(t, threeNodes("1.12.6", "1.34.2").clusters(t), plan)
	check(t, diagnostics, outcome{diag.SeverityError, "no connection to the Kubernetes API, which holds KubernetesCluster tenant-a/prod"})

	if got != nil {
		t.Error("something was stored")
	}
}

// TestDestroyLeavesTheObjectOfOthers says so before it is done.
func TestDestroyLeavesTheObjectOfOthers(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	state := stored(t, fake, "1.13.4", "")
	state.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	fake.home = &fakeHome{err: cluster.ErrDenied}

	_, diagnostics := planned(t, fake.clusters(t), state, nil)
	check(t, diagnostics, outcome{diag.SeverityWarning, "KubernetesCluster tenant-a/prod stays as it is"})

	resp := resource.DeleteResponse{State: stateOf(t, state)}
	(&clusterResource{clusters: fake.clusters(t)}).Delete(t.Context(), resource.DeleteRequest{State: stateOf(t, state)}, &resp)
	check(t, resp.Diagnostics)

	if asked := fake.home.asked.Load(); asked != 0 {
		t.Errorf("a destroy touched the object %d times", asked)
	}
}

// TestPlanOfADelegationShowsNoManifests: Talos renders them for the operator.
func TestPlanOfADelegationShowsNoManifests(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.home = &fakeHome{object: annotated(nil)}
	fake.changes = []cluster.ManifestChange{{Object: "DaemonSet kube-system/kube-flannel"}}

	plan := desired("1.13.4", "")
	plan.PublishTo, plan.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), types.StringValue(modeDelegate)

	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	for _, diagnostic := range diagnostics {
		if strings.Contains(diagnostic.Detail(), "anifest") {
			t.Errorf("%s\n%s", diagnostic.Summary(), diagnostic.Detail())
		}
	}

	if fake.inspected.Load() != 0 {
		t.Errorf("the cluster was inspected %d times", fake.inspected.Load())
	}
}
