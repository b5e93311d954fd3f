// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// componentOrder is the order in which the parts of Kubernetes move: no part is
// ever newer than the API servers, and kubelets come last.
func componentOrder() [5]cluster.Component {
	return [...]cluster.Component{cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Proxy, cluster.Kubelet}
}

// scheduleComponents gives each component that the hop concerns its turn: one
// kind on all nodes, then the next. Another image of the same version is a matter
// of the last hop of Kubernetes.
func (p *planner) scheduleComponents(index int, hop Hop, last bool) {
	ordered := p.componentNodes()
	to := hop.To.Kubernetes

	for _, component := range componentOrder() {
		for _, node := range ordered {
			at := slices.IndexFunc(node.parts, func(t part) bool { return t.component == component })
			if at < 0 {
				continue
			}

			part := &node.parts[at]
			from := part.lowest()

			// What is ahead is refused, and not moved for its image either.
			demanded := last && p.wants(node, part) && version.Highest(part.running, part.named).Compare(to) <= 0

			if demanded || (!from.IsZero() && p.lags(from, to)) {
				p.made.Steps = append(p.made.Steps, p.componentStep(node, part, index, to))
				node.steps++
				node.restarts++
			}
		}
	}
}

// componentStep moves the component to the end of the hop, and takes note of
// that.
func (p *planner) componentStep(node *subject, t *part, index int, to version.Version) Step {
	step := Step{
		Hop: index, Component: t.component, Canary: node.canary && t.component == cluster.Kubelet, Estimate: componentEstimate(t.component, node.talos),
		Node: node.Name, Role: node.Role, Address: node.Address, Key: node.key, From: t.lowest(), To: to, Configured: t.image,
	}

	// What a node names that does not answer, or does not tell, is not guessed.
	if node.Machine != nil && node.Machine.Config != nil {
		choice, err := image.Component(t.image, p.policy.Kubernetes.Images[t.component], string(t.component), to)
		if err != nil {
			p.checkComponentImage(node, t, err)
		}

		if choice.Digest != "" {
			node.digests = append(node.digests, t.component)
		}

		step.Image = choice.Reference
	}

	t.reaches(to, step.Image)

	return step
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
