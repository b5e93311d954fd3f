// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// plannedNode is a node with what planning has to know of it again and again.
type plannedNode struct {
	*cluster.Node

	// key is the one of the node's entry in the journal.
	key          string
	held, canary bool
	// poolName is the pool of a worker; empty where there is none.
	poolName string
	// entry is what the journal knows; open tells that it is unfinished.
	entry cluster.Entry
	open  bool
	// talos is what the node runs. Of a silent node in the middle of its step
	// it is what it ran before.
	talos version.Version
	// choice is the image of the target, and refused what speaks against it; it
	// has no reference where that was not accepted.
	choice  image.Choice
	refused []error
	// parts are the components that the node's configuration decides about, pod
	// is the version of its kube-proxy pod where that counts.
	parts []componentState
	pod   version.Version
	// digests are the components that lose the digest of their image.
	digests []cluster.Component
	// steps counts the steps, moves those of them that install Talos, restarts
	// those that move a component.
	steps, moves, restarts int
}

func (p *planner) describe(node *cluster.Node) plannedNode {
	s := plannedNode{Node: node, key: node.MachineID(), held: p.policy.Holds(node.Name), poolName: p.policy.Selected.PoolOf(node.Name)}
	s.canary = p.canaries[node.Name] && node.Role == cluster.Worker
	s.pod = p.proxyPod(node)
	s.parts = p.componentStates(&s)

	if p.snapshot.Journal != nil {
		key, entry, found := p.snapshot.Journal.Of(*node)
		s.key, s.entry, s.open = key, entry, found && entry.Open()
	}

	if node.Machine == nil {
		s.talos = s.entry.Previous

		return s
	}

	s.talos = node.Machine.Talos

	if !s.held && !p.target.Talos.IsZero() {
		s.choice, s.refused = p.chooseImage(s.installed(), p.target.Talos)
	}

	return s
}

// installed is the node as the choice of its image sees it: on the platform that
// it ran on before a run of ours installed anything.
func (s *plannedNode) installed() *cluster.Node {
	if !s.open || s.entry.Platform == "" {
		return s.Node
	}

	node, machine := *s.Node, *s.Machine
	machine.Platform = s.entry.Platform
	node.Machine = &machine

	return &node
}

// unfinished tells that a run of ours left the node in the middle of its step:
// with an open entry in the journal, or with our cordon.
func (s *plannedNode) unfinished() bool {
	return s.open || (s.Kube != nil && s.Kube.Unschedulable && s.Kube.CordonedBy != "")
}

// booted tells whether the node is in the boot with the ID, as far as anybody says.
func (s *plannedNode) booted(id string) bool {
	return id != "" && (s.Machine != nil && s.Machine.BootID == id || s.Kube != nil && s.Kube.BootID == id)
}

// contained tells that Talos runs in a container.
func (s *plannedNode) contained() bool { return s.Machine != nil && s.Machine.Platform == "container" }

// hasNodeStep tells whether the node has a step that moves Talos or finishes one.
func (s *plannedNode) hasNodeStep() bool {
	return s.moves > 0 || (s.steps > 0 && s.unfinished())
}

// cordonedElsewhere tells that the cordon is not ours, so that it stays.
func (s *plannedNode) cordonedElsewhere() bool {
	return s.Kube != nil && s.Kube.Unschedulable && s.Kube.CordonedBy == ""
}

// ahead tells that the node runs a newer Talos than the target.
func (p *planner) ahead(s *plannedNode) bool {
	return s.Machine != nil && !p.target.Talos.IsZero() && s.talos.Compare(p.target.Talos) > 0
}

// movable tells whether Talos can be moved on the node at all: one that does
// not answer has a step only when an earlier run left it in the middle of it.
func (p *planner) movable(s *plannedNode) bool {
	switch {
	case s.held, p.target.Talos.IsZero(), p.blocked, p.ahead(s):
		return false
	case s.Machine == nil:
		return s.open
	default:
		return !s.talos.IsZero()
	}
}

// atTarget is the rule of what counts as done: the version, and the schematic
// where one is demanded.
func (p *planner) atTarget(s *plannedNode) bool {
	if !s.talos.Equal(p.target.Talos) {
		return false
	}

	return s.Machine == nil || !s.choice.Demanded || s.Machine.Schematic == s.choice.Schematic
}

// override is the repository that the configuration names for the node.
func (p *planner) override(node string) string {
	return cmp.Or(p.policy.Image(node), p.target.InstallerImage)
}
