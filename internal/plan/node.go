// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// plannedNode is a node with what planning needs to know about it.
type plannedNode struct {
	*cluster.Node

	// key is the key of the node's entry in the journal.
	key          string
	held, canary bool
	// poolName is the pool of a worker; empty if it has none.
	poolName string
	// entry is what the journal records; open is true if it is unfinished.
	entry cluster.Entry
	open  bool
	// talos is what the node runs or, if it does not answer in the middle of its step, what it ran before.
	talos version.Version
	// choice is the image of the target, and refused what speaks against it; choice has no reference if an
	// objection was not accepted.
	choice  image.Choice
	refused []error
	// parts are the components that the node's configuration controls, pod is the version of its kube-proxy pod;
	// zero if it does not count.
	parts []componentState
	pod   version.Version
	// digests are the components that lose the digest of their image.
	digests []cluster.Component
	// steps is the number of steps, moves the number of those that install Talos, restarts the number of those
	// that move a component.
	steps, moves, restarts int
	// spare is true if the node returns to service before its move; see scheduleReturns.
	spare bool
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

// installed returns the node on the platform that it ran on before a run of ours installed anything, for the
// choice of its image.
func (s *plannedNode) installed() *cluster.Node {
	if !s.open || s.entry.Platform == "" {
		return s.Node
	}

	node, machine := *s.Node, *s.Machine
	machine.Platform = s.entry.Platform
	node.Machine = &machine

	return &node
}

// unfinished reports whether a run of ours left the node in the middle of its step: with an open entry in the
// journal, or with our cordon. A spare node is not unfinished any more once its return is planned.
func (s *plannedNode) unfinished() bool {
	if s.spare && s.steps > 0 {
		return false
	}

	return s.open || (s.Kube != nil && s.Kube.Unschedulable && s.Kube.CordonedBy != "")
}

// booted reports whether either API says that the node is in the boot with that ID.
func (s *plannedNode) booted(id string) bool {
	return id != "" && (s.Machine != nil && s.Machine.BootID == id || s.Kube != nil && s.Kube.BootID == id)
}

// contained reports whether Talos runs in a container.
func (s *plannedNode) contained() bool { return s.Machine != nil && s.Machine.Platform == "container" }

// hasNodeStep reports whether the node has a step that moves Talos or finishes one.
func (s *plannedNode) hasNodeStep() bool {
	return s.moves > 0 || (s.steps > 0 && (s.spare || s.unfinished()))
}

// cordonedElsewhere reports whether the node has a cordon that is not ours, and therefore stays.
func (s *plannedNode) cordonedElsewhere() bool {
	return s.Kube != nil && s.Kube.Unschedulable && s.Kube.CordonedBy == ""
}

// ahead reports whether the node runs a newer Talos than the target.
func (p *planner) ahead(s *plannedNode) bool {
	return s.Machine != nil && !p.target.Talos.IsZero() && s.talos.Compare(p.target.Talos) > 0
}

// movable reports whether the node can have a step of Talos. A node that does not answer has one only if an
// earlier run left it unfinished.
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

// atTarget reports whether the node needs no install: it has the version of the target and, if one is demanded,
// the schematic.
func (p *planner) atTarget(s *plannedNode) bool {
	if !s.talos.Equal(p.target.Talos) {
		return false
	}

	return s.Machine == nil || !s.choice.Demanded || s.Machine.Schematic == s.choice.Schematic
}

// override returns the repository that the configuration sets for the node.
func (p *planner) override(node string) string {
	return cmp.Or(p.policy.Image(node), p.target.InstallerImage)
}
