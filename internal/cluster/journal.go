// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"maps"
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
	// Platform is the one that the node ran on before the install, and has to run
	// on afterwards; empty where it is not known.
	Platform string
	// Told tells, of PhaseRollingBack, that the node has answered that it obeys.
	Told bool
	// PreviousEtcd is the version of etcd that a control plane ran before the
	// install; empty where that is not known, and on workers.
	PreviousEtcd string
	// Run names the run that wrote the entry.
	Run string
	// Cordoned tells that the cordon on the node was ours.
	Cordoned bool
	// Written is when, by the clock of the runner.
	Written time.Time
}

// Open tells whether the node may be armed: an installer may have run without
// a reboot since.
func (e Entry) Open() bool { return !e.Returned() }

// Returned tells that the node runs its old system again because the new one
// failed on it, by itself or because it was sent back.
func (e Entry) Returned() bool { return e.Phase == PhaseFallback || e.Phase == PhaseRolledBack }

// Journal is the record of unfinished work, by machine UUID. It is written
// with its resource version, so that two writers cannot both succeed.
type Journal struct {
	// Holder is who took the lease last, as the lease names it; empty where nobody
	// has said so. Whoever takes the lease writes it before anything else, so that
	// who held it before cannot write any more.
	Holder  string
	Entries map[string]Entry
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

// With is a copy of the journal in which the entry stands under the UUID.
func (j Journal) With(uuid string, entry Entry) Journal {
	entries := maps.Clone(j.Entries)
	if entries == nil {
		entries = map[string]Entry{}
	}

	entries[uuid] = entry
	j.Entries = entries

	return j
}

// Without is a copy of the journal in which the UUID has no entry.
func (j Journal) Without(uuid string) Journal {
	entries := maps.Clone(j.Entries)
	delete(entries, uuid)
	j.Entries = entries

	return j
}

// WithSnapshot is a copy of the journal with that snapshot of etcd; nil takes it
// away.
func (j Journal) WithSnapshot(taken *EtcdSnapshot) Journal {
	j.Entries, j.Snapshot = maps.Clone(j.Entries), taken

	return j
}
