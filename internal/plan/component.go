// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// componentOrder is the order in which the parts of Kubernetes move: no part is
// ever newer than the API servers, and kubelets come last.
func componentOrder() [5]cluster.Component {
	return [...]cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy, cluster.Kubelet}
}

// scheduleComponents gives each component that the hop concerns its turn: one
// kind on all nodes, then the next. Before is where the hop of Kubernetes before
// this one ended; zero when there was none.
func (p *planner) scheduleComponents(index int, hop Hop, before version.Version) {
	ordered := p.componentNodes()
	to := hop.To.Kubernetes

	for _, component := range componentOrder() {
		for _, node := range ordered {
			running, found := node.Versions[component]
			if !found {
				continue
			}

			// What the hop before moved runs where that ended.
			if !before.IsZero() && running.Minor().Compare(before.Minor()) < 0 {
				running = before
			}

			if !p.lags(running, to) {
				continue
			}

			p.made.Steps = append(p.made.Steps, Step{
				Hop: index, Component: component, Canary: node.canary && component == cluster.Kubelet, Estimate: componentEstimate(component),
				Node: node.Name, Role: node.Role, Address: node.Address, UUID: node.uuid, From: running, To: to,
			})
			node.steps++
		}
	}
}

// lags tells whether a component has a turn in the hop to a version. One whose
// release line the hop only crosses is spared it.
func (p *planner) lags(running, to version.Version) bool {
	if to.Equal(p.target.Kubernetes) {
		return running.Less(to)
	}

	return running.Minor().Compare(to.Minor()) < 0
}

// componentNodes are the nodes in the order in which one kind of component
// moves: canaries, control planes, workers.
func (p *planner) componentNodes() []*subject {
	ordered := make([]*subject, 0, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; !node.held && (node.Machine != nil || p.movable(node)) {
			ordered = append(ordered, node)
		}
	}

	slices.SortStableFunc(ordered, func(a, b *subject) int {
		return cmp.Or(
			falseLast(a.canary, b.canary),
			falseLast(a.Role == cluster.ControlPlane, b.Role == cluster.ControlPlane),
			cmp.Compare(a.Name, b.Name),
		)
	})

	return ordered
}
