// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/compat"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attribute"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/attrname"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/connection"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/publication"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/releases"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording/told"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestDelegation_StatusAfterOneThatFailed: it failed in the half that the operator was
// asked for last, whatever the error is made of, and where it was asked for nothing
// the cluster is as it was.
func TestDelegation_StatusAfterOneThatFailed(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "1.34.2")

	seen, err := fake.clusters(t).Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	planned := desired("1.13.5", "1.35.0")

	for name, test := range map[string]struct {
		err               error
		asked             version.Product
		phase             string
		talos, kubernetes string
	}{
		"somebody else has asked it":            {&say.Failure{Err: say.ErrOperator}, "", protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusCompleted},
		"refused":                               {&say.Failure{Err: say.ErrBlocked}, "", protocol.PhaseReady, protocol.StatusCompleted, protocol.StatusCompleted},
		"Talos":                                 {&say.Failure{Err: say.ErrOperator}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
		"Kubernetes before more of Talos":       {&say.Failure{Err: say.ErrOperator}, version.Kubernetes, protocol.PhaseUpgradeFailed, protocol.StatusCompleted, protocol.StatusFailed},
		"refused after the first leg":           {&say.Failure{Err: say.ErrBlocked}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
		"a gate after the first leg":            {&say.Failure{Err: errors.Join(say.ErrNotBegun, say.ErrGate)}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
		"a lease that was lost while it was at": {&say.Failure{Err: say.ErrLeaseLost}, version.Talos, protocol.PhaseUpgradeFailed, protocol.StatusFailed, protocol.StatusCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			failed := (&requestRecorder{last: test.asked}).failed(test.err)

			got := stopped(*prior, *planned, seen.Observation, "Unable to bring the cluster there", failed)
			if got.Phase != test.phase || got.Talos.Status != test.talos || got.Kubernetes.Status != test.kubernetes {
				t.Errorf("phase %s, talos %s, kubernetes %s", got.Phase, got.Talos.Status, got.Kubernetes.Status)
			}

			if test.asked != "" && got.Message != "Unable to bring the cluster there." {
				t.Errorf("the message is %q", got.Message)
			}
		})
	}
}

// TestDelegation_FailureBeforeKubernetesIsOneOfKubernetes: Talos has arrived everywhere, and a gate keeps Kubernetes from
// being asked for.
func TestDelegation_FailureBeforeKubernetesIsOneOfKubernetes(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	prior := stored(t, fake, "1.13.4", "1.34.2")

	seen, err := fake.clusters(t).Observe(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}

	failed := (&requestRecorder{last: version.Talos}).failed(&say.Failure{Err: errors.Join(say.ErrNotBegun, say.ErrGate)})

	got := stopped(*prior, *desired("1.13.4", "1.35.0"), seen.Observation, "Unable to bring the cluster there", failed)
	if got.Talos.Status != protocol.StatusCompleted || got.Kubernetes.Status != protocol.StatusFailed {
		t.Errorf("talos %s, kubernetes %s", got.Talos.Status, got.Kubernetes.Status)
	}
}

// TestDelegation_IsTakenBackFromAnOperatorThatIsSilent fails in the end, is remembered, and
// what was asked for is taken back.
func TestDelegation_IsTakenBackFromAnOperatorThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := threeNodes("1.12.6", "1.34.2")
		board := &noticeboard{annotations: map[string]any{}}
		held := &leased{fakeCluster: fake}

		prior := stored(t, fake, "1.12.6", "")
		prior.PublishTo, prior.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), types.StringValue(modeDelegate)
		plan := *prior
		plan.TalosVersion = types.StringValue("1.12.7")

		got, diagnostics := apply(t, beside(held, board), prior, &plan)
		check(t, diagnostics, outcome{diag.SeverityError, "did not react"})

		if phase := text(got.Status, "phase"); phase != protocol.PhaseUpgradeFailed || earlierStatus(got.Status, "talos") != protocol.StatusFailed {
			t.Errorf("stored %s", got.Status)
		}

		if target, stands := board.annotations["upgrade.vitistack.io/talos-target"]; stands {
			t.Errorf("it is still asked for %v", target)
		}

		// Somebody else has asked it meanwhile: nothing is asked for.
		board.annotations["upgrade.vitistack.io/kubernetes-target"] = "1.35.0"

		got, diagnostics = apply(t, beside(held, board), prior, &plan)
		check(t, diagnostics, outcome{diag.SeverityError, "1.35.0"})

		if phase := text(got.Status, "phase"); phase != protocol.PhaseReady {
			t.Errorf("stored %s, although nothing was done", got.Status)
		}
	})
}

const (
	leftRun  = cluster.RunPrefix + "OF2Z6V"
	leftHold = "upgrade.vitistack.io/do-not-reconcile"
)

// TestPublication_LeftByAnEarlierApplyIsWork: without a change in the plan nothing would be
// applied, and the operator be held for good.
func TestPublication_LeftByAnEarlierApplyIsWork(t *testing.T) {
	const talosTarget = "upgrade.vitistack.io/talos-target"

	held := "KubernetesCluster tenant-a/prod is still held by " + leftRun

	for name, test := range map[string]struct {
		annotations  map[string]any
		direct, work string
	}{
		"nothing":             {nil, "", ""},
		"a hold":              {map[string]any{leftHold: leftRun}, held, held},
		"that of a person":    {map[string]any{leftHold: "per@example.com"}, "", ""},
		"an empty one":        {map[string]any{leftHold: ""}, "", ""},
		"other words":         {map[string]any{"upgrade.vitistack.io/talos-status": "failed", "upgrade.vitistack.io/talos-current": "1.12.0"}, "", ""},
		"an upgrade of it":    {map[string]any{"upgrade.vitistack.io/talos-status": "in-progress"}, "", ""},
		"a dead run at work":  {map[string]any{leftHold: leftRun, "upgrade.vitistack.io/talos-status": "in-progress"}, "says that an upgrade is going on", held},
		"its sign of life":    {map[string]any{leftHold: leftRun, protocol.KeyLastUpdate: "2026-03-01T10:00:00Z"}, "(last sign of life: 2026-03-01T10:00:00Z)", held},
		"by hand":             {map[string]any{leftHold: leftRun}, "By hand: kubectl annotate", "do-not-reconcile-"},
		"a target":            {map[string]any{talosTarget: "v1.13.4"}, "", "still asks its operator for Talos 1.13.4, which is reached: it may begin again. By hand:"},
		"a target at work on": {map[string]any{talosTarget: "v1.13.4", "upgrade.vitistack.io/talos-status": "in-progress"}, "", ""},
		"another target":      {map[string]any{talosTarget: "1.13.5"}, "", ""},
		"one that is not ours to ask for": {
			map[string]any{"upgrade.vitistack.io/kubernetes-target": "1.34.2"}, "", "",
		},
	} {
		for mode, says := range map[string]string{modeDirect: test.direct, modeDelegate: test.work} {
			t.Run(fmt.Sprintf("%s, %s", name, mode), func(t *testing.T) {
				fake := threeNodes("1.13.4", "1.34.2")
				fake.home, fake.managed = &fakeHome{object: annotated(test.annotations)}, true

				state := stored(t, fake, "1.13.4", "")
				state.PublishTo, state.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), attribute.TextValue(mode)

				got, diagnostics := planned(t, fake.clusters(t), state, state)
				if work := got.Status.IsUnknown() && got.Nodes.IsUnknown(); work != (says != "") {
					t.Errorf("the plan changes something: %t", work)
				}

				if says == "" {
					check(t, diagnostics)

					return
				}

				check(t, diagnostics, outcome{diag.SeverityWarning, says})

				if summary := diagnostics[0].Summary(); !strings.HasPrefix(summary, "An earlier apply could not end properly") {
					t.Errorf("the summary is %q", summary)
				}
			})
		}
	}
}

// TestPublication_ThatCannotBeEndedIsNoWork: a plan would show it for ever.
func TestPublication_ThatCannotBeEndedIsNoWork(t *testing.T) {
	leaving := annotated(nil)
	leaving["metadata"] = map[string]any{"annotations": map[string]any{leftHold: leftRun}, "deletionTimestamp": "2026-03-01T10:00:00Z"}

	plain := annotated(map[string]any{leftHold: leftRun})
	plain["apiVersion"], plain["kind"] = "v1", "ConfigMap"

	for name, test := range map[string]struct {
		kind   string
		object map[string]any
		err    error
	}{
		"an object that is being deleted": {"KubernetesCluster", leaving, nil},
		"an object on which nobody acts":  {"ConfigMap", plain, nil},
		"an object that cannot be read":   {"KubernetesCluster", nil, cluster.ErrUnreachable},
		"an object that is not there":     {"KubernetesCluster", nil, cluster.ErrNotFound},
		"a management cluster of no use":  {"KubernetesCluster", nil, connection.ErrCredentialsUnusable},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			fake.home, fake.managed = &fakeHome{object: test.object, err: test.err}, true

			if name == "a management cluster of no use" {
				fake.unmanaged = test.err
			}

			state := stored(t, fake, "1.13.4", "")
			state.PublishTo = publishedTo("", test.kind, "tenant-a", "prod")

			got, diagnostics := planned(t, fake.clusters(t), state, state)
			check(t, diagnostics)

			if got.Status.IsUnknown() {
				t.Error("the plan changes something")
			}
		})
	}
}

// TestPublication_OfATargetAloneIsNotLeftOver: it cannot be taken back, and its operator may
// be slow to notice that it is reached.
func TestPublication_OfATargetAloneIsNotLeftOver(t *testing.T) {
	report := cluster.OperatorReport{Talos: cluster.OperatorProduct{Target: "1.13.4"}, Kubernetes: cluster.OperatorProduct{Target: "1.35.0"}}
	target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.0")}

	for kind, want := range map[string]int{"KubernetesCluster": 2, "TalosControlPlane": 0} {
		plan := desired("1.13.4", "1.35.0")
		plan.PublishTo, plan.Mode = publishedTo("", kind, "tenant-a", "prod"), types.StringValue(modeDelegate)

		if left := plan.publication().Left(report, target); len(left) != want {
			t.Errorf("%s: %q", kind, left)
		}
	}
}

// TestPublication_PlanDoesNotWaitForTheManagementCluster for longer than a moment.
func TestPublication_PlanDoesNotWaitForTheManagementCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := threeNodes("1.13.4", "1.34.2")
		fake.home, fake.managed = &fakeHome{away: true}, true

		state := stored(t, fake, "1.13.4", "")
		state.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")

		began := time.Now()

		_, diagnostics := planned(t, fake.clusters(t), state, state)
		check(t, diagnostics)

		if took := time.Since(began); took != unchangedTimeout {
			t.Errorf("it took %s, want %s", took, unchangedTimeout)
		}
	})
}

// TestPublication_LeftByAnEarlierApplyIsEnded: the hold is gone, and what the object says is
// true, in a cluster in which nothing is to be upgraded.
func TestPublication_LeftByAnEarlierApplyIsEnded(t *testing.T) {
	fake := threeNodes("1.13.4", "1.34.2")
	board := &noticeboard{annotations: map[string]any{
		leftHold: leftRun, protocol.KeyTalosStatus: "in-progress", protocol.KeyLastUpdate: "2026-03-01T10:00:00Z", protocol.KeyTalosCurrent: "1.12.0",
	}}
	clusters := beside(&leased{fakeCluster: fake}, board)

	state := stored(t, fake, "1.13.4", "")
	state.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")

	plan, diagnostics := planned(t, clusters, state, state)
	check(t, diagnostics, outcome{diag.SeverityWarning, leftRun})

	got, diagnostics := apply(t, clusters, state, plan)
	check(t, diagnostics, outcome{diag.SeverityWarning, "in the Secret of KubernetesCluster tenant-a/prod up to date: permission denied"})

	if hold, stands := board.annotations[leftHold]; stands {
		t.Errorf("the operator is still held by %v", hold)
	}

	if status, current := board.annotations[protocol.KeyTalosStatus], board.annotations[protocol.KeyTalosCurrent]; status != "completed" || current != "1.13.4" {
		t.Errorf("the object says %v, running %v", status, current)
	}

	// The rig keeps no private state, by which the resource would be known.
	clusters.Claims = connection.NewClaims()

	_, diagnostics = planned(t, clusters, got, got)
	check(t, diagnostics)
}

// TestPublication_DefaultObjectThatIsNamedIsMadeAndRemoved is the one that is made where it is missing,
// and removed by a destroy.
func TestPublication_DefaultObjectThatIsNamedIsMadeAndRemoved(t *testing.T) {
	const missing, stays = "ConfigMap kube-system/talosupgrade cannot be read", "ConfigMap kube-system/talosupgrade stays as it is"

	for name, test := range map[string]struct {
		managed bool
		says    bool
	}{
		"in the cluster itself":   {false, false},
		"in a management cluster": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			fake := threeNodes("1.13.4", "1.34.2")
			fake.home, fake.managed = &fakeHome{err: cluster.ErrNotFound}, test.managed

			state := stored(t, fake, "1.13.4", "")
			plan := *state
			plan.PublishTo = publishedTo("v1", "ConfigMap", "kube-system", "talosupgrade")

			clusters := fake.clusters(t)
			if test.managed {
				clusters.Access.Management = &connection.ManagementAccess{}
			}

			_, diagnostics := planned(t, clusters, state, &plan)
			if said := strings.Contains(saidIn(diagnostics), missing); said != test.says {
				t.Errorf("at plan: %s", saidIn(diagnostics))
			}

			plan.TalosVersion = types.StringValue("1.13.5")
			clusters.Claims = connection.NewClaims() // another command

			_, diagnostics = planned(t, clusters, state, &plan)
			if said := strings.Contains(saidIn(diagnostics), missing); said != test.says {
				t.Errorf("at the plan of a roll: %s", saidIn(diagnostics))
			}

			_, diagnostics = planned(t, clusters, &plan, nil)
			if said := strings.Contains(saidIn(diagnostics), stays); said != test.says {
				t.Errorf("at destroy: %s", saidIn(diagnostics))
			}
		})
	}
}

// saidIn is everything that the diagnostics say.
func saidIn(diagnostics diag.Diagnostics) string {
	var text strings.Builder

	for _, diagnostic := range diagnostics {
		text.WriteString(diagnostic.Summary() + "\n" + diagnostic.Detail() + "\n")
	}

	return text.String()
}

// TestPublication_ReleasesWithoutNetworkAreKnownAtOnce: an upgrade announces what is ahead
// with its first word.
func TestPublication_ReleasesWithoutNetworkAreKnownAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		defaults        releases.Defaults
		wantTalosIsJust string
	}{
		"embedded": {releases.Defaults{}, ""},
		"given": {defaults(t, types.StringNull(), providerSourceOf(map[string]tftypes.Value{
			"talos_versions":      tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.13.1"), textOf("1.13.2")}),
			"kubernetes_versions": tftypes.NewValue(tftypes.List{ElementType: tftypes.String}, []tftypes.Value{textOf("1.35.0")}),
		})), "1.13.2"},
	} {
		t.Run(name, func(t *testing.T) {
			known, end := test.defaults.Outlook(t.Context(), "test")
			defer end()

			talos, kubernetes := known.Next(version.MustParse("1.12.0"), version.MustParse("1.34.0"))
			if talos.IsZero() || kubernetes.IsZero() {
				t.Errorf("ahead are %q and %q", talos, kubernetes)
			}

			if test.wantTalosIsJust != "" && talos.String() != test.wantTalosIsJust {
				t.Errorf("ahead is Talos %s, want %s", talos, test.wantTalosIsJust)
			}

			// The same question again, and another one.
			if again, _ := known.Next(version.MustParse("1.12.0"), version.MustParse("1.34.0")); !again.Equal(talos) {
				t.Errorf("asked again: %s", again)
			}

			if newest, _ := known.Next(version.MustParse("1.99.0"), version.MustParse("1.34.0")); !newest.IsZero() {
				t.Errorf("ahead of 1.99.0: %s", newest)
			}
		})
	}
}

// TestPublication_SilentReleaseSourceHoldsNothingUp: what is ahead is only not known then,
// and nobody waits for the source in the end.
func TestPublication_SilentReleaseSourceHoldsNothingUp(t *testing.T) {
	asked := make(chan struct{}, 10)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}

		<-r.Context().Done()

		// A return would be an answer, which a client that gives up may still read.
		panic(http.ErrAbortHandler)
	}))

	defer hanging.Close()

	from := defaults(t, types.StringValue(hanging.URL), providerSourceOf(map[string]tftypes.Value{"talos": textOf("factory")}))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	known, end := from.Outlook(ctx, "test")

	<-asked

	if talos, kubernetes := known.Next(version.MustParse("1.12.0"), version.MustParse("1.34.0")); !talos.IsZero() || kubernetes.IsZero() {
		t.Errorf("ahead are %q and %q, want no Talos and some Kubernetes", talos, kubernetes)
	}

	end()
}

// annotated is an object of an operator with the annotations.
func annotated(annotations map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster",
		"metadata": map[string]any{"namespace": "tenant-a", "name": "prod", "resourceVersion": "1", "annotations": annotations},
		"spec":     map[string]any{"data": map[string]any{"clusterId": "c-1"}},
	}
}

// TestPublication_BusyOperatorIsAWarningAtPlan: it may be done by the time of the apply.
func TestPublication_BusyOperatorIsAWarningAtPlan(t *testing.T) {
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
			refused("An apply would be refused as things stand"),
		},
		"no object":     {&fakeHome{err: cluster.ErrNotFound}, "", []outcome{{diag.SeverityWarning, "KubernetesCluster tenant-a/prod cannot be read"}, roll}},
		"no permission": {&fakeHome{err: denied}, "", []outcome{{diag.SeverityWarning, "not allowed to get kubernetesclusters"}, roll}},
		"nothing answers": {
			&fakeHome{err: cluster.ErrUnreachable}, "", []outcome{{diag.SeverityWarning, "(management in the provider block)"}, roll},
		},
		"delegated":              {&fakeHome{object: annotated(nil)}, modeDelegate, []outcome{advice, {diag.SeverityWarning, "The operator of KubernetesCluster tenant-a/prod is asked for this"}}},
		"delegated to no object": {&fakeHome{err: cluster.ErrNotFound}, modeDelegate, refused("An apply would be refused as things stand")},
	} {
		for _, managed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, managed %t", name, managed), func(t *testing.T) {
				fake := threeNodes("1.12.6", "1.34.2")
				fake.home, fake.managed = test.home, managed

				plan := desired("1.13.4", "")
				plan.PublishTo, plan.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), attribute.TextValue(test.mode)

				_, diagnostics := planned(t, fake.clusters(t), nil, plan)
				check(t, diagnostics, test.want...)
			})
		}
	}
}

// TestPublication_UnusableManagementClusterIsAnErrorAtPlan: waiting does not make a kubeconfig.
func TestPublication_UnusableManagementClusterIsAnErrorAtPlan(t *testing.T) {
	fake := threeNodes("1.12.6", "1.34.2")
	fake.unmanaged = fmt.Errorf("%w: provider attribute management.kubeconfig_path: no such file", connection.ErrCredentialsUnusable)

	plan := desired("1.13.4", "")
	_, diagnostics := planned(t, fake.clusters(t), nil, plan)
	check(t, diagnostics, outcome{diag.SeverityWarning, "one control plane"}, outcome{diag.SeverityWarning, "Rolling upgrade"})

	plan.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")
	clusters := fake.clusters(t)

	_, diagnostics = planned(t, clusters, nil, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "management.kubeconfig_path: no such file"})

	if located, is := diagnostics[0].(diag.DiagnosticWithPath); !is || located.Path().String() != attrname.PublishTo {
		t.Errorf("does not point at %s: %v", attrname.PublishTo, diagnostics[0])
	}

	_, diagnostics = create(t, clusters, plan)
	check(t, diagnostics, outcome{diag.SeverityError, "management.kubeconfig_path: no such file"})
}

// TestPublication_PlanLooksOnceAtANewObject: an object that is misspelled shows where it is named, and
// one that was named before is no reason to say anything.
func TestPublication_PlanLooksOnceAtANewObject(t *testing.T) {
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

func TestDelegation_WithoutAKubernetesAPIIsRefused(t *testing.T) {
	plan := desired("1.13.4", "")
	plan.PublishTo, plan.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), types.StringValue(modeDelegate)

	for want, why := range map[string]error{"unreachable": nil, "kubeconfig": fmt.Errorf("%w: %w", cluster.ErrNoKubeconfig, cluster.ErrDenied)} {
		fake := threeNodes("1.12.6", "1.34.2")
		fake.kubernetesDown = why

		got, diagnostics := create(t, fake.clusters(t), plan)
		check(t, diagnostics, outcome{diag.SeverityError, "no connection to the Kubernetes API, which holds KubernetesCluster tenant-a/prod"})

		if got != nil || !strings.Contains(diagnostics[0].Detail(), want) {
			t.Errorf("stored %v, and it says %q, want %q", got, diagnostics[0].Detail(), want)
		}
	}
}

// TestPublication_DestroyLeavesTheObjectOfOthers says so before it is done.
func TestPublication_DestroyLeavesTheObjectOfOthers(t *testing.T) {
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

// TestDelegation_PlanShowsNoManifests: Talos renders them for the operator.
func TestDelegation_PlanShowsNoManifests(t *testing.T) {
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

// noticeboard is a Kubernetes API with one object, whose annotations can be
// written.
type noticeboard struct {
	fakeHome

	mutex       sync.Mutex
	annotations map[string]any
	// others are patches of anything else.
	others int
}

// Object implements [cluster.ObjectAccess].
func (n *noticeboard) Object(context.Context, cluster.Reference) (map[string]any, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	return annotated(maps.Clone(n.annotations)), nil
}

// PatchObject implements [cluster.ObjectAccess].
func (n *noticeboard) PatchObject(_ context.Context, of cluster.Reference, part string, patch map[string]any) (map[string]any, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()

	metadata, is := patch["metadata"].(map[string]any)
	if !is || part != "" || of.Name != "prod" {
		n.others++

		return nil, cluster.ErrRefused
	}

	switch changes := metadata["annotations"].(type) {
	case map[string]any:
		n.write(changes)
	case map[string]*string:
		for key, value := range changes {
			if value == nil {
				delete(n.annotations, key)
			} else {
				n.annotations[key] = *value
			}
		}
	default:
		n.others++
	}

	return annotated(maps.Clone(n.annotations)), nil
}

func (n *noticeboard) write(changes map[string]any) {
	for key, value := range changes {
		if value == nil {
			delete(n.annotations, key)
		} else {
			n.annotations[key] = value
		}
	}
}

// leased is a cluster whose lease can be had.
type leased struct {
	*fakeCluster

	mutex  sync.Mutex
	stands cluster.Lease
}

// Lease implements [cluster.Kubernetes].
func (l *leased) Lease(context.Context) (cluster.Lease, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	return l.stands, nil
}

// WriteJournal implements [cluster.Kubernetes]: who has the lease says so there.
func (l *leased) WriteJournal(_ context.Context, journal cluster.Journal) (cluster.Journal, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	journal.ResourceVersion = "1"
	l.journal = journal

	return journal, nil
}

// WriteLease implements [cluster.Kubernetes].
func (l *leased) WriteLease(_ context.Context, lease cluster.Lease) (cluster.Lease, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	lease.ResourceVersion = "1"
	l.stands = lease

	return lease, nil
}

// beside is a provider instance that reaches only the cluster, and the board in a
// management cluster.
func beside(held *leased, board *noticeboard) *connection.Clusters {
	shared := &connection.Settings{Version: "test", Clock: engine.RealClock()}
	shared.Dial = func(ctx context.Context, shared *connection.Settings, access connection.Credentials, wanted string, remembered connection.KubeconfigCache) (*connection.Connection, error) {
		made, err := held.dial(ctx, shared, access, wanted, remembered)
		made.Kubernetes, made.Management = held, &connection.ManagementCluster{Access: board}

		return made, err
	}

	return connection.NewClusters(shared, connection.Credentials{})
}

// TestPublication_NamingAnObjectTellsItOfTheCluster: nothing is upgraded for that, and what is
// not ours to write stays.
func TestPublication_NamingAnObjectTellsItOfTheCluster(t *testing.T) {
	fake := threeNodes("1.12.0", "1.33.0")
	board := &noticeboard{annotations: map[string]any{"example.com/owner": "team-a"}}
	held := &leased{fakeCluster: fake}
	clusters := beside(held, board)

	prior := stored(t, fake, "1.12.0", "1.33.0")
	plan := *prior
	plan.PublishTo = publishedTo("", "KubernetesCluster", "tenant-a", "prod")

	got, diagnostics := apply(t, clusters, prior, &plan)
	check(t, diagnostics, outcome{diag.SeverityWarning, "in the Secret of KubernetesCluster tenant-a/prod up to date: permission denied"})

	if !got.PublishTo.Equal(plan.PublishTo) {
		t.Errorf("stored %s", got.PublishTo)
	}

	talos, kubernetes := releases.Next(version.MustParse("1.12.0"), version.MustParse("1.33.0"), compat.BuiltIn().Releases(version.Talos), compat.BuiltIn().Releases(version.Kubernetes))

	for key, want := range map[string]string{
		protocol.KeyTalosCurrent: "1.12.0", protocol.KeyTalosStatus: "idle", protocol.KeyTalosAvailable: talos.String(),
		protocol.KeyKubernetesCurrent: "1.33.0", protocol.KeyKubernetesStatus: "idle", protocol.KeyKubernetesAvailable: kubernetes.String(),
		"example.com/owner": "team-a",
	} {
		if board.annotations[key] != want {
			t.Errorf("%s is %v, want %s", key, board.annotations[key], want)
		}
	}

	if _, stands := board.annotations["upgrade.vitistack.io/do-not-reconcile"]; stands {
		t.Error("the operator is still held")
	}

	if held.stands.Holder != "" {
		t.Errorf("the lease is held by %s", held.stands.Holder)
	}

	for key := range board.annotations {
		if strings.HasSuffix(key, "-target") {
			t.Errorf("%s was written", key)
		}
	}
}

// TestPublication_FailureIsAWarning: the upgrade was done all the same, and nobody
// waits long for an API that does not answer.
func TestPublication_FailureIsAWarning(t *testing.T) {
	for name, test := range map[string]struct {
		of     publication.Publication
		cancel bool
		within time.Duration
		says   string
	}{
		"named":    {publication.Publication{To: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}, false, 5 * time.Second, "The upgrade status in KubernetesCluster a/b may be out of date"},
		"default":  {publication.Publication{}, false, 5 * time.Second, "The upgrade status in ConfigMap kube-system/talosupgrade may be out of date"},
		"hurrying": {publication.Publication{}, true, 2 * time.Second, "may be out of date"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reached := &connection.Connection{Own: &connection.ManagementCluster{Access: &fakeHome{err: cluster.ErrUnreachable}}, Store: func(string) publish.Store { return unwritable{} }}
				out := &publication.Observers{Publisher: reached.Publisher("id", test.of, nil)}

				for _, observer := range out.All() {
					observer.Observe(cluster.Event{
						Kind: cluster.EventRunStarted, Target: cluster.Target{Talos: version.MustParse("1.13.0")},
						Talos: cluster.Progress{Managed: true, Total: 3, Steps: 3, Lowest: version.MustParse("1.12.0")},
					})
				}

				synctest.Wait()

				ctx, cancel := context.WithCancel(t.Context())
				if test.cancel {
					cancel()
				}

				defer cancel()

				began := time.Now()
				diagnostics := told.Noted(t, out.Close(ctx, test.of, "prod", cluster.Observation{}, nil))

				if took := time.Since(began); took > test.within {
					t.Errorf("it took %s, want %s at most", took, test.within)
				}

				if len(diagnostics) != 1 || diagnostics.HasError() || !strings.Contains(diagnostics[0].Detail(), test.says) || diagnostics[0].Summary() != "Unable to publish the progress (prod)" {
					t.Errorf("got %v", diagnostics)
				}
			})
		})
	}
}

var errUnwritable = errors.New("no way")

// unwritable is a store that nobody can write to.
type unwritable struct{}

func (unwritable) Patch(context.Context, map[string]*string) error { return errUnwritable }

func (unwritable) Read(context.Context) (map[string]string, error) { return nil, errUnwritable }

func (unwritable) String() string { return publication.DefaultObject }

// TestDelegation_RequestSaysSo: what Talos renders into the cluster is the operator's
// affair then.
func TestDelegation_RequestSaysSo(t *testing.T) {
	plan := desired("1.13.4", "")

	request, diagnostics := plan.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	if request.Delegated || reflect.DeepEqual(request.Policy.Kubernetes.Manifests, cluster.ManifestPolicy{}) {
		t.Error("what nobody delegates is delegated")
	}

	plan.Mode, plan.PublishTo = types.StringValue(modeDelegate), publishedTo("", "KubernetesCluster", "tenant-a", "prod")

	request, diagnostics = plan.request(t.Context(), "", nil)
	wellDone(t, diagnostics)

	if !request.Delegated || !reflect.DeepEqual(request.Policy.Kubernetes.Manifests, cluster.ManifestPolicy{}) {
		t.Errorf("asked for is %+v", request)
	}
}

// TestPublication_FailureIsSaidOnce: an object that is not there keeps two from
// speaking, and is one thing to know.
func TestPublication_FailureIsSaidOnce(t *testing.T) {
	of := publication.Publication{To: &cluster.Reference{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster", Namespace: "a", Name: "b"}}

	const progress, events = "Unable to publish the progress (prod)", "Unable to write Kubernetes Events (prod)"

	for name, test := range map[string]struct {
		published, told error
		summary         string
		says            []string
	}{
		"nothing":       {nil, nil, "", nil},
		"neither":       {cluster.ErrNotFound, cluster.ErrDenied, progress, []string{"Not found", "The upgrade status in KubernetesCluster a/b", "Permission denied."}},
		"only progress": {cluster.ErrDenied, nil, progress, []string{"Permission denied", "The upgrade status in KubernetesCluster a/b", "Allow the credentials to get and patch it"}},
		"only Events":   {nil, cluster.ErrUnreachable, events, []string{"Unreachable.", "those of this run are lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			diagnostics := told.Noted(t, publication.UnpublishedWarning(test.published, test.told, of, "prod"))
			if test.summary == "" {
				check(t, diagnostics)

				return
			}

			check(t, diagnostics, outcome{diag.SeverityWarning, "The upgrade itself does not depend on it."})

			if summary := diagnostics[0].Summary(); summary != test.summary {
				t.Errorf("the summary is %q", summary)
			}

			for _, text := range test.says {
				if !strings.Contains(diagnostics[0].Detail(), text) {
					t.Errorf("it does not say %q", text)
				}
			}
		})
	}
}
