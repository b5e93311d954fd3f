// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Phase is how far the upgrade of one node got, as far as the journal must
// know it.
type Phase string

const (
	// PhaseIntent: the installer is about to be started; it may or may not
	// have run.
	PhaseIntent Phase = "intent"
	// PhaseInstalled: the installer succeeded; the next boot starts the new
	// system.
	PhaseInstalled Phase = "installed"
	// PhaseRebooting: the reboot was asked for, or is about to be.
	PhaseRebooting Phase = "rebooting"
	// PhaseFallback: the node returned to its old system by itself. The image
	// is not tried again until the target or the image changes or the user
	// says so.
	PhaseFallback Phase = "fallback"
	// PhaseRollingBack: the new system did not become healthy, and the node is
	// about to be sent back to its old one, or was; it may or may not have
	// obeyed.
	PhaseRollingBack Phase = "rolling-back"
	// PhaseRolledBack: the node was sent back to its old system and runs it. The
	// image is not tried again, as after [PhaseFallback].
	PhaseRolledBack Phase = "rolled-back"
)

// Entry is what the journal knows about one machine.
type Entry struct {
	// Node is the Kubernetes node name, for people who read the journal.
	Node  string
	Phase Phase
	// Attempt counts the installs tried for this image, from 1.
	Attempt int
	// BootID is the one the node had before the install; for PhaseRollingBack,
	// the one before the rollback; for PhaseFallback and PhaseRolledBack, the
	// one it had after it returned.
	BootID string
	// Image is the installer image.
	Image string
	// Target is the version being installed.
	Target version.Version
	// Previous and PreviousSchematic are what the node ran before.
	Previous          version.Version
	PreviousSchematic string
	// Schematic is the one of the system that is being installed; empty where it is
	// not known, or none.
	Schematic string
	// Extensions are the system extensions that the node ran before, sorted and with a comma
	// between them; empty where it ran none, or nobody knows.
	Extensions string
	// Platform is the one that the node ran on before the install, and has to run
	// on afterwards; empty where it is not known.
	Platform string
	// Told tells, of PhaseRollingBack, that the node has answered that it obeys.
	Told bool
	// PreviousEtcd is the version of etcd that a control plane ran before the
	// install; empty where that is not known, and on workers.
	PreviousEtcd string
	// Asked names who asked for the rollback, as the lease names them, and Reason is
	// what they wrote; both are empty where the new system did not become healthy.
	Asked, Reason string
	// Retry tells, of a node that has [Entry.Returned], that somebody wants the image
	// tried again.
	Retry bool
	// ConfirmedBootID is the boot in which the node was confirmed to run the target: as
	// long as it lasts, the other boot slot holds what the node ran before.
	ConfirmedBootID string
	// Run names the run that wrote the entry.
	Run string
	// Cordoned tells that the cordon on the node was ours.
	Cordoned bool
	// Departed tells, of an entry that is open, that somebody deleted the node before its new
	// system was seen. It is not waited for, and goes on where it is if it comes back.
	Departed bool
	// Written is when, by the clock of the runner.
	Written time.Time
}

// Open tells whether the node may have an install pending: an installer may have run without
// a reboot since.
func (e Entry) Open() bool { return !e.Returned() }

// Awaited tells whether the node has to show first what became of an install before others
// are touched.
func (e Entry) Awaited() bool { return e.Open() && !e.Departed }

// Returned tells that the node runs its old system again because the new one
// failed on it, by itself or because it was sent back.
func (e Entry) Returned() bool { return e.Phase == PhaseFallback || e.Phase == PhaseRolledBack }

// Journal is the record of unfinished work. It is written with its resource
// version, so that two writers cannot both succeed.
type Journal struct {
	// Holder is who took the lease last, as the lease names it; empty where nobody
	// has said so. Whoever takes the lease writes it before anything else, so that
	// who held it before cannot write any more.
	Holder string
	// Entries are by machine ID. Those of a journal as it was written before it had a
	// format are by the UUID of the hardware until they are [Journal.Keyed].
	Entries map[string]Entry
	// Confirmed are the upgrades that were confirmed last, by machine ID, one of each
	// machine at most and none beside an entry. They have no phase: they are no
	// unfinished work, and tell nothing but what the other boot slots hold.
	Confirmed map[string]Entry
	// Manifests tells that a roll began after which the bootstrap manifests
	// have to be synced, and that this has not been done yet; nil otherwise.
	Manifests *ManifestsDue
	// Snapshot is the last snapshot of etcd that was taken; nil when there is
	// none. It is no unfinished work.
	Snapshot        *EtcdSnapshot
	ResourceVersion string
}

// ManifestsDue is the record of a sync of the bootstrap manifests that has to
// follow a roll.
type ManifestsDue struct {
	// Run names the run that wrote it.
	Run string
	// Written is when, by the clock of the runner.
	Written time.Time
}

// WithManifests is a copy of the journal with that record; nil takes it away.
func (j Journal) WithManifests(due *ManifestsDue) Journal {
	j.Entries, j.Manifests = maps.Clone(j.Entries), due

	return j
}

// Of is what the journal holds about a node, and the key under which its next
// entry belongs. A node that does not tell its machine ID itself is known by its
// name too: what its kubelet has registered may be of another installation.
func (j Journal) Of(node Node) (key string, entry Entry, found bool) {
	key = node.MachineID()

	if entry, found = j.Entries[key]; found || node.Machine != nil && node.Machine.MachineID != "" {
		return key, entry, found
	}

	// An open one counts more than others, and then the first by its key.
	for other, one := range j.Entries {
		if one.Node == node.Name && (!found || one.Open() && !entry.Open() || one.Open() == entry.Open() && other < key) {
			key, entry, found = other, one, true
		}
	}

	return key, entry, found
}

// Keyed is the journal with each entry that stands under the UUID of the hardware
// under the machine ID of the node that it is about. Where several nodes have
// that UUID, it is the one of that name; where there is none, the entry stays.
func (j Journal) Keyed(nodes []Node) Journal {
	keyed := j

	known := make(map[string]bool, len(nodes))
	for index := range nodes {
		known[nodes[index].MachineID()] = true
	}

	for _, key := range slices.Sorted(maps.Keys(j.Entries)) {
		if known[key] {
			continue
		}

		entry := j.Entries[key]

		owner, found := ownerOf(key, entry, nodes)
		if !found {
			continue
		}

		if _, taken := keyed.Entries[owner]; !taken {
			keyed = keyed.Without(key).With(owner, entry)
		}
	}

	return keyed
}

// ownerOf is the machine ID of the node whose hardware has the UUID under which an entry
// stands: the only one, or that of the name where there are several.
func ownerOf(uuid string, entry Entry, nodes []Node) (machineID string, found bool) {
	var owners []*Node

	for index := range nodes {
		if node := &nodes[index]; node.MachineID() != "" && node.hasUUID(uuid) {
			owners = append(owners, node)
		}
	}

	if len(owners) > 1 {
		owners = slices.DeleteFunc(owners, func(n *Node) bool { return n.Name != entry.Node })
	}

	if len(owners) != 1 {
		return "", false
	}

	return owners[0].MachineID(), true
}

// Stray is an open entry that may be about a node which tells another machine ID:
// it has the name of the node or the UUID of its hardware, and no node has the
// machine ID that it stands under.
func (j Journal) Stray(node Node, nodes []Node) (key string, entry Entry, found bool) {
	own, _, _ := j.Of(node)

	return j.Unclaimed(nodes).StrayOf(node, own)
}

// Unclaimed is a journal with the open entries alone of which no node has the machine ID
// that they stand under. What is [Journal.Stray] in the whole is so in it.
func (j Journal) Unclaimed(nodes []Node) Journal {
	unclaimed := map[string]Entry{}

	for key, entry := range j.Entries {
		// Another machine may have the name of one that was deleted.
		if entry.Awaited() {
			unclaimed[key] = entry
		}
	}

	for index := range nodes {
		delete(unclaimed, nodes[index].MachineID())
	}

	j.Entries = unclaimed

	return j
}

// StrayOf is, of a journal of [Journal.Unclaimed] entries, the first by its key that is not
// the node's own, the one that [Journal.Of] tells, and has the name of the node or the UUID of its hardware.
func (j Journal) StrayOf(node Node, own string) (key string, entry Entry, found bool) {
	for other, one := range j.Entries {
		if other != own && (one.Node == node.Name || node.hasUUID(other)) && (!found || other < key) {
			key, entry, found = other, one, true
		}
	}

	return key, entry, found
}

// With is a copy of the journal in which the entry stands under the key. What was
// confirmed there before is worth nothing any more.
func (j Journal) With(key string, entry Entry) Journal {
	entries := maps.Clone(j.Entries)
	if entries == nil {
		entries = map[string]Entry{}
	}

	entries[key] = entry
	j.Entries = entries

	if _, known := j.Confirmed[key]; known {
		j.Confirmed = maps.Clone(j.Confirmed)
		delete(j.Confirmed, key)
	}

	return j
}

// maxConfirmed is of how many machines the journal remembers what they ran before:
// it is written anew with each step of an upgrade.
const maxConfirmed = 256

// WithConfirmed is a copy of the journal in which the upgrade of a machine is closed and
// confirmed. Of machines that are none of the nodes nothing is remembered, where the
// nodes are known, and of more than [maxConfirmed] only what was written last.
func (j Journal) WithConfirmed(key string, entry Entry, nodes []Node) Journal {
	j = j.Without(key)
	entry.Phase, entry.Attempt, entry.Cordoned, entry.Told = "", 0, false, false

	confirmed := maps.Clone(j.Confirmed)
	if confirmed == nil {
		confirmed = map[string]Entry{}
	}

	confirmed[key] = entry

	if len(nodes) > 0 {
		there := map[string]bool{key: true}
		for index := range nodes {
			there[nodes[index].MachineID()] = true
		}

		maps.DeleteFunc(confirmed, func(other string, _ Entry) bool { return !there[other] })
	}

	oldest := slices.SortedFunc(maps.Keys(confirmed), func(a, b string) int {
		return cmp.Or(confirmed[a].Written.Compare(confirmed[b].Written), cmp.Compare(a, b))
	})
	for _, other := range oldest[:max(len(oldest)-maxConfirmed, 0)] {
		delete(confirmed, other)
	}

	j.Confirmed = confirmed

	return j
}

// Without is a copy of the journal in which nothing stands under the key.
func (j Journal) Without(key string) Journal {
	entries := maps.Clone(j.Entries)
	delete(entries, key)
	j.Entries = entries

	return j
}

// WithSnapshot is a copy of the journal with that snapshot of etcd; nil takes it
// away.
func (j Journal) WithSnapshot(taken *EtcdSnapshot) Journal {
	j.Entries, j.Snapshot = maps.Clone(j.Entries), taken

	return j
}
