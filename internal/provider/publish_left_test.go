// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

const (
	leftRun  = cluster.RunPrefix + "OF2Z6V"
	leftHold = "upgrade.vitistack.io/do-not-reconcile"
)

// TestWhatAnEarlierApplyLeftIsWork: without a change in the plan nothing would be
// applied, and the operator be held for good.
func TestWhatAnEarlierApplyLeftIsWork(t *testing.T) {
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
				state.PublishTo, state.Mode = publishedTo("", "KubernetesCluster", "tenant-a", "prod"), textValue(mode)

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

// TestWhatCannotBeEndedIsNoWork: a plan would show it for ever.
func TestWhatCannotBeEndedIsNoWork(t *testing.T) {
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
		"a management cluster of no use":  {"KubernetesCluster", nil, errUnusable},
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

// TestWhatOnlySaysWhatIsToRunIsNotLeft: it cannot be taken back, and its operator may
// be slow to notice that it is reached.
func TestWhatOnlySaysWhatIsToRunIsNotLeft(t *testing.T) {
	report := cluster.OperatorReport{Talos: cluster.OperatorProduct{Target: "1.13.4"}, Kubernetes: cluster.OperatorProduct{Target: "1.35.0"}}
	target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.0")}

	for kind, want := range map[string]int{"KubernetesCluster": 2, "TalosControlPlane": 0} {
		plan := desired("1.13.4", "1.35.0")
		plan.PublishTo, plan.Mode = publishedTo("", kind, "tenant-a", "prod"), types.StringValue(modeDelegate)

		if left := plan.publication().left(report, target); len(left) != want {
			t.Errorf("%s: %q", kind, left)
		}
	}
}

// TestPlanDoesNotWaitForAManagementClusterThatIsAway for longer than a moment.
func TestPlanDoesNotWaitForAManagementClusterThatIsAway(t *testing.T) {
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

// TestApplyEndsWhatAnEarlierOneLeft: the hold is gone, and what the object says is
// true, in a cluster in which nothing is to be upgraded.
func TestApplyEndsWhatAnEarlierOneLeft(t *testing.T) {
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

	_, diagnostics = planned(t, clusters, got, got)
	check(t, diagnostics)
}

// TestDefaultObjectThatSomebodyNames is the one that is made where it is missing,
// and removed by a destroy.
func TestDefaultObjectThatSomebodyNames(t *testing.T) {
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
				clusters.access.Management = &managementAccess{}
			}

			_, diagnostics := planned(t, clusters, state, &plan)
			if said := strings.Contains(saidIn(diagnostics), missing); said != test.says {
				t.Errorf("at plan: %s", saidIn(diagnostics))
			}

			plan.TalosVersion = types.StringValue("1.13.5")
			clusters.claims = newClaims() // another command

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
