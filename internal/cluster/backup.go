// SPDX-License-Identifier: MPL-2.0

package cluster

import (
	"context"
	"io"
	"time"
)

// EtcdSnapshot is a snapshot of etcd that was saved.
type EtcdSnapshot struct {
	// Path is the file, Size its length in bytes, and SHA256 its checksum in
	// lower-case hexadecimal digits.
	Path   string
	Size   int64
	SHA256 string
	// Taken is when, by the clock of the runner.
	Taken time.Time
	// Target is what the cluster was about to be brought to: the versions and the
	// installer image.
	Target Target
	// Run names the run that took it.
	Run string
	// Closed tells that the cluster reached the target since: another roll, be it
	// to the same target, takes another snapshot.
	Closed bool
}

// Covers tells whether the snapshot was taken for a roll to that target which is
// still under way: one is, however often such a roll is resumed.
func (s EtcdSnapshot) Covers(target Target) bool {
	return !s.Closed && s.Target.Talos.Equal(target.Talos) && s.Target.Kubernetes.Equal(target.Kubernetes) &&
		s.Target.InstallerImage == target.InstallerImage
}

// SnapshotStore keeps snapshots of etcd.
type SnapshotStore interface {
	// Check finds out whether a snapshot could be saved, and says who else could get
	// at it; that is empty where nobody could, or nobody can tell. Nothing stays behind.
	Check(ctx context.Context) (exposed string, err error)
	// Save writes what the stream gives under a name made of the cluster's and
	// the time, verifies it and returns its path, size and checksum. Nothing
	// stays behind when that fails: ErrIncomplete where what was streamed is not a
	// whole snapshot, ErrRefused with ErrUnsaved where it cannot be written.
	Save(ctx context.Context, name string, taken time.Time, stream func(context.Context, io.Writer) error) (EtcdSnapshot, error)
}

// Registry knows images.
type Registry interface {
	// Image asks whether the registry has the image with that tag or digest, nil
	// when it does. ErrNotFound, ErrDenied, or ErrUnreachable.
	Image(ctx context.Context, reference string) error
}

// Vitals are what a node says about itself that matters before it is upgraded.
type Vitals struct {
	// Disk is the file system of images and pods; nil where that is not told.
	Disk *DiskSpace
	// Time is nil where that is not told.
	Time *TimeSync
	// DiskError and TimeError say why they are nil, where that is known.
	DiskError, TimeError error
}

// DiskSpace is in bytes.
type DiskSpace struct{ Size, Available int64 }

// TimeSync is how the clock of a node is kept.
type TimeSync struct {
	// Synced tells that it is synchronised, Disabled that it is not meant to be.
	Synced, Disabled bool
}
