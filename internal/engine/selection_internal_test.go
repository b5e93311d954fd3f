// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// ofPool chooses the workers of a pool.
type ofPool string

func (o ofPool) Matches(labels map[string]string) bool { return labels["pool"] == string(o) }

func (o ofPool) String() string { return "pool=" + string(o) }

// TestGuardsJudgeLabelsOfTheMoment: the labels of the observation decide, whatever the
// plan was made with.
func TestGuardsJudgeLabelsOfTheMoment(t *testing.T) {
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
		guard      func(guardInput) []cluster.Finding
		begun      bool
	}{
		"held":                         {node: "worker-0", policy: holds, guard: guardHeld, says: `the node is held (selector_overrides "pool=storage")`},
		"held, and begun":              {node: "worker-0", policy: holds, guard: guardHeld, begun: true},
		"not held":                     {node: "worker-2", policy: holds, guard: guardHeld},
		"its pool is taken up":         {node: "worker-0", policy: bounds, guard: guardBudget, says: `pools["storage"].max_unavailable = 1 of 2 workers is 1, and these are not Ready or cordoned: worker-1`},
		"another pool is taken up":     {node: "worker-2", policy: bounds, guard: guardBudget},
		"a kubelet of its pool broke":  {node: "worker-0", component: cluster.Kubelet, policy: bounds, guard: guardKubelets, says: "1 of at most 1 workers of the pool storage are not Ready with their kubelets 1.35.2: worker-1"},
		"a kubelet elsewhere broke":    {node: "worker-2", component: cluster.Kubelet, policy: bounds, guard: guardKubelets},
		"a canary has its old kubelet": {node: "worker-0", component: cluster.Kubelet, policy: leads, guard: guardKubeletCanaries, says: "this canary runs the kubelet 1.34.2"},
		"no canary":                    {node: "worker-0", component: cluster.Kubelet, policy: holds, guard: guardKubeletCanaries},
	} {
		policy := cluster.DefaultPolicy()
		given.policy(&policy)

		policy, _ = plan.Select(observed, policy)
		step := plan.Step{Node: given.node, Role: cluster.Worker, Component: given.component, To: newer}

		found := given.guard(guardInput{Observation: observed, step: step, policy: policy, starting: !given.begun})
		wording.NoteFindings(t, found)

		if (len(found) > 0) != (given.says != "") || len(found) > 0 && !strings.Contains(found[0].String(), given.says) {
			t.Errorf("%s: got %+v, want %q", name, found, given.says)
		}
	}
}
