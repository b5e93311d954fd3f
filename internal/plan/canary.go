// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkCanaries refuses to move the other nodes behind a canary that had its
// step, or needs none, and is not in service: it is there to stop them. One
// whose step is to come, or to be finished, goes before them.
func (p *planner) checkCanaries() {
	first, found := p.firstBehindCanaries()
	if len(p.policy.Canary) == 0 || !found {
		return
	}

	going := map[string]bool{}

	for i := range p.made.Steps {
		if step := &p.made.Steps[i]; step.Component == "" && step.Hop <= first {
			going[step.Node] = true
		}
	}

	there := make(map[string]*cluster.Node, len(p.snapshot.Nodes))
	for i := range p.snapshot.Nodes {
		there[p.snapshot.Nodes[i].Name] = &p.snapshot.Nodes[i]
	}

	for index, name := range p.policy.Canary {
		// Those that are missing, held or no workers are findings already.
		node := there[name]
		if node == nil || node.Role != cluster.Worker || p.policy.Holds(name) || node.Available() {
			continue
		}

		if going[name] {
			if node.Kube != nil && node.Kube.Unschedulable && node.Kube.CordonedBy == "" {
				p.add(cordonFinding(index, node))
			}

			continue
		}

		p.made.faltering = true

		// Those of which an API did not tell are findings already, too.
		if node.Gone || (node.Machine != nil && node.Kube != nil) {
			p.add(canaryFinding(index, node))
		}
	}
}

// firstBehindCanaries is the first hop of Talos in which a node that is no
// canary begins its step; what an earlier run began is finished in any case.
func (p *planner) firstBehindCanaries() (hop int, found bool) {
	index := slices.IndexFunc(p.made.Steps, Step.behindCanaries)
	if index < 0 {
		return 0, false
	}

	return p.made.Steps[index].Hop, true
}

// behindCanaries tells whether the step is one that canaries are to protect.
func (s Step) behindCanaries() bool { return !s.Canary && !s.Finish && s.Component == "" }

// Faltering says why a canary keeps another node's step from being taken: it is not
// in service, or does not run what the step leads to. It is asked right before the
// node is disturbed, of an observation that is newer than the plan.
func Faltering(index int, canary cluster.Node, step Step) []cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckCanary, Severity: cluster.Observed, Node: canary.Name, Attribute: attributeCanary, Within: []cluster.Within{cluster.Index(index)},
	}

	switch {
	case canary.Gone, canary.Machine != nil && canary.Kube != nil && !canary.Available():
		return []cluster.Finding{canaryFinding(index, &canary)}
	case canary.Machine == nil:
		finding.Found = fmt.Sprintf("the Talos API of this canary does not answer: %v", canary.Unreachable)
		finding.Remedy, finding.Err = "Bring it back, or remove it from canary.", canary.Unreachable
	case canary.Kube == nil:
		finding.Found = "this canary has no Node object in Kubernetes"
		finding.Remedy = "Let it join, or remove it from canary."
	case behindStep(canary.Machine.Talos, step):
		finding.Found = fmt.Sprintf("this canary runs Talos %s, and the other nodes move to %s only behind it", canary.Machine.Talos, step.To)
		finding.Remedy = "Find out who changed it. The next plan moves it first."
	default:
		return nil
	}

	return []cluster.Finding{finding}
}

// behindStep tells whether a node still has to go where the step leads. A hop to
// another release line spares those that are in it.
func behindStep(running version.Version, step Step) bool {
	if step.From.Minor().Compare(step.To.Minor()) < 0 {
		return running.Minor().Compare(step.To.Minor()) < 0
	}

	return running.Less(step.To)
}

// canaryFinding says what is wrong with a canary.
func canaryFinding(index int, node *cluster.Node) cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckCanary, Severity: cluster.Observed, Node: node.Name, Attribute: attributeCanary, Within: []cluster.Within{cluster.Index(index)},
	}

	if node.Left() {
		finding.Found = "this canary has left the cluster, so the other nodes would wait for it in vain"
		finding.Remedy = "Remove it from canary, or bring it back."

		return finding
	}

	if node.Gone {
		finding.Found = "this canary is registered but gone, so the other nodes would wait for it in vain"
		finding.Remedy = "Bring it back, or remove it from canary and delete its Node object."

		return finding
	}

	ails, remedy := "is not Ready", fmt.Sprintf("Bring it back (kubectl describe node %s)", node.Name)

	switch {
	case node.Kube.Unschedulable && node.Kube.Ready:
		ails, remedy = "is cordoned", fmt.Sprintf("Take its cordon away (kubectl uncordon %s)", node.Name)
	case node.Kube.Unschedulable:
		ails += " and cordoned"
		remedy = fmt.Sprintf("Bring it back (kubectl describe node %s, kubectl uncordon %s)", node.Name, node.Name)
	}

	finding.Found = fmt.Sprintf("this canary runs Talos %s and %s, and the other nodes move only while every canary is in service", node.Machine.Talos, ails)
	finding.Remedy = remedy + ", or remove it from canary."

	return finding
}

// cordonFinding warns of a canary that is to move, and that a cordon of somebody
// else will keep out of service afterwards.
func cordonFinding(index int, node *cluster.Node) cluster.Finding {
	return cluster.Finding{
		Check: cluster.CheckCanary, Severity: cluster.Advice, Node: node.Name, Attribute: attributeCanary, Within: []cluster.Within{cluster.Index(index)},
		Found:  "this canary is cordoned by somebody else and stays so after its upgrade, and the other nodes move only while every canary is in service",
		Remedy: fmt.Sprintf("Take its cordon away (kubectl uncordon %s), or remove it from canary.", node.Name),
	}
}
