// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

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
func (p *planner) noteAiling(node *subject) {
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

		p.find(cluster.Finding{
			Check: check, Severity: cluster.Advice,
			Found:  fmt.Sprintf("at Kubernetes %s and not Ready: %s", p.target.Kubernetes, listed(texts)),
			Remedy: remedy + ": no version has to change for them.",
		})
	}
}
