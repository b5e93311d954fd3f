// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkCanaries refuses to move the other nodes behind a canary that had its
// step, or needs none, and is not in service: it is there to stop them. One
// whose step is to come, or to be finished, goes before them.
func (p *planner) checkCanaries() {
	p.checkHeldCanaries()

	first, found := p.firstBehindCanaries()
	if !p.policy.HasCanaries() || !found {
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

	for _, name := range p.policy.Canaries() {
		// Those that are missing, held by name or no workers are findings already.
		node := there[name]
		if node == nil || node.Role != cluster.Worker || p.policy.Hold[name] || node.Available() {
			continue
		}

		if going[name] {
			if node.Kube != nil && node.Kube.Unschedulable && node.Kube.CordonedBy == "" {
				p.add(cordonFinding(p.policy, node))
			}

			continue
		}

		p.made.faltering = true

		// Those of which an API did not tell are findings already, too.
		if node.Gone || (node.Machine != nil && node.Kube != nil) {
			p.add(canaryFinding(p.policy, node))
		}
	}
}

// checkHeldCanaries refuses to move the others behind a canary that labels have held
// since the run began: it does not go first any more, and stops nothing.
func (p *planner) checkHeldCanaries() {
	for _, name := range p.policy.Selected.Canaries {
		hold, held := p.policy.Selected.Held[name]
		if !held || p.contradicts(name) {
			continue
		}

		index := slices.IndexFunc(p.nodes, func(node plannedNode) bool { return node.Name == name })
		if index < 0 || hold.Unread {
			continue
		}

		node := p.nodes[index].Node

		if step := slices.IndexFunc(p.made.Steps, func(step Step) bool { return behindCanary(*node, step) }); step >= 0 {
			p.made.faltering = true
			p.add(heldFinding(p.policy, node, p.made.Steps[step]))
		}
	}
}

// contradicts tells whether it is a finding already that the node is held and a canary.
func (p *planner) contradicts(name string) bool {
	return slices.ContainsFunc(p.made.Findings, func(f cluster.Finding) bool {
		return f.Check == cluster.CheckCanary && f.Severity == cluster.Permanent && f.Node == name
	})
}

// behindCanary tells whether the step has to wait until the canary has made it.
func behindCanary(canary cluster.Node, step Step) bool {
	switch {
	case step.Canary || step.Finish:
		return false
	case step.Component == "":
		return canary.Machine == nil || behindStep(canary.Machine.Talos, step)
	default:
		return BehindKubelet(canary, step)
	}
}

// BehindKubelet tells whether the kubelet of the canary is older than the one that the
// step gives to a node that is none.
func BehindKubelet(canary cluster.Node, step Step) bool {
	return step.Component == cluster.Kubelet && !step.Canary && canary.Kube != nil && canary.Kube.Kubelet.Less(step.To)
}

// heldFinding is the finding about a canary that has been held since the run began.
func heldFinding(policy cluster.Policy, node *cluster.Node, step Step) cluster.Finding {
	finding := canaryBase(policy, node, cluster.Observed)
	finding.Found = fmt.Sprintf("this canary is to be left alone now (%s) and is not known to have moved to %s, and the other nodes move only behind it", HeldBy(policy, node.Name), step.To)
	finding.Remedy = "Apply again: the next plan decides anew which nodes are canaries. " + upper(notCanary(policy, node.Name)) + ", or take its hold away."

	return finding
}

// canaryBase is what findings about a canary have in common.
func canaryBase(policy cluster.Policy, node *cluster.Node, severity cluster.Severity) cluster.Finding {
	finding := cluster.Finding{Check: cluster.CheckCanary, Severity: severity, Node: node.Name}
	finding.Attribute, finding.Within = canaryAt(policy, node.Name)

	return finding
}

// notCanary is how a node stops being a canary, the end of a sentence.
func notCanary(policy cluster.Policy, name string) string {
	if attribute, _ := canaryAt(policy, name); attribute == attributeCanarySelector {
		return "take away the label that canary_selector matches"
	}

	return "remove it from canary"
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
func Faltering(policy cluster.Policy, canary cluster.Node, step Step) []cluster.Finding {
	finding := canaryBase(policy, &canary, cluster.Observed)

	switch {
	case canary.Gone, canary.Machine != nil && canary.Kube != nil && !canary.Available():
		return []cluster.Finding{canaryFinding(policy, &canary)}
	case canary.Machine == nil:
		finding.Found = fmt.Sprintf("the Talos API of this canary does not answer: %v", canary.Unreachable)
		finding.Remedy, finding.Err = "Bring it back, or "+notCanary(policy, canary.Name)+".", canary.Unreachable
	case canary.Kube == nil:
		finding.Found = "this canary has no Node object in Kubernetes"
		finding.Remedy = "Let it join, or " + notCanary(policy, canary.Name) + "."
	case behindStep(canary.Machine.Talos, step) && policy.Holds(canary.Name):
		return []cluster.Finding{heldFinding(policy, &canary, step)}
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
func canaryFinding(policy cluster.Policy, node *cluster.Node) cluster.Finding {
	finding := canaryBase(policy, node, cluster.Observed)

	if node.Left() {
		finding.Found = "this canary has left the cluster, so the other nodes would wait for it in vain"
		finding.Remedy = upper(notCanary(policy, node.Name)) + ", or bring it back."

		return finding
	}

	if node.Gone {
		finding.Found = "this canary is registered but gone, so the other nodes would wait for it in vain"
		finding.Remedy = "Bring it back, or " + notCanary(policy, node.Name) + "."

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
	finding.Remedy = remedy + ", or " + notCanary(policy, node.Name) + "."

	return finding
}

// cordonFinding warns of a canary that is to move, and that a cordon of somebody
// else will keep out of service afterwards.
func cordonFinding(policy cluster.Policy, node *cluster.Node) cluster.Finding {
	finding := canaryBase(policy, node, cluster.Advice)
	finding.Found = "this canary is cordoned by somebody else and stays so after its upgrade, and the other nodes move only while every canary is in service"
	finding.Remedy = fmt.Sprintf("Take its cordon away (kubectl uncordon %s), or %s.", node.Name, notCanary(policy, node.Name))

	return finding
}

// upper is a sentence that begins with a capital letter.
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
