// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// checkNames checks that the nodes named in the configuration exist.
func (p *planner) checkNames() {
	p.add(p.selected...)

	if len(p.policy.Canary)+len(p.policy.Hold)+len(p.policy.Images)+len(p.policy.Retry) == 0 {
		return
	}

	roles := make(map[string]cluster.Role, len(p.snapshot.Nodes))
	for i := range p.snapshot.Nodes {
		roles[p.snapshot.Nodes[i].Name] = p.snapshot.Nodes[i].Role
	}

	for index, name := range p.policy.Canary {
		finding := cluster.Finding{
			Check: cluster.CheckCanary, Severity: cluster.Permanent, Attribute: attributeCanary, Within: []cluster.Within{cluster.Index(index)},
			Remedy: "Name workers of this cluster, as kubectl get nodes prints them.",
		}

		role, there := roles[name]

		switch {
		case !there:
			finding.Severity, finding.Found = p.absence(name)
			finding.Unknown = finding.Severity == cluster.Observed
		case role == cluster.ControlPlane:
			finding.Found = fmt.Sprintf("%s is a control plane, and only workers can be canaries", name)
		case p.policy.Hold[name]:
			finding.Found = fmt.Sprintf("%s is to be left alone (node_overrides) and to move first (canary)", name)
			finding.Remedy = "Remove it from canary, or take its hold away."
		default:
			continue
		}

		p.add(finding)
	}

	p.checkOverrides(roles)
}

// checkOverrides requires a node for every entry of node_overrides.
func (p *planner) checkOverrides(roles map[string]cluster.Role) {
	named := map[string]bool{}

	for name := range p.policy.Hold {
		named[name] = true
	}

	for name := range p.policy.Images {
		named[name] = true
	}

	for name := range p.policy.Retry {
		named[name] = true
	}

	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, there := roles[name]; there {
			continue
		}

		finding := cluster.Finding{
			Check: cluster.CheckNodeOverrides, Attribute: attributeOverrides, Within: []cluster.Within{cluster.Key(name)},
			Remedy: "Name nodes of this cluster, as kubectl get nodes prints them, or remove the entry.",
		}

		finding.Severity, finding.Found = p.absence(name)
		finding.Unknown = finding.Severity == cluster.Observed
		p.add(finding)
	}
}

// absence says that there is no such node. If not all nodes could be listed, that is not certain.
func (p *planner) absence(name string) (cluster.Severity, string) {
	switch {
	case slices.Contains(p.snapshot.Foreign, name):
		return cluster.Permanent, name + " does not run Talos"
	case slices.ContainsFunc(p.snapshot.Stale, func(node cluster.StaleNode) bool { return node.Name == name }):
		return cluster.Permanent, name + " is a stale Node object, which no machine has any more"
	case p.snapshot.KubernetesError != nil || p.snapshot.DiscoveryError != nil:
		return cluster.Observed, fmt.Sprintf("there seems to be no node %s; not all nodes could be listed", name)
	default:
		return cluster.Permanent, fmt.Sprintf("there is no node %s in the cluster", name)
	}
}

// How many minor versions the parts of Kubernetes may be apart (the version skew policy of Kubernetes).
const (
	kubeletBehind      = 3
	controlPlaneBehind = 1
)

// checkHeld checks the nodes that the policy leaves alone: whether an earlier run left them unfinished, and
// whether the path of the other nodes would leave them unsupported.
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

		finding := cluster.Finding{Node: node.Name}
		finding.Attribute, finding.Within = holdAt(p.policy, node.Name)

		if node.unfinished() {
			finding.Check, finding.Severity = cluster.CheckPendingInstall, cluster.Observed
			finding.Found = "the node is to be left alone, but an earlier run left it in the middle of its upgrade"
			finding.Remedy = "Take its hold away and apply, so that its upgrade is finished; then hold it again."
			p.add(finding)
		}

		for index, hop := range p.made.Hops {
			left := p.leaves(node, hop, moved[index])
			if left == "" {
				continue
			}

			finding.Check, finding.Severity = cluster.CheckCompatibility, cluster.Permanent
			finding.Found = fmt.Sprintf("the node is held, and the path of the other nodes to %s would leave it unsupported: %s", hop.To, left)
			finding.Remedy = "Take its hold away, or choose versions that it can stay behind."
			p.add(finding)

			break
		}
	}
}

// leaves says how a hop leaves a held node unsupported; empty if it does not.
func (p *planner) leaves(node *plannedNode, hop Hop, moved map[cluster.Component]bool) string {
	if hop.Product == version.Talos {
		return p.leavesTalos(node, hop)
	}

	if node.Machine != nil && p.loses(node.talos, node.talos, hop.From.Kubernetes, hop.To.Kubernetes) {
		return mismatch(node.talos, hop.To.Kubernetes) + ", and it runs that Talos"
	}

	return leavesSkewed(node, hop, moved)
}

// leavesTalos checks the node's components, as they run and as they would start again, against the Talos of the
// other nodes.
func (p *planner) leavesTalos(node *plannedNode, hop Hop) string {
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

// loses reports whether a supported pair becomes one that is not supported.
func (p *planner) loses(talosFrom, talosTo, kubernetesFrom, kubernetesTo version.Version) bool {
	return p.walk.supports(talosFrom, kubernetesFrom) && !p.walk.supports(talosTo, kubernetesTo)
}

// leavesSkewed checks the node's components against the API servers that the hop moves, and the kubelets that it
// moves against the node's API server.
func leavesSkewed(node *plannedNode, hop Hop, moved map[cluster.Component]bool) string {
	to := hop.To.Kubernetes

	for i := range node.parts {
		component, running := node.parts[i].component, node.parts[i].lowest()
		if running.IsZero() || component == cluster.Proxy {
			// kube-proxy is one DaemonSet: its pods move on held nodes as well.
			continue
		}

		most := controlPlaneBehind
		if component == cluster.Kubelet {
			most = kubeletBehind
		}

		if moved[cluster.APIServer] && behind(running, to) > most {
			return fmt.Sprintf("its %s %s would be %d minor versions behind the API servers, and %d is the most", component, running, behind(running, to), most)
		}

		if component == cluster.APIServer && moved[cluster.Kubelet] && behind(running, to) > 0 {
			return fmt.Sprintf("kubelets on %s would be newer than its kube-apiserver %s", to, running)
		}
	}

	return ""
}

// movedBy returns the components that the hop moves on any node.
func (p *planner) movedBy(hop Hop) map[cluster.Component]bool {
	moved := map[cluster.Component]bool{}
	if hop.Product == version.Talos {
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

// behind returns how many minor versions the first version is behind the second; negative if it is ahead.
func behind(running, to version.Version) int {
	// Minor versions are small numbers, so neither conversion overflows.
	return int(to.Minor().Minor) - int(running.Minor().Minor)
}
