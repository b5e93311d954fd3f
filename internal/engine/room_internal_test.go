// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// TestNodeIsKeptForThePodsOfOthers is about a node whose pods could go to one
// other node at most.
func TestNodeIsKeptForThePodsOfOthers(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		own, other cluster.KubeNode
		busy       bool
		keeps      bool
	}{
		"the other takes pods":              {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true}},
		"in its turn":                       {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-1"}, busy: true, keeps: true},
		"in its turn and down":              {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Unschedulable: true, CordonedBy: "run-1"}, busy: true, keeps: true},
		"in its turn, cordoned before":      {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-0"}, busy: true, keeps: true},
		"in its turn, cordoned by a person": {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true}, busy: true, keeps: true},
		"both cordoned by a person":         {own: cluster.KubeNode{Ready: true, Unschedulable: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true}, busy: true},
		"cordoned by a person at rest":      {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true}},
		"left cordoned by this run":         {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-1"}, keeps: true},
		"left cordoned by an earlier one":   {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-0"}},
		"down by itself":                    {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{}},
		"tainted and in its turn":           {own: cluster.KubeNode{Ready: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-1", ExcludesWorkloads: true}, busy: true},
		"takes no pods itself":              {own: cluster.KubeNode{Ready: true, Unschedulable: true}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-1"}, busy: true, keeps: true},
		"is not Ready itself":               {own: cluster.KubeNode{}, other: cluster.KubeNode{Ready: true, Unschedulable: true, CordonedBy: "run-1"}, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			seen := guardInput{
				Observation: cluster.Observation{Nodes: []cluster.Node{
					{Name: "own", Role: cluster.Worker, Kube: &given.own}, {Name: "other", Role: cluster.Worker, Kube: &given.other},
				}},
				step: plan.Step{Node: "own", Role: cluster.Worker}, run: "run-1", cordoning: true,
			}
			if given.busy {
				seen.others = map[string]bool{"other": true}
			}

			findings := guardRoom(seen)
			if len(findings) > 0 != given.keeps {
				t.Errorf("is it kept? %+v", findings)
			}

			wording.NoteFindings(t, findings)

			seen.cordoning = false
			if findings := guardRoom(seen); len(findings) > 0 {
				t.Errorf("it is kept from something else than a cordon: %+v", findings)
			}
		})
	}
}

// TestNobodyIsAdvisedToLeaveNoNodeForPods: a larger max_unavailable would take the last
// node out of service that takes any.
func TestNobodyIsAdvisedToLeaveNoNodeForPods(t *testing.T) {
	t.Parallel()

	seen := guardInput{
		Observation: cluster.Observation{Nodes: []cluster.Node{
			{Name: "worker-0", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true}},
			{Name: "worker-1", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true, Unschedulable: true}},
		}},
		step: plan.Step{Node: "worker-0", Role: cluster.Worker}, run: "run-1", policy: cluster.Policy{MaxUnavailable: cluster.OneAtATime()},
	}

	findings := guardBudget(seen)
	wording.NoteFindings(t, findings)

	if len(findings) != 1 || findings[0].Remedy != "Bring them back (kubectl uncordon, kubectl describe node)." {
		t.Errorf("got %+v", findings)
	}
}
