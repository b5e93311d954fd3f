// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// How far apart the parts of Kubernetes may be, in release lines (the version
// skew policy of Kubernetes).
const (
	kubeletBehind      = 3
	controlPlaneBehind = 1
)

// checkHeld looks at the nodes that the policy leaves alone: what an earlier
// run left on them, and what the others' way would make of them.
func (p *planner) checkHeld() {
	if len(p.made.Held) == 0 {
		return
	}

	moved := make([]map[cluster.Component]bool, len(p.made.Hops))
	for index, hop := range p.made.Hops {
		moved[index] = p.movedBy(hop)
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if !node.held {
			continue
		}

		finding := cluster.Finding{
			Node: node.Name, Attribute: attributeOverrides, Within: []cluster.Within{cluster.Key(node.Name), fieldHold},
		}

		if node.unfinished() {
			finding.Check, finding.Severity = cluster.CheckPendingInstall, cluster.Observed
			finding.Found = "the node is to be left alone, but an earlier run left it in the middle of its turn"
			finding.Remedy = "Take its hold away and apply, so that its turn is finished; then hold it again."
			p.find(finding)
		}

		for index, hop := range p.made.Hops {
			left := p.leaves(node, hop, moved[index])
			if left == "" {
				continue
			}

			finding.Check, finding.Severity = cluster.CheckCompatibility, cluster.Permanent
			finding.Found = fmt.Sprintf("the node is held, and the way of the other nodes to %s would leave it unsupported: %s", hop.To, left)
			finding.Remedy = "Take its hold away, or choose versions that it can stay behind."
			p.find(finding)

			break
		}
	}
}

// leaves says in which way a hop leaves a held node unsupported; empty when it
// does not.
func (p *planner) leaves(node *subject, hop Hop, moved map[cluster.Component]bool) string {
	if hop.Axis == Talos {
		return p.leavesTalos(node, hop)
	}

	if node.Machine != nil && p.loses(node.talos, node.talos, hop.From.Kubernetes, hop.To.Kubernetes) {
		return mismatch(node.talos, hop.To.Kubernetes) + ", and it runs that Talos"
	}

	return leavesSkewed(node, hop, moved)
}

// leavesTalos holds the node's components, as they run and as they would start
// again, against the Talos of the others.
func (p *planner) leavesTalos(node *subject, hop Hop) string {
	for i := range node.parts {
		t := &node.parts[i]
		for _, at := range []version.Version{t.running, t.named} {
			if p.loses(hop.From.Talos, hop.To.Talos, at, at) {
				return fmt.Sprintf("%s, and its %s is %s", mismatch(hop.To.Talos, at), t.component, at)
			}
		}
	}

	return ""
}

// loses tells whether a pair that was supported becomes one that is not.
func (p *planner) loses(talosFrom, talosTo, kubernetesFrom, kubernetesTo version.Version) bool {
	return p.walk.supports(talosFrom, kubernetesFrom) && !p.walk.supports(talosTo, kubernetesTo)
}

// leavesSkewed holds the node's components against the API servers that the
// hop moves, and the kubelets that it moves against the node's API server.
func leavesSkewed(node *subject, hop Hop, moved map[cluster.Component]bool) string {
	to := hop.To.Kubernetes

	for i := range node.parts {
		component, running := node.parts[i].component, node.parts[i].lowest()
		if running.IsZero() || component == cluster.Proxy {
			// The proxies are one DaemonSet: they move on held nodes as well.
			continue
		}

		most := controlPlaneBehind
		if component == cluster.Kubelet {
			most = kubeletBehind
		}

		if moved[cluster.APIServer] && behind(running, to) > most {
			return fmt.Sprintf("its %s %s would be %d release lines behind the API servers, and %d is the most", component, running, behind(running, to), most)
		}

		if component == cluster.APIServer && moved[cluster.Kubelet] && behind(running, to) > 0 {
			return fmt.Sprintf("kubelets on %s would be newer than its kube-apiserver %s", to, running)
		}
	}

	return ""
}

// movedBy tells which components the hop moves on any node.
func (p *planner) movedBy(hop Hop) map[cluster.Component]bool {
	moved := map[cluster.Component]bool{}
	if hop.Axis == Talos {
		return moved
	}

	for i := range p.nodes {
		node := &p.nodes[i]
		if node.held {
			continue
		}

		for j := range node.parts {
			if at := node.parts[j].lowest(); !at.IsZero() && p.lags(at, hop.To.Kubernetes) {
				moved[node.parts[j].component] = true
			}
		}
	}

	return moved
}

// behind is how many release lines the one is behind the other; negative when
// it is ahead.
func behind(running, to version.Version) int {
	// Release lines are small numbers, so that neither conversion overflows.
	return int(to.Minor().Minor) - int(running.Minor().Minor)
}
