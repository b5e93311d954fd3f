// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// talosctl is a person with that.
func (s *stage) talosctl(t *rapid.T) {
	s.pass(t)

	rapid.SampledFrom([]func(*rapid.T){s.reboot, s.upgrade}).Draw(t, "talosctl")(t)
}

// kubectl is a person with that.
func (s *stage) kubectl(t *rapid.T) {
	s.pass(t)

	rapid.SampledFrom([]func(*rapid.T){s.uncordon, s.cordon, s.register, s.deleteNode}).Draw(t, "kubectl")(t)
}

// reboot reboots a node.
func (s *stage) reboot(t *rapid.T) {
	node := s.some(t, "")
	mode := rapid.SampledFrom([]model.RebootMode{model.RebootDefault, model.RebootPowercycle, model.RebootForce}).Draw(t, "mode")

	if err := s.World().RebootByHand(node, mode); err == nil {
		s.tell("person reboots", "%s, %s", node, mode)
		s.touched = time.Now()
	}
}

// upgrade upgrades a node: to what it runs, to what
// lies halfway, or to the target, as long as that goes neither back nor over a
// release line.
func (s *stage) upgrade(t *rapid.T) {
	node := s.some(t, "")
	choice := rapid.IntRange(0, 2).Draw(t, "to")

	state, err := s.World().Node(node)
	if err != nil {
		return
	}

	to, running := []string{state.Talos, s.hop.halfway, s.hop.toTalos}[choice], version.MustParse(state.Talos)
	if to == "" {
		to = state.Talos
	}

	next := version.MustParse(to)
	if next.Less(running) || next.Minor().Compare(running.Minor().Next()) > 0 || next.AtLeast(1, 14) {
		// There is no installer from 1.14 on that suits every machine.
		return
	}

	if err := s.World().UpgradeByHand(node, "ghcr.io/siderolabs/installer:v"+to); err == nil {
		s.tell("person upgrades", "%s from %s to %s", node, state.Talos, to)
		s.touched = time.Now()

		if state.UpgradePending {
			// Should this one fail, the machine starts what it ran before ours.
			s.excuse(excuse{
				why: "a person upgraded the node before its system had confirmed itself", node: node,
				invariants: []checker.Invariant{checker.S5}, says: "booted Talos", until: time.Hour,
			})
		}

		if state.Installing {
			s.armed(state, "a person upgraded the node while our installer ran")
		}
	}
}

// marked tells whether the node has a mark of ours: then nobody can tell a
// person's cordon from ours.
func (s *stage) marked(node string) bool {
	for _, view := range s.NodeViews() {
		if view.Name == node {
			return view.Cordoning.Run != ""
		}
	}

	return false
}

// cordon cordons one of the nodes that are not.
func (s *stage) cordon(t *rapid.T) {
	node := s.some(t, "")
	if state, err := s.World().Node(node); err != nil || state.Unschedulable || s.marked(node) || !s.World().Serving() {
		return
	}

	if err := s.CordonAsPerson(node, true); err == nil {
		s.tell("person cordons", "%s", node)
		s.cordoned[node] = true
		s.touched = time.Now()
	}
}

// uncordon lifts whatever cordon there is.
func (s *stage) uncordon(t *rapid.T) {
	node := s.some(t, "")
	if state, err := s.World().Node(node); err != nil || !state.Unschedulable || !s.World().Serving() {
		return
	}

	s.tell("person uncordons", "%s", node)
	s.lifted(node)

	if err := s.CordonAsPerson(node, false); err != nil {
		s.fail("unable to uncordon %s: %v", node, err)
	}
}

// lifted notes that a cordon is gone. A turn that relied on it goes on.
func (s *stage) lifted(node string) {
	delete(s.cordoned, node)
	s.excuse(excuse{
		why: "a person lifted the cordon", node: node, invariants: []checker.Invariant{checker.S10}, says: "uncordoned", until: time.Hour,
	})
}

// register has the kubelets register that have lost their Node objects.
func (s *stage) register(*rapid.T) {
	for _, node := range s.names("") {
		s.RegisterNode(node)
	}

	s.touched = time.Now()
}

// deleteNode deletes the Node object of a machine that goes on.
func (s *stage) deleteNode(t *rapid.T) {
	node := s.some(t, "")
	if !s.World().Serving() {
		return
	}

	if err := s.DeleteNodeAsPerson(node); err == nil {
		s.tell("person deletes Node", "%s", node)
		s.lifted(node)
	}
}

// renewal is how long a run may go on without noticing that its lease is gone.
const renewal = 12 * time.Second

// takeLease is a person who deletes the lease, or another program that writes it.
func (s *stage) takeLease(t *rapid.T) {
	s.pass(t)

	how := rapid.SampledFrom([]string{"deleted", "freed", "held by an intruder"}).Draw(t, "lease")
	if !s.World().Serving() {
		return
	}

	s.tell("lease "+how, "it was held by %q", s.Lease().Holder)
	s.excuse(excuse{why: "the lease was " + how, invariants: []checker.Invariant{checker.S7, checker.S12}, until: renewal})
	// A pull that is under way ends when it ends.
	s.excuse(excuse{
		why: "the lease was " + how, invariants: []checker.Invariant{checker.S7, checker.S12}, says: "Pull", until: cluster.PullTimeout,
	})

	switch how {
	case "deleted":
		s.DeleteLeaseAsPerson()
	case "freed":
		s.hold("")
	default:
		s.hold("intruder")
	}
}

func (s *stage) hold(holder string) {
	if err := s.HoldLease(holder); err != nil {
		s.fail("unable to write the lease: %v", err)
	}
}

// editJournal is a person who deletes the journal, or one entry of it, or spoils
// it. What may be installed on a node is then nowhere to be found any more.
func (s *stage) editJournal(t *rapid.T) {
	s.pass(t)

	how := rapid.SampledFrom([]string{"deleted", "one entry deleted", "boot ID lost", "phase changed"}).Draw(t, "journal")
	phase := rapid.SampledFrom([]cluster.Phase{cluster.PhaseIntent, cluster.PhaseInstalled, cluster.PhaseRebooting, cluster.PhaseFallback}).Draw(t, "phase")
	number := rapid.IntRange(0, 9).Draw(t, "entry")

	journal := s.Journal()
	if len(journal.Entries) == 0 || !s.World().Serving() {
		return
	}

	uuid := sortedKeys(journal.Entries)[number%len(journal.Entries)]
	entry := journal.Entries[uuid]

	s.tell("journal "+how, "%+v, %s", entry, phase)

	for _, lost := range journal.Entries {
		if how == "deleted" || lost == entry {
			s.forgotten(lost)
		}
	}

	switch how {
	case "deleted":
		s.DeleteJournalAsPerson()

		return
	case "boot ID lost":
		entry.BootID = ""
	case "phase changed":
		entry.Phase = phase
	}

	s.EditJournalAsPerson(func(j cluster.Journal) cluster.Journal {
		if how == "one entry deleted" {
			return j.Without(uuid)
		}

		return j.With(uuid, entry)
	})
}

// forgotten excuses what nobody can know any more of a node: that an installer
// has run there since its last boot, and that the way back was begun.
func (s *stage) forgotten(lost cluster.Entry) {
	state, err := s.World().Node(lost.Node)
	if err != nil {
		return
	}

	const why = "the journal of the node was tampered with"

	s.armed(state, why)
	s.excuse(excuse{
		why: why, node: lost.Node, invariants: []checker.Invariant{checker.S5}, says: "booted Talos", until: time.Hour,
	})
}

// armed excuses that two installers run between two boots of a machine.
func (s *stage) armed(state model.NodeState, why string) {
	s.excuse(excuse{
		why: why, node: state.Name, invariants: []checker.Invariant{checker.S4}, says: "an installer had run since the last boot " + state.BootID,
	})
}

// gitOps rewrites or removes what we have written on objects.
func (s *stage) gitOps(t *rapid.T) {
	s.pass(t)

	how := rapid.SampledFrom([]string{"annotations removed", "annotations rewritten", "mark removed"}).Draw(t, "how")
	node := s.some(t, "")

	if !s.World().Serving() {
		return
	}

	if how == "mark removed" {
		if s.UnmarkAsPerson(node) {
			// Nobody can tell any more that the cordon is ours.
			s.tell("GitOps "+how, "%s", node)
			s.cordoned[node] = true
			s.touched = time.Now()
		}

		return
	}

	changes := map[string]string{}

	for key := range s.Annotations() {
		changes[key] = ""

		if strings.HasSuffix(how, "rewritten") {
			changes[key] = "whatever Git says"
		}
	}

	s.tell("GitOps "+how, "%d", len(changes))
	s.AnnotateAsPerson(changes)
}

func sortedKeys[V any](of map[string]V) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}

	slices.Sort(keys)

	return keys
}
