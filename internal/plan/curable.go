// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// curable is what the first turns of a roll may cure by themselves, or wait for.
type curable struct {
	// node is the one that goes first.
	node string
	// components tells that the first leg moves components, and steps are those of
	// it; otherwise the turn of the node cures all of it.
	components bool
	steps      []Step
	// last is the component that had the turn before the first one. A run that was
	// cut short may have left it in the middle of that, with nothing left to do
	// but to wait, which the guards of the first turn do.
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

// curable says it of the roll that was made. A later leg is too late for a cure:
// every turn before it would find the trouble, and stop.
func (p *planner) curable() curable {
	steps := p.made.Steps
	first := &steps[0]
	c := curable{node: first.Node, components: p.made.Hops[first.Hop].Axis == Kubernetes}

	if !c.components {
		return c
	}

	c.manifests = first.Component == cluster.Manifests
	c.last = p.before(component{first.Node, first.Component})
	c.steps = steps

	if later := slices.IndexFunc(steps, func(s Step) bool { return s.Hop != first.Hop }); later >= 0 {
		c.steps = steps[:later]
	}

	return c
}

// before is the component that has its turn before another one, whether it needs
// one or not; none where that is the first of all.
func (p *planner) before(next component) component {
	var last component

	ordered := p.componentNodes()

	for _, of := range componentOrder() {
		for _, node := range ordered {
			this := component{node.Name, of}
			if this == next {
				return last
			}

			if slices.ContainsFunc(node.parts, func(t part) bool { return t.component == of }) {
				last = this
			}
		}
	}

	return component{}
}

// moves tells whether the component has a turn in the first leg. What an earlier
// turn left broken there is gone on with: it crashes with the image that its turn
// waits for, or replaces.
func (c curable) moves(one component) bool {
	return slices.ContainsFunc(c.steps, func(s Step) bool { return s.Node == one.node && s.Component == one.of })
}

// readies tells whether the node may become Ready by the first turn, or is waited
// for. The turn of a component does it where the kubelet itself moves, or the API
// server that it talks to.
func (c curable) readies(node string) bool {
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

// restores tells whether a static pod may become Ready by the first turns, or is
// waited for. Where a kubelet restarts, the pods of its node are not Ready either.
func (c curable) restores(one component) bool {
	if !c.components {
		return one.node == c.node
	}

	// Below Talos 1.14 the API server restarts with the scheduler.
	taken := one.of == cluster.APIServer && (c.last == component{one.node, cluster.Scheduler})

	return c.moves(one) || c.last == one || taken || c.last == component{one.node, cluster.Kubelet}
}
