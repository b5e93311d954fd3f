// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkControlPlanes wants every control plane whole before the first node is
// disturbed, whichever that is, but for what the first steps may cure.
func (p *planner) checkControlPlanes() {
	if p.snapshot.KubernetesError != nil {
		p.adviseUnreported()

		return
	}

	c := p.curable()
	if c.manifests {
		return
	}

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.Role != cluster.ControlPlane, node.unfinished():
		case node.Machine == nil, node.Kube == nil:
			// That is a finding already.
		default:
			if !c.readies(node.Name) {
				p.checkNodeReady(node)
			}

			p.checkStaticPods(node, c)
		}
	}
}

// adviseUnreported says what nobody can tell without the Kubernetes API, whose silence
// is an error of its own.
func (p *planner) adviseUnreported() {
	for _, untold := range []struct{ check, what string }{
		{cluster.CheckNodesReady, "whether the nodes are Ready"},
		{cluster.CheckControlPlane, "whether the components of the control planes are Ready"},
	} {
		p.add(cluster.Finding{
			Check: untold.check, Severity: cluster.Advice, Unknown: true, Err: p.snapshot.KubernetesError, Cause: cluster.CheckKubernetesAPI,
			Found:  untold.what + " is not known, because the Kubernetes API did not answer",
			Remedy: "Make the Kubernetes API answer, then plan again.",
		})
	}
}

func (p *planner) checkNodeReady(node *plannedNode) {
	if node.Kube.Ready {
		return
	}

	found := "this control plane is not Ready in Kubernetes"
	if node.Kube.ReadyReason != "" {
		found += " (" + node.Kube.ReadyReason + ")"
	}

	p.add(cluster.Finding{
		Check: cluster.CheckNodesReady, Severity: cluster.Observed, Node: node.Name, Found: found,
		Remedy: fmt.Sprintf("Bring it back to health first (kubectl describe node %s, talosctl -n %s health).", node.Name, node.Address),
	})
}

// checkStaticPods wants the control plane's own pods Ready. What is switched off
// is no part of the node.
func (p *planner) checkStaticPods(node *plannedNode, c heals) {
	var ailing, outdated, missing []string

	for i := range node.parts {
		of := node.parts[i].component
		if !of.Static() || c.restores(component{node.Name, of}) {
			continue
		}

		pod, there := node.Pods[of]

		switch {
		case !there:
			missing = append(missing, string(of))
		case pod.Outdated:
			outdated = append(outdated, string(of))
		case !pod.Ready:
			ailing = append(ailing, troubled(string(of), pod.Trouble))
		}
	}

	finding := cluster.Finding{
		Check: cluster.CheckControlPlane, Severity: cluster.Observed, Node: node.Name,
		Remedy: fmt.Sprintf("Bring them back first (kubectl -n kube-system get pods -o wide, talosctl -n %s containers --kubernetes).", node.Address),
	}

	if len(ailing) > 0 {
		finding.Found = "not Ready on this control plane: " + strings.Join(ailing, ", ")
		p.add(finding)
	}

	finding.Unknown = true

	if len(missing) > 0 {
		finding.Found = fmt.Sprintf("no pod of %s is known on this control plane", strings.Join(missing, ", "))
		p.add(finding)
	}

	if len(outdated) > 0 {
		finding.Found = fmt.Sprintf("Kubernetes still shows %s as they were before this control plane booted or recreated them", strings.Join(outdated, ", "))
		finding.Remedy = fmt.Sprintf("Wait: its kubelet reports them within three minutes. "+
			"If they stay like that, look at it (talosctl -n %s logs kubelet).", node.Address)
		p.add(finding)
	}
}

// troubled adds what is known about it to what is not Ready.
func troubled(what, trouble string) string {
	if trouble = strings.TrimSpace(trouble); trouble != "" {
		what += " (" + trouble + ")"
	}

	return what
}

// heals is what the first steps of a roll may cure by themselves, or wait for.
type heals struct {
	// node is the one that goes first.
	node string
	// components tells that the first hop moves components, and steps are those of
	// it; otherwise the step of the node cures all of it.
	components bool
	steps      []Step
	// last is the component that had the step before the first one. A run that was
	// cut short may have left it in the middle of that, with nothing left to do
	// but to wait, which the guards of the first step do.
	last component
	// manifests tells that a sync comes first: it disturbs nobody, and may be what
	// the nodes wait for.
	manifests bool
}

// component is one of a node.
type component struct {
	node string
	of   cluster.Component
}

// curable says it of the roll that was made. A later hop is too late for a cure:
// every step before it would find the trouble, and stop.
func (p *planner) curable() heals {
	steps := p.made.Steps
	first := &steps[0]
	c := heals{node: first.Node, components: p.made.Hops[first.Hop].Product == version.Kubernetes}

	if !c.components {
		return c
	}

	c.manifests = first.Component == cluster.Manifests
	c.last = p.preceding(component{first.Node, first.Component})
	c.steps = steps

	if later := slices.IndexFunc(steps, func(s Step) bool { return s.Hop != first.Hop }); later >= 0 {
		c.steps = steps[:later]
	}

	return c
}

// preceding is the component that has its step before another one, whether it needs
// one or not; none where that is the first of all.
func (p *planner) preceding(next component) component {
	var last component

	ordered := p.componentNodes()

	for _, of := range componentOrder() {
		for _, node := range ordered {
			this := component{node.Name, of}
			if this == next {
				return last
			}

			if slices.ContainsFunc(node.parts, func(t componentState) bool { return t.component == of }) {
				last = this
			}
		}
	}

	return component{}
}

// moves tells whether the component has a step in the first hop. What an earlier
// step left broken there is gone on with: it crashes with the image that its step
// waits for, or replaces.
func (c heals) moves(one component) bool {
	return slices.ContainsFunc(c.steps, func(s Step) bool { return s.Node == one.node && s.Component == one.of })
}

// readies tells whether the node may become Ready by the first step, or is waited
// for. The step of a component does it where the kubelet itself moves, or the API
// server that it talks to.
func (c heals) readies(node string) bool {
	kubelet := component{node, cluster.Kubelet}

	switch {
	case !c.components:
		return node == c.node
	case c.last == kubelet:
		return true
	default:
		return node == c.node && (c.moves(kubelet) || c.moves(component{node, cluster.APIServer}))
	}
}

// restores tells whether a static pod may become Ready by the first steps, or is
// waited for. Where a kubelet restarts, the pods of its node are not Ready either.
func (c heals) restores(one component) bool {
	if !c.components {
		return one.node == c.node
	}

	// Below Talos 1.14 the API server restarts with the scheduler.
	taken := one.of == cluster.APIServer && (c.last == component{one.node, cluster.Scheduler})

	return c.moves(one) || c.last == one || taken || c.last == component{one.node, cluster.Kubelet}
}

// checkServing names the components that are at the target and not Ready, where
// no step is left that would find out.
func (p *planner) checkServing() {
	if p.target.Kubernetes.IsZero() {
		return
	}

	for i := range p.nodes {
		if node := &p.nodes[i]; !node.held && node.Machine != nil {
			p.noteAiling(node)
		}
	}
}

// noteAiling notes the components of the node that run the target and are not
// Ready, each with what is known about that, before the steps are taken for done.
func (p *planner) noteAiling(node *plannedNode) {
	for i := range node.parts {
		t := &node.parts[i]
		if !t.running.Equal(p.target.Kubernetes) || !t.lowest().Equal(p.target.Kubernetes) {
			continue
		}

		pod, there := node.Pods[t.component]
		on := fmt.Sprintf("%s on %s", t.component, node.Name)

		switch {
		case t.component.Static() && there && !pod.Ready:
			p.ailing = append(p.ailing, ailment{check: cluster.CheckControlPlane, node: node.Name, text: troubled(on, pod.Trouble)})
		case t.component == cluster.Kubelet && node.Kube != nil && !node.Kube.Ready:
			p.ailing = append(p.ailing, ailment{check: cluster.CheckNodesReady, node: node.Name, text: troubled(on, node.Kube.ReadyReason)})
		}
	}
}

// ailment is a component at the target that is not Ready.
type ailment struct{ check, node, text string }

// adviseServing says which components do not serve, but for those that stand in
// the way of the roll.
func (p *planner) adviseServing() {
	stands := make(map[[2]string]bool, len(p.ailing))

	for i := range p.made.Findings {
		if f := &p.made.Findings[i]; f.Severity != cluster.Advice && f.Node != "" {
			stands[[2]string{f.Check, f.Node}] = true
		}
	}

	for _, check := range []string{cluster.CheckControlPlane, cluster.CheckNodesReady} {
		var texts []string

		for _, a := range p.ailing {
			if a.check == check && !stands[[2]string{check, a.node}] {
				texts = append(texts, a.text)
			}
		}

		if len(texts) == 0 {
			continue
		}

		remedy := "Look at them (kubectl -n kube-system describe pods)"
		if check == cluster.CheckNodesReady {
			remedy = "Look at them (kubectl describe node)"
		}

		p.add(cluster.Finding{
			Check: check, Severity: cluster.Advice,
			Found:  fmt.Sprintf("at Kubernetes %s and not Ready: %s", p.target.Kubernetes, readable.List(texts)),
			Remedy: remedy + ": no version has to change for them.",
		})
	}
}
