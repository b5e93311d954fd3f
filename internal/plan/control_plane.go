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

// checkControlPlanes requires every control plane to be healthy before the first node is disturbed, whichever
// node that is, except for what the first steps may cure.
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
			// This is a finding already.
		default:
			if !c.readies(node.Name) {
				p.checkNodeReady(node)
			}

			p.checkStaticPods(node, c)
		}
	}
}

// adviseUnreported says what is unknown without the Kubernetes API. That it did not answer is a finding of its
// own.
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

// checkStaticPods requires the static pods of the control plane to be Ready, except for components that are
// switched off.
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

// troubled appends the reason to the name of a component that is not Ready, if it is known.
func troubled(what, trouble string) string {
	if trouble = strings.TrimSpace(trouble); trouble != "" {
		what += " (" + trouble + ")"
	}

	return what
}

// heals is what the first steps of a roll may cure, or wait for.
type heals struct {
	// node is the node of the first step.
	node string
	// components is true if the first hop moves components, and steps are its steps; otherwise the first step may
	// cure everything on its node.
	components bool
	steps      []Step
	// last is the component whose turn comes right before the first step. A run that was cut short may have left
	// it in the middle of that step with nothing to do but wait, and the guards of the first step wait too.
	last component
	// manifests is true if a sync comes first: it disturbs no node, and the nodes may be waiting for it.
	manifests bool
}

// component identifies a component of a node.
type component struct {
	node string
	of   cluster.Component
}

// curable returns what the planned roll may cure. Only the first hop counts: every step before a later hop would
// find the problem, and stop.
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

// preceding returns the component whose turn comes right before the given one, whether it needs a step or not;
// zero if that one is the first.
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

// moves reports whether the component has a step in the first hop. That includes a component that an earlier step
// left broken: it crashes with the image that its step waits for, or replaces.
func (c heals) moves(one component) bool {
	return slices.ContainsFunc(c.steps, func(s Step) bool { return s.Node == one.node && s.Component == one.of })
}

// readies reports whether the first step may make the node Ready, or waits for that. The step of a component does
// if it moves the kubelet itself, or the API server that the kubelet talks to.
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

// restores reports whether the first steps may make a static pod Ready, or wait for that. While a kubelet
// restarts, the pods of its node are not Ready either.
func (c heals) restores(one component) bool {
	if !c.components {
		return one.node == c.node
	}

	// Below Talos 1.14 the API server restarts with the scheduler.
	taken := one.of == cluster.APIServer && (c.last == component{one.node, cluster.Scheduler})

	return c.moves(one) || c.last == one || taken || c.last == component{one.node, cluster.Kubelet}
}

// checkServing notes the components that are at the target and not Ready, or missing, as no step is left that would
// notice.
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

// noteAiling notes the components of the node that run the target and are not Ready, or are to run it and have no pod,
// each with the reason if it is known. It has to run before steps are scheduled, which move the recorded versions.
func (p *planner) noteAiling(node *plannedNode) {
	for i := range node.parts {
		t := &node.parts[i]
		pod, there := node.Pods[t.component]
		missing := t.component.Static() && t.running.IsZero() && !there && p.snapshot.KubernetesError == nil

		if !t.lowest().Equal(p.target.Kubernetes) || !missing && !t.running.Equal(p.target.Kubernetes) {
			continue
		}

		on := fmt.Sprintf("%s on %s", t.component, node.Name)

		switch {
		case missing:
			p.ailing = append(p.ailing, ailment{check: cluster.CheckControlPlane, node: node.Name, text: troubled(on, "it has no pod")})
		case t.component.Static() && there && !pod.Ready:
			p.ailing = append(p.ailing, ailment{check: cluster.CheckControlPlane, node: node.Name, text: troubled(on, pod.Trouble)})
		case t.component == cluster.Kubelet && node.Kube != nil && !node.Kube.Ready:
			p.ailing = append(p.ailing, ailment{check: cluster.CheckNodesReady, node: node.Name, text: troubled(on, node.Kube.ReadyReason)})
		}
	}
}

// ailment is a component at the target that is not Ready, or that is to run it and has no pod.
type ailment struct{ check, node, text string }

// adviseServing reports the components that are not Ready, except for those that prevent the roll and are
// findings already.
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

		remedy := "Look at them (kubectl -n kube-system describe pods, talosctl containers --kubernetes)"
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
