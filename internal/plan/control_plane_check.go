// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkControlPlanes wants every control plane whole before the first node is
// disturbed, whichever that is, but for what the first turns may cure.
func (p *planner) checkControlPlanes() {
	if p.snapshot.KubernetesError != nil {
		p.adviseUntold()

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

// adviseUntold says what nobody can tell without the Kubernetes API, whose silence
// is an error of its own.
func (p *planner) adviseUntold() {
	for _, untold := range []struct{ check, what string }{
		{cluster.CheckNodesReady, "whether the nodes are Ready"},
		{cluster.CheckControlPlane, "whether the components of the control planes are Ready"},
	} {
		p.find(cluster.Finding{
			Check: untold.check, Severity: cluster.Advice, Unknown: true, Err: p.snapshot.KubernetesError,
			Found:  untold.what + " is not known, because the Kubernetes API did not answer",
			Remedy: "Make the Kubernetes API answer, which finds out.",
		})
	}
}

func (p *planner) checkNodeReady(node *subject) {
	if node.Kube.Ready {
		return
	}

	found := "this control plane is not Ready in Kubernetes"
	if node.Kube.ReadyReason != "" {
		found += " (" + node.Kube.ReadyReason + ")"
	}

	p.find(cluster.Finding{
		Check: cluster.CheckNodesReady, Severity: cluster.Observed, Node: node.Name, Found: found,
		Remedy: fmt.Sprintf("Bring it back to health first (kubectl describe node %s, talosctl -n %s health).", node.Name, node.Address),
	})
}

// checkStaticPods wants the control plane's own pods Ready. What is switched off
// is no part of the node.
func (p *planner) checkStaticPods(node *subject, c curable) {
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
		p.find(finding)
	}

	finding.Unknown = true

	if len(missing) > 0 {
		finding.Found = fmt.Sprintf("no pod of %s is known on this control plane", strings.Join(missing, ", "))
		p.find(finding)
	}

	if len(outdated) > 0 {
		finding.Found = fmt.Sprintf("Kubernetes still shows %s as before this control plane booted or made them anew", strings.Join(outdated, ", "))
		finding.Remedy = fmt.Sprintf("Wait: its kubelet reports them within three minutes. "+
			"If they stay like that, look at it (talosctl -n %s logs kubelet).", node.Address)
		p.find(finding)
	}
}

// troubled adds what is known about it to what is not Ready.
func troubled(what, trouble string) string {
	if trouble = strings.TrimSpace(trouble); trouble != "" {
		what += " (" + trouble + ")"
	}

	return what
}
