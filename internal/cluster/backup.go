// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"io"
	"time"
)

// EtcdSnapshot describes a saved snapshot of etcd.
type EtcdSnapshot struct {
	// Path is the file, Size its length in bytes, and SHA256 its checksum in
	// lower-case hexadecimal digits.
	Path   string
	Size   int64
	SHA256 string
	// Taken is when it was taken, by the clock of the runner.
	Taken time.Time
	// Target is what the cluster was about to be upgraded to: the versions and the installer image.
	Target Target
	// Run names the run that took it.
	Run string
	// Closed is true once the cluster has reached the target: the next roll, even to the same target, takes
	// another snapshot.
	Closed bool
}

// Covers reports whether the snapshot was taken for a roll to that target which is still under way. A roll that
// is resumed keeps its snapshot.
func (s EtcdSnapshot) Covers(target Target) bool {
	return !s.Closed && s.Target.Talos.Equal(target.Talos) && s.Target.Kubernetes.Equal(target.Kubernetes) &&
		s.Target.InstallerImage == target.InstallerImage
}

// SnapshotStore keeps snapshots of etcd.
type SnapshotStore interface {
	// Check finds out whether a snapshot can be saved, and describes who else could read it. Exposed is empty if
	// nobody could, or if that is unknown. Nothing stays behind.
	Check(ctx context.Context) (exposed string, err error)
	// Save writes what the stream gives to a file named after the given name and the time, verifies it and
	// returns its path, size and checksum. If that fails, nothing stays behind and the error wraps ErrIncomplete
	// if the stream was not a whole snapshot, or ErrRefused and ErrUnsaved if the file cannot be written.
	Save(ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error) (EtcdSnapshot, error)
}

// Registry answers questions about images.
type Registry interface {
	// Image returns nil if the registry has the image with that tag or digest. Otherwise the error wraps
	// ErrNotFound, ErrDenied or ErrUnreachable.
	Image(ctx context.Context, reference string) error
}

// Vitals are what a node reports about its disk and its clock, which are checked before it is upgraded.
type Vitals struct {
	// Disk is the file system of images and pods; nil if it is unknown.
	Disk *DiskSpace
	// Time is nil if it is unknown.
	Time *TimeSync
	// DiskError and TimeError say why Disk and Time are nil, if that is known.
	DiskError, TimeError error
}

// DiskSpace is the size of a file system and what is available on it, in bytes.
type DiskSpace struct{ Size, Available int64 }

// TimeSync is the state of the time synchronisation of a node.
type TimeSync struct {
	// Synced is true if the clock is synchronised, Disabled if time synchronisation is switched off.
	Synced, Disabled bool
}
