// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkReady is the check of what is at the target and does not serve.
const checkReady = "components-ready"

// checkServing names the components that are at the target and not Ready: no step
// is left that would find out.
func (p *planner) checkServing() {
	if p.target.Kubernetes.IsZero() {
		return
	}

	var ailing []string

	for i := range p.nodes {
		if node := &p.nodes[i]; !node.held && node.Machine != nil {
			ailing = append(ailing, p.ailing(node)...)
		}
	}

	if len(ailing) == 0 {
		return
	}

	p.find(cluster.Finding{
		Check: checkReady, Severity: cluster.Advice,
		Found:  fmt.Sprintf("at Kubernetes %s and not Ready: %s", p.target.Kubernetes, listed(ailing)),
		Remedy: "Look at them (kubectl -n kube-system describe pods, kubectl describe node): no version has to change for them.",
	})
}

// ailing are the components of the node that run the target and are not Ready,
// each with what is known about that.
func (p *planner) ailing(node *subject) []string {
	var found []string

	for i := range node.parts {
		t := &node.parts[i]
		if !t.running.Equal(p.target.Kubernetes) || !t.lowest().Equal(p.target.Kubernetes) {
			continue
		}

		pod, there := node.Pods[t.component]

		switch {
		case t.component.Static() && there && !pod.Ready:
			found = append(found, ailment(t.component, node.Name, pod.Trouble))
		case t.component == cluster.Kubelet && node.Kube != nil && !node.Kube.Ready:
			found = append(found, ailment(t.component, node.Name, node.Kube.ReadyReason))
		}
	}

	return found
}

func ailment(component cluster.Component, node, trouble string) string {
	text := fmt.Sprintf("%s on %s", component, node)
	if trouble = strings.TrimSpace(trouble); trouble != "" {
		text += " (" + trouble + ")"
	}

	return text
}
