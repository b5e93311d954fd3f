// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// schedule gives every node its turns, hop by hop.
func (p *planner) schedule() {
	last := map[Axis]int{}

	for index, hop := range p.made.Hops {
		last[hop.Axis] = index
	}

	p.made.Steps = make([]Step, 0, len(p.nodes)*len(p.made.Hops))

	for index, hop := range p.made.Hops {
		switch {
		case hop.Axis == Talos:
			p.scheduleTalos(index, hop, index == last[Talos])
		case index == 0:
			p.scheduleUnfinished()

			fallthrough
		default:
			p.scheduleComponents(index, hop, index == last[Kubernetes])
		}

		p.scheduleManifests(index, hop)
	}

	p.scheduleSync()
	p.dropSync()

	if len(p.made.Steps) == 0 {
		p.made.Steps = nil
	}
}

// scheduleTalos gives each node that the hop concerns its turn.
func (p *planner) scheduleTalos(index int, hop Hop, last bool) {
	for _, node := range p.order(index) {
		switch {
		case p.concerns(node, hop, last):
			p.made.Steps = append(p.made.Steps, p.talosStep(node, index, hop, last))
			node.moves++
		case index == 0 && node.unfinished():
			p.made.Steps = append(p.made.Steps, p.unfinishedStep(node))
		default:
			continue
		}

		node.steps++
	}
}

// concerns tells whether the node has a turn in the hop. A node whose release
// line the hop only crosses is spared the reboot.
func (p *planner) concerns(node *subject, hop Hop, last bool) bool {
	if last {
		return node.talos.Compare(hop.To.Talos) <= 0 && !p.atTarget(node)
	}

	return node.talos.Minor().Compare(hop.To.Talos.Minor()) < 0
}

// talosStep moves the node to the end of the hop, and takes note of that.
func (p *planner) talosStep(node *subject, index int, hop Hop, last bool) Step {
	step := Step{
		Hop: index, Canary: node.canary, Estimate: turnEstimate,
		Node: node.Name, Role: node.Role, Address: node.Address, Key: node.key,
		From: node.talos, To: hop.To.Talos, Finish: node.steps == 0 && node.unfinished(),
	}

	switch {
	case node.Machine == nil && step.Finish:
		step.Image = node.entry.Image
	case node.Machine == nil:
		// Nothing better is known until the node answers again.
		running := cluster.Machine{Schematic: node.entry.PreviousSchematic, Platform: node.entry.Platform, Config: &cluster.MachineConfig{InstallImage: node.entry.Image}}
		choice, _ := p.chooseImage(&cluster.Node{Name: node.Name, Machine: &running}, step.To)
		step.Image, step.API = choice.Reference, cluster.Machine{Talos: step.From}.UpgradeAPI()
	default:
		choice := node.choice
		if !last {
			// What speaks against the last one is a finding, and it says the same.
			choice, _ = p.chooseImage(node.installed(), step.To)
		}

		step.Image, step.Schematic, step.Demanded = choice.Reference, choice.Schematic, choice.Demanded
		step.API = cluster.Machine{Talos: step.From}.UpgradeAPI()

		p.checkStep(node, step)
	}

	node.talos = step.To

	return step
}

// scheduleUnfinished puts what an earlier run left before a hop of Kubernetes.
func (p *planner) scheduleUnfinished() {
	for _, node := range p.order(0) {
		if node.unfinished() {
			p.made.Steps = append(p.made.Steps, p.unfinishedStep(node))
			node.steps++
		}
	}
}

// unfinishedStep brings a node back into service that has nothing to move in
// this hop.
func (p *planner) unfinishedStep(node *subject) Step {
	step := Step{
		Canary: node.canary, Estimate: returnEstimate,
		Node: node.Name, Role: node.Role, Address: node.Address, Key: node.key,
		From: node.talos, To: node.talos, Finish: true,
	}

	if node.Machine == nil {
		step.Image = node.entry.Image
		if !node.entry.Target.IsZero() {
			step.To, node.talos = node.entry.Target, node.entry.Target
		}

		return step
	}

	step.Done, step.API = true, node.Machine.UpgradeAPI()

	if p.atTarget(node) {
		step.Image, step.Schematic, step.Demanded = node.choice.Reference, node.choice.Schematic, node.choice.Demanded
	}

	return step
}

// order is the order in which the nodes have their turns in a hop of Talos. What
// an earlier run left unfinished comes first, because nothing else may be
// disturbed before it is whole: of that, what does not answer comes last, so
// that it keeps nothing else from being finished, and what is in service still
// comes after what is not. Then the canaries; then, within the demanded
// order of roles, the nodes that are unavailable anyway, because they cost
// nothing.
func (p *planner) order(hop int) []*subject {
	first := cluster.Worker
	if p.policy.Order == cluster.ControlPlanesFirst {
		first = cluster.ControlPlane
	}

	ordered := make([]*subject, 0, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; p.movable(node) {
			ordered = append(ordered, node)
		}
	}

	slices.SortStableFunc(ordered, func(a, b *subject) int {
		return cmp.Or(
			falseLast(hop == 0 && a.unfinished(), hop == 0 && b.unfinished()),
			falseLast(hop == 0 && a.stranded(), hop == 0 && b.stranded()),
			falseLast(hop == 0 && a.unfinished() && a.Machine != nil, hop == 0 && b.unfinished() && b.Machine != nil),
			falseLast(a.canary, b.canary),
			falseLast(a.Role == first, b.Role == first),
			falseLast(a.unavailable(), b.unavailable()),
			cmp.Compare(a.Name, b.Name),
		)
	})

	return ordered
}

// stranded tells that an earlier run left the node unfinished and out of
// service, and that it answers.
func (s *subject) stranded() bool { return s.unfinished() && s.Machine != nil && !s.Available() }

// unavailable tells whether the node will be so when its turn in this hop
// comes: whoever had a turn is back in service, except under a cordon that is
// not ours or where Kubernetes does not know it.
func (s *subject) unavailable() bool {
	if s.turns() {
		return s.Kube == nil || s.cordonedElsewhere()
	}

	return !s.Available()
}

func falseLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
