// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// talosctl is a person who uses talosctl.
func (s *stage) talosctl(t *rapid.T) {
	s.pass(t)

	rapid.SampledFrom([]func(*rapid.T){s.reboot, s.upgrade}).Draw(t, "talosctl")(t)
}

// kubectl is a person who uses kubectl.
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

// upgrade upgrades a node: to what it runs, to what lies halfway, or to the target, unless that is a downgrade or
// skips a minor version.
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
		// From 1.14 on no installer suits every machine.
		return
	}

	if err := s.World().UpgradeByHand(node, "ghcr.io/siderolabs/installer:v"+to); err == nil {
		s.tell("person upgrades", "%s from %s to %s", node, state.Talos, to)
		s.touched = time.Now()

		if state.UpgradePending {
			// If this one fails, the machine starts what it ran before ours.
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

// marked reports whether the node has a mark of ours or of Talos. A person's cordon cannot be told from theirs then.
func (s *stage) marked(node string) bool {
	cordon := s.Cordons()[node]

	return cordon.Run != "" || cordon.Talos
}

// cordon cordons a node that is not cordoned yet.
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

// uncordon lifts the cordon of a node, whoever set it.
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

// lifted records that a cordon is gone. A turn that relied on it goes on.
func (s *stage) lifted(node string) {
	delete(s.cordoned, node)
	s.excuse(excuse{
		why: "a person lifted the cordon", node: node, invariants: []checker.Invariant{checker.S10}, says: "uncordoned", until: time.Hour,
	})
}

// register makes the kubelets register whose Node objects were deleted.
func (s *stage) register(*rapid.T) {
	for _, node := range s.names("") {
		s.RegisterNode(node)
	}

	s.touched = time.Now()
}

// deleteNode deletes the Node object of a machine that keeps running.
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

// renewal is how long a run may go on before it notices that it has lost its lease. If it is cut off meanwhile, it may
// go on for as long as nobody else may take the lease.
const renewal, abandoned = 12 * time.Second, 30 * time.Second

// takeLease is a person who deletes the lease, or another program that writes it.
func (s *stage) takeLease(t *rapid.T) {
	s.pass(t)

	how := rapid.SampledFrom([]string{"deleted", "freed", "held by an intruder"}).Draw(t, "lease")
	if !s.World().Serving() {
		return
	}

	s.tell("lease "+how, "it was held by %q", s.Lease().Holder)
	s.excuse(excuse{why: "the lease was " + how, invariants: []checker.Invariant{checker.S7, checker.S12}, until: s.notices()})
	s.taken = s.World().Now()
	// A pull that has started is not stopped.
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

// notices returns how long a run may go on without knowing of the loss of its lease.
func (s *stage) notices() time.Duration {
	if time.Now().Before(s.cut) {
		return abandoned
	}

	return renewal
}

func (s *stage) hold(holder string) {
	if err := s.HoldLease(holder); err != nil {
		s.fail("unable to write the lease: %v", err)
	}
}

// editJournal is a person who deletes the journal or one entry of it, or corrupts an entry. What is installed on a
// node is then recorded nowhere.
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

// forgotten excuses what cannot be known about a node any more: that an installer has run there since its last boot,
// and that its rollback was begun.
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

// armed excuses a second installer between two boots of a machine.
func (s *stage) armed(state model.NodeState, why string) {
	s.excuse(excuse{
		why: why, node: state.Name, invariants: []checker.Invariant{checker.S4}, says: "an installer had run since the last boot " + state.BootID,
	})
}

// gitOps rewrites or removes what we have written to objects.
func (s *stage) gitOps(t *rapid.T) {
	s.pass(t)

	how := rapid.SampledFrom([]string{"annotations removed", "annotations rewritten", "mark removed"}).Draw(t, "how")
	node := s.some(t, "")

	if !s.World().Serving() {
		return
	}

	if how == "mark removed" {
		if s.UnmarkAsPerson(node) {
			// The cordon cannot be recognized as ours any more.
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

// autoscale adds a node, removes one, or replaces one.
func (s *stage) autoscale(t *rapid.T) {
	s.pass(t)

	rapid.SampledFrom([]func(*rapid.T){s.grow, s.shrink, s.replace}).Draw(t, "autoscaler")(t)
}

// grow adds a worker with the versions that the cluster began with.
func (s *stage) grow(*rapid.T) {
	if len(s.joined) < mostJoining {
		s.join(model.Worker)
	}
}

func (s *stage) join(role model.Role) {
	prefix := map[model.Role]string{model.Worker: "worker-new-", model.ControlPlane: "cp-new-"}[role]
	name := fmt.Sprintf("%s%d", prefix, len(s.joined))

	// An older etcd cannot join newer members.
	options := model.NodeOptions{Name: name, Role: role}
	if role == model.ControlPlane {
		options.Talos = s.newest()
	}

	if _, err := s.World().AddNode(options); err != nil {
		s.fail("unable to add %s: %v", name, err)
	}

	s.tell(string(role)+" joins", "%s with Talos %s", name, options.Talos)
	s.joined[name] = true

	// Until it has registered, only the judge knows of it. A manifest that rolls out by itself does not wait for an
	// API server that is as old as the first ones were.
	why, most := name+" is on its way", 5*time.Minute
	s.excuse(excuse{why: why, invariants: []checker.Invariant{checker.S8}, until: most})
	s.excuse(excuse{why: why, invariants: []checker.Invariant{checker.S5}, says: "on " + name, until: most})
}

// newest returns the newest Talos version that a control plane runs.
func (s *stage) newest() string {
	var running []version.Version

	for _, state := range s.World().Nodes() {
		if state.Role == model.ControlPlane {
			running = append(running, version.MustParse(state.Talos))
		}
	}

	return version.Highest(running...).String()
}

// shrink removes a worker, whatever happens on it.
func (s *stage) shrink(t *rapid.T) {
	if node := s.some(t, model.Worker); node != "" {
		s.leave(node)
	}
}

func (s *stage) leave(node string) {
	if err := s.LeaveNode(node); err != nil {
		s.fail("unable to remove %s: %v", node, err)
	}

	s.tell("node leaves", "%s", node)
	// A claim may be based on an observation of a moment ago.
	s.excuse(excuse{why: "a node left", invariants: []checker.Invariant{checker.S8}, until: time.Minute})
	delete(s.cordoned, node)
	s.left++
	s.touched = time.Now()
}

// replace removes a control plane and adds another one. If it were the only one, everything would be lost.
func (s *stage) replace(t *rapid.T) {
	node, first := s.some(t, model.ControlPlane), rapid.Bool().Draw(t, "joins first")
	if s.controlPlanes < 3 || s.left > 1 || !s.World().EtcdQuorum() {
		return
	}

	// The quorum must survive the removal.
	healthy := 0

	for _, state := range s.World().Nodes() {
		if state.EtcdHealthy && state.Name != node {
			healthy++
		}
	}

	if healthy < 2 {
		return
	}

	if first {
		s.join(model.ControlPlane)
		s.wait(97 * time.Second)
	}

	s.leave(node)

	if !first {
		s.join(model.ControlPlane)
	}
}

// strikeNode adds a fault to the script: any that the model has, on one node, once, for a while, or until it is
// lifted.
func (s *stage) strikeNode(t *rapid.T) {
	s.pass(t)

	all := model.Faults()
	fault := all[rapid.IntRange(0, len(all)-1).Draw(t, "fault")]
	fault.Node = s.some(t, "")
	fault.Times = rapid.IntRange(0, 2).Draw(t, "times")

	if minutes := rapid.IntRange(0, 12).Draw(t, "minutes"); fault.Lasting() && minutes > 0 {
		fault.For = time.Duration(minutes)*time.Minute + 41*time.Millisecond
	}

	s.tell("fault", "%s", faultText(fault))
	s.script(append(s.faults, fault))
}

// script puts faults into force. A fault with a duration may last that long from then on, and a moment longer, even
// if the script is replaced.
func (s *stage) script(faults []model.Fault) {
	s.faults = faults
	s.World().SetFaults(faults)

	for _, fault := range faults {
		if end := time.Now().Add(fault.For + time.Second); end.After(s.ailing) {
			s.ailing = end
		}
	}
}

func faultText(f model.Fault) string {
	return fmt.Sprintf("%s %s %s, %d times, for %s", f.Node, f.Step, f.Effect, f.Times, f.For)
}

// lift removes the oldest fault.
func (s *stage) lift(t *rapid.T) {
	s.pass(t)

	if len(s.faults) == 0 {
		return
	}

	s.tell("lift", "%s", faultText(s.faults[0]))
	s.script(slices.Clone(s.faults[1:]))
}

// cancelMost is how long a run may go on after it was cancelled.
const cancelMost = 15 * time.Second

// interrupt cancels a run at any moment.
func (s *stage) interrupt(t *rapid.T) {
	s.pass(t)

	if run := s.oneOf(t); run != nil {
		s.tell("cancel", "%s", run.name)
		run.interrupt()
		s.await(cancelMost+time.Second, func() bool { return !run.alive() })
	}
}

// checkCancel ends the story if a cancelled run does not return in time, or has just returned and left something
// behind.
func (s *stage) checkCancel(run *apply, ended time.Time) {
	at := run.interrupted()
	if at.IsZero() {
		return
	}

	took := ended.Sub(at)
	if ended.IsZero() {
		took = time.Since(at)
	}

	if took > cancelMost {
		s.fail("L4: %s was cancelled, and has not returned within %s", run.name, cancelMost)
	}

	if !ended.IsZero() && s.calm(run) {
		s.tell("calm after a cancel", "%s", run.name)
		s.leftNothing(run)
	}
}

// calm reports whether nothing keeps a run from tidying up.
func (s *stage) calm(run *apply) bool {
	run.mu.Lock()
	cut := time.Now().Before(run.cut) || !run.served
	run.mu.Unlock()

	return !cut && len(s.faults) == 0 && !s.touched.After(run.begun) && s.World().Serving() && len(s.living()) < 2
}

// leftNothing ends the story if a run that is over left its lease, or a cordon on a node without an open journal
// entry.
func (s *stage) leftNothing(run *apply) {
	if holder := s.Lease().Holder; strings.HasPrefix(holder, run.name+" ") {
		s.fail("L4: %s has left its lease", run.name)
	}

	open := map[string]bool{}
	for _, entry := range s.Journal().Entries {
		open[entry.Node] = entry.Open()
	}

	for node, cordon := range s.Cordons() {
		if cordon.Unschedulable && cordon.Run == run.name && !open[node] {
			s.fail("L4: %s has left its cordon on %s, of which the journal says nothing", run.name, node)
		}
	}
}
