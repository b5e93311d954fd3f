// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Phase is how far the upgrade of one node has got, in the detail that the journal needs.
type Phase string

const (
	// PhaseIntent: the installer is about to be started; it may or may not have run.
	PhaseIntent Phase = "intent"
	// PhaseInstalled: the installer succeeded; the next boot starts the new system.
	PhaseInstalled Phase = "installed"
	// PhaseRebooting: the reboot was requested, or is about to be.
	PhaseRebooting Phase = "rebooting"
	// PhaseFallback: the node returned to its old system by itself. The image is not tried again until the target
	// or the image changes or the user asks for it.
	PhaseFallback Phase = "fallback"
	// PhaseRollingBack: the node is about to be sent back to its old system, or was, because the new one did not
	// become healthy or because a person asked for it; the rollback may or may not have happened.
	PhaseRollingBack Phase = "rolling-back"
	// PhaseRolledBack: the node was sent back to its old system and runs it. The
	// image is not tried again, as after [PhaseFallback].
	PhaseRolledBack Phase = "rolled-back"
)

// Entry is what the journal records about one machine.
type Entry struct {
	// Node is the Kubernetes node name, for people who read the journal.
	Node  string
	Phase Phase
	// Attempt counts the installs tried for this image, from 1.
	Attempt int
	// BootID is the boot ID that the node had before the install; for PhaseRollingBack, the one before the
	// rollback; for PhaseFallback and PhaseRolledBack, the one it had after it returned.
	BootID string
	// Image is the installer image.
	Image string
	// Target is the version being installed.
	Target version.Version
	// Previous and PreviousSchematic are what the node ran before.
	Previous          version.Version
	PreviousSchematic string
	// Schematic is the schematic of the system that is being installed; empty if it has none or it is unknown.
	Schematic string
	// Extensions are the system extensions that the node ran before, sorted and separated by commas; empty if it
	// ran none or they are unknown.
	Extensions string
	// Platform is the platform that the node ran on before the install, and has to run on afterwards; empty if it
	// is unknown.
	Platform string
	// Told is true if the node of an entry in PhaseRollingBack has accepted the request to roll back.
	Told bool
	// PreviousEtcd is the version of etcd that a control plane ran before the install; empty if it is unknown,
	// and on workers.
	PreviousEtcd string
	// Asked is the person who asked for the rollback, as the lease names them, and Reason is what they wrote;
	// both are empty if the node is rolled back because the new system did not become healthy.
	Asked, Reason string
	// Retry is true if the node has [Entry.Returned] and somebody wants the image tried again.
	Retry bool
	// ConfirmedBootID is the boot ID with which the node was confirmed to run the target: until the node boots
	// again, the other boot slot holds what it ran before.
	ConfirmedBootID string
	// Run names the run that wrote the entry.
	Run string
	// Cordoned is true if this provider cordoned the node.
	Cordoned bool
	// Departed is true if somebody deleted the node while the entry was open, before its new system was seen.
	// Nothing waits for the node; if it comes back, its upgrade continues where it was.
	Departed bool
	// Written is when the entry was written, by the clock of the runner.
	Written time.Time
}

// Open reports whether the node may have an install pending: an installer may have run without a reboot since.
func (e Entry) Open() bool { return !e.Returned() }

// Awaited reports whether the outcome of the node's install must be known before other nodes are touched.
func (e Entry) Awaited() bool { return e.Open() && !e.Departed }

// Returned reports whether the node runs its old system again because the new one failed: either by itself, or
// because it was sent back.
func (e Entry) Returned() bool { return e.Phase == PhaseFallback || e.Phase == PhaseRolledBack }

// Journal is the record of unfinished work. It is written with its resource version, so that of two writers only
// one succeeds.
type Journal struct {
	// Holder is who took the lease last, as the lease names it; empty if it was never recorded. Whoever takes the
	// lease writes it before anything else, so that later writes of the previous holder fail.
	Holder string
	// Entries are by machine ID. Journals written before the format had a version have them by the UUID of the
	// hardware, until [Journal.Keyed] is applied.
	Entries map[string]Entry
	// Confirmed are the last confirmed upgrades, by machine ID: at most one for each machine, and none for a
	// machine with an entry. They have no phase, because they are not unfinished work: they only record what the
	// other boot slot holds.
	Confirmed map[string]Entry
	// Manifests is set if a roll began after which the bootstrap manifests have to be synced, and they have not
	// been synced yet.
	Manifests *ManifestsDue
	// Snapshot is the last snapshot of etcd; nil if there is none. It is not unfinished work.
	Snapshot        *EtcdSnapshot
	ResourceVersion string
}

// ManifestsDue records that the bootstrap manifests have to be synced after a roll.
type ManifestsDue struct {
	// Run names the run that wrote it.
	Run string
	// Written is when it was written, by the clock of the runner.
	Written time.Time
}

// WithManifests returns a copy of the journal with that record; nil removes it.
func (j Journal) WithManifests(due *ManifestsDue) Journal {
	j.Entries, j.Manifests = maps.Clone(j.Entries), due

	return j
}

// Of returns the entry of a node, and the key under which its next entry belongs. A node that does not report its
// machine ID itself is also looked up by name: the machine ID that its kubelet registered may be that of an
// earlier installation.
func (j Journal) Of(node Node) (key string, entry Entry, found bool) {
	key = node.MachineID()

	if entry, found = j.Entries[key]; found || node.Machine != nil && node.Machine.MachineID != "" {
		return key, entry, found
	}

	// Open entries come before others, then the lowest key.
	for other, one := range j.Entries {
		if one.Node == node.Name && (!found || one.Open() && !entry.Open() || one.Open() == entry.Open() && other < key) {
			key, entry, found = other, one, true
		}
	}

	return key, entry, found
}

// Keyed returns the journal with each entry under the machine ID of its node instead of the UUID of its hardware.
// If several nodes have that UUID, the node with the name in the entry is meant; if no node matches, the entry
// keeps its key.
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

// ownerOf returns the machine ID of the node whose hardware has the UUID under which an entry is stored: the only
// such node, or the one with the name in the entry if there are several.
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

// Stray returns an awaited entry that may be about the node although it is stored under another machine ID, which no
// node has: the entry has the node's name or is stored under the UUID of its hardware.
func (j Journal) Stray(node Node, nodes []Node) (key string, entry Entry, found bool) {
	own, _, _ := j.Of(node)

	return j.Unclaimed(nodes).StrayOf(node, own)
}

// Unclaimed returns the journal with only those awaited entries whose key is the machine ID of no node.
// [Journal.StrayOf] finds in it what [Journal.Stray] finds in the whole journal.
func (j Journal) Unclaimed(nodes []Node) Journal {
	unclaimed := map[string]Entry{}

	for key, entry := range j.Entries {
		// Another machine may have the name of a deleted one.
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

// StrayOf searches a journal of [Journal.Unclaimed] entries and returns the one with the lowest key that has the
// node's name or the UUID of its hardware. Own is the key that [Journal.Of] returns for the node, which is passed
// over.
func (j Journal) StrayOf(node Node, own string) (key string, entry Entry, found bool) {
	for other, one := range j.Entries {
		if other != own && (one.Node == node.Name || node.hasUUID(other)) && (!found || other < key) {
			key, entry, found = other, one, true
		}
	}

	return key, entry, found
}

// With returns a copy of the journal in which the entry is stored under the key. An upgrade confirmed under that
// key is dropped, because it no longer describes the other boot slot.
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

// maxConfirmed is how many confirmed upgrades the journal keeps. It is bounded because each step of an upgrade
// rewrites the journal.
const maxConfirmed = 256

// WithConfirmed returns a copy of the journal in which the upgrade of a machine is closed and confirmed.
// Confirmed upgrades of machines that are none of the nodes are dropped, unless nodes is empty; of more than
// [maxConfirmed], only the latest are kept.
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

// Without returns a copy of the journal without the entry under the key.
func (j Journal) Without(key string) Journal {
	entries := maps.Clone(j.Entries)
	delete(entries, key)
	j.Entries = entries

	return j
}

// WithSnapshot returns a copy of the journal with that snapshot of etcd; nil removes it.
func (j Journal) WithSnapshot(taken *EtcdSnapshot) Journal {
	j.Entries, j.Snapshot = maps.Clone(j.Entries), taken

	return j
}
