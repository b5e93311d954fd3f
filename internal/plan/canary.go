// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkCanaries refuses to move the other nodes if a canary that had its step, or needs none, is not in service:
// stopping them is the purpose of a canary. A canary with a pending or unfinished step goes before them.
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
		// A canary that is missing, held by name or not a worker is a finding already.
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

		// A node for which an API did not answer is a finding already, too.
		if node.Gone || (node.Machine != nil && node.Kube != nil) {
			p.add(canaryFinding(p.policy, node))
		}
	}
}

// checkHeldCanaries refuses to move the other nodes if labels have held a canary since the run began: it no
// longer goes first, and would stop nothing.
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

// contradicts reports whether there is already a finding that the node is both held and a canary.
func (p *planner) contradicts(name string) bool {
	return slices.ContainsFunc(p.made.Findings, func(f cluster.Finding) bool {
		return f.Check == cluster.CheckCanary && f.Severity == cluster.Permanent && f.Node == name
	})
}

// behindCanary reports whether the step has to wait until the canary has made the same move.
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

// BehindKubelet reports whether the kubelet of the canary is older than the version to which the step moves the
// kubelet of another node.
func BehindKubelet(canary cluster.Node, step Step) bool {
	return step.Component == cluster.Kubelet && !step.Canary && canary.Kube != nil && canary.Kube.Kubelet.Less(step.To)
}

// heldFinding returns the finding about a canary that has been held since the run began.
func heldFinding(policy cluster.Policy, node *cluster.Node, step Step) cluster.Finding {
	finding := canaryBase(policy, node, cluster.Observed)
	finding.Found = fmt.Sprintf("this canary is to be left alone now (%s) and is not known to have moved to %s, and the other nodes move only behind it", HeldBy(policy, node.Name), step.To)
	finding.Remedy = "Apply again: the next plan decides anew which nodes are canaries. " + upper(notCanary(policy, node.Name)) + ", or take its hold away."

	return finding
}

// canaryBase returns what findings about a canary have in common.
func canaryBase(policy cluster.Policy, node *cluster.Node, severity cluster.Severity) cluster.Finding {
	finding := cluster.Finding{Check: cluster.CheckCanary, Severity: severity, Node: node.Name}
	finding.Attribute, finding.Within = canaryAt(policy, node.Name)

	return finding
}

// notCanary says how a node stops being a canary, the end of a sentence.
func notCanary(policy cluster.Policy, name string) string {
	if attribute, _ := canaryAt(policy, name); attribute == attributeCanarySelector {
		return "take away the label that canary_selector matches"
	}

	return "remove it from canary"
}

// firstBehindCanaries returns the first hop of Talos in which a node other than a canary begins its step. Steps
// that an earlier run began do not count, because they are finished in any case.
func (p *planner) firstBehindCanaries() (hop int, found bool) {
	index := slices.IndexFunc(p.made.Steps, Step.behindCanaries)
	if index < 0 {
		return 0, false
	}

	return p.made.Steps[index].Hop, true
}

// behindCanaries reports whether the step has to wait for the canaries.
func (s Step) behindCanaries() bool { return !s.Canary && !s.Finish && s.Component == "" }

// Faltering says why a canary prevents the step of another node: it is not in service, or it does not run the
// version that the step leads to. It is called right before the node is disturbed, with an observation newer than
// the plan.
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

// behindStep reports whether a node with that version still has to make the move of the step. In a hop to another
// minor version, any version of it is enough.
func behindStep(running version.Version, step Step) bool {
	if step.From.Minor().Compare(step.To.Minor()) < 0 {
		return running.Minor().Compare(step.To.Minor()) < 0
	}

	return running.Less(step.To)
}

// canaryFinding returns the finding about what is wrong with a canary.
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

// cordonFinding warns about a canary with a pending step that somebody else's cordon will keep out of service
// afterwards.
func cordonFinding(policy cluster.Policy, node *cluster.Node) cluster.Finding {
	finding := canaryBase(policy, node, cluster.Advice)
	finding.Found = "this canary is cordoned by somebody else and stays so after its upgrade, and the other nodes move only while every canary is in service"
	finding.Remedy = fmt.Sprintf("Take its cordon away (kubectl uncordon %s), or %s.", node.Name, notCanary(policy, node.Name))

	return finding
}

// upper returns the sentence with a capital letter at its beginning.
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
