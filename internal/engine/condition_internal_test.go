// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// TestRoom_NodeIsKeptForThePodsOfOthers is about a node whose pods could go to one
// other node at most.
func TestRoom_NodeIsKeptForThePodsOfOthers(t *testing.T) {
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

			seen := rule.View{
				Observation: cluster.Observation{Nodes: []cluster.Node{
					{Name: "own", Role: cluster.Worker, Kube: &given.own}, {Name: "other", Role: cluster.Worker, Kube: &given.other},
				}},
				Step: plan.Step{Node: "own", Role: cluster.Worker}, Run: "run-1", Cordoning: true,
			}
			if given.busy {
				seen.Others = map[string]bool{"other": true}
			}

			findings := judged(rule.CheckRoom, rule.Cordon, seen)
			if len(findings) > 0 != given.keeps {
				t.Errorf("is it kept? %+v", findings)
			}

			wording.NoteFindings(t, findings)

			seen.Cordoning = false
			if findings := judged(rule.CheckRoom, rule.Cordon, seen); len(findings) > 0 {
				t.Errorf("it is kept from something else than a cordon: %+v", findings)
			}
		})
	}
}

// TestRoom_NobodyIsAdvisedToLeaveNoNodeForPods: a larger max_unavailable would take the last
// node out of service that takes any.
func TestRoom_NobodyIsAdvisedToLeaveNoNodeForPods(t *testing.T) {
	t.Parallel()

	seen := rule.View{
		Observation: cluster.Observation{Nodes: []cluster.Node{
			{Name: "worker-0", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true}},
			{Name: "worker-1", Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: true, Unschedulable: true}},
		}},
		Step: plan.Step{Node: "worker-0", Role: cluster.Worker}, Run: "run-1", Policy: cluster.Policy{MaxUnavailable: cluster.OneAtATime()},
	}

	findings := judged(rule.CheckBudget, rule.Cordon, seen)
	wording.NoteFindings(t, findings)

	if len(findings) != 1 || findings[0].Remedy != "Bring them back (kubectl uncordon, kubectl describe node)." {
		t.Errorf("got %+v", findings)
	}
}

// ofPool chooses the workers of a pool.
type ofPool string

func (o ofPool) Matches(labels map[string]string) bool { return labels["pool"] == string(o) }

func (o ofPool) String() string { return "pool=" + string(o) }

// TestGuard_JudgesLabelsOfTheMoment: the labels of the observation decide, whatever the
// plan was made with.
func TestGuard_JudgesLabelsOfTheMoment(t *testing.T) {
	t.Parallel()

	older, newer := version.MustParse("1.34.2"), version.MustParse("1.35.2")
	worker := func(name, pool string, ready bool, kubelet version.Version) cluster.Node {
		return cluster.Node{Name: name, Role: cluster.Worker, Kube: &cluster.KubeNode{Ready: ready, Kubelet: kubelet, Labels: map[string]string{"pool": pool}}}
	}

	observed := cluster.Observation{Nodes: []cluster.Node{
		worker("worker-0", "storage", true, older), worker("worker-1", "storage", false, newer), worker("worker-2", "gpu", true, older), worker("worker-3", "", true, older),
	}}

	bounds := func(p *cluster.Policy) {
		three, err := cluster.ParseShare("3")
		if err != nil {
			t.Error(err)
		}

		p.MaxUnavailable, p.Kubernetes.MaxUnavailableKubelets = three, three
		p.Pools = []cluster.Pool{{Name: "storage", Selector: ofPool("storage"), MaxUnavailable: cluster.OneAtATime()}}
	}
	holds := func(p *cluster.Policy) {
		p.SelectorOverrides = []cluster.SelectorOverride{{Selector: ofPool("storage"), Hold: true}}
	}
	leads := func(p *cluster.Policy) { p.CanarySelector = ofPool("gpu") }

	for name, given := range map[string]struct {
		node, says string
		component  cluster.Component
		policy     func(*cluster.Policy)
		check      string
		begun      bool
	}{
		"held":                         {node: "worker-0", policy: holds, check: cluster.CheckSelectors, says: `the node is held (selector_overrides "pool=storage")`},
		"held, and begun":              {node: "worker-0", policy: holds, check: cluster.CheckSelectors, begun: true},
		"not held":                     {node: "worker-2", policy: holds, check: cluster.CheckSelectors},
		"its pool is taken up":         {node: "worker-0", policy: bounds, check: rule.CheckBudget, says: `pools["storage"].max_unavailable = 1 of 2 workers is 1, and these are not Ready or cordoned: worker-1`},
		"another pool is taken up":     {node: "worker-2", policy: bounds, check: rule.CheckBudget},
		"a kubelet of its pool broke":  {node: "worker-0", component: cluster.Kubelet, policy: bounds, check: rule.CheckKubelets, says: "1 of at most 1 workers of the pool storage are not Ready with their kubelets 1.35.2: worker-1"},
		"a kubelet elsewhere broke":    {node: "worker-2", component: cluster.Kubelet, policy: bounds, check: rule.CheckKubelets},
		"a canary has its old kubelet": {node: "worker-0", component: cluster.Kubelet, policy: leads, check: cluster.CheckCanary, says: "this canary runs the kubelet 1.34.2"},
		"no canary":                    {node: "worker-0", component: cluster.Kubelet, policy: holds, check: cluster.CheckCanary},
	} {
		policy := cluster.DefaultPolicy()
		given.policy(&policy)

		policy, _ = plan.Select(observed, policy)
		step := plan.Step{Node: given.node, Role: cluster.Worker, Component: given.component, To: newer}

		stage := rule.Cordon
		if given.component != "" {
			stage = rule.Component
		}

		found := judged(given.check, stage, rule.View{Observation: observed, Step: step, Policy: policy, Starting: !given.begun})
		wording.NoteFindings(t, found)

		if (len(found) > 0) != (given.says != "") || len(found) > 0 && !strings.Contains(found[0].String(), given.says) {
			t.Errorf("%s: got %+v, want %q", name, found, given.says)
		}
	}
}

// judged is what the rule of that name finds before a stage.
func judged(name string, stage rule.Stage, seen rule.View) []cluster.Finding {
	named := slices.DeleteFunc(rule.Table(), func(r rule.Rule) bool { return r.Name != name })

	return rule.Judge(named, stage, seen)
}
