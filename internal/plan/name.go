// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkNames holds the nodes that the configuration names against those that
// are there.
func (p *planner) checkNames() {
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
		case p.policy.Holds(name):
			finding.Found = fmt.Sprintf("%s is to be left alone (node_overrides) and to move first (canary)", name)
			finding.Remedy = "Remove it from canary, or take its hold away."
		default:
			continue
		}

		p.find(finding)
	}

	p.checkOverrides(roles)
}

// checkOverrides wants a node for every entry of node_overrides.
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
		p.find(finding)
	}
}

// absence says that there is no such node. While not all nodes could be listed
// that is only what it looks like.
func (p *planner) absence(name string) (cluster.Severity, string) {
	switch {
	case slices.Contains(p.snapshot.Foreign, name):
		return cluster.Permanent, name + " does not run Talos"
	case p.snapshot.KubernetesError != nil || p.snapshot.DiscoveryError != nil:
		return cluster.Observed, fmt.Sprintf("there seems to be no node %s; not all nodes could be listed", name)
	default:
		return cluster.Permanent, fmt.Sprintf("there is no node %s in the cluster", name)
	}
}
