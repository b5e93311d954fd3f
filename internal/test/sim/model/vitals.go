// SPDX-License-Identifier: MPL-2.0

package model

import "context"

// The file systems below /var, in bytes: how large each is and how much of it is
// free, the one that [Options.ContainerdVolume] gives the images at last, and how
// much [EffectFull] leaves free.
const (
	DiskSize       = 24 << 30
	DiskFree       = 17 << 30
	ContainerdSize = 40 << 30
	ContainerdFree = 29 << 30
	FullDisk       = 100 << 20
)

// Vitals are what a machine tells about its disk and its clock.
type Vitals struct {
	// Disk is the file system below /var, nil where that is not told.
	Disk *Disk
	// Containerd is the one below /var/lib/containerd, where images are, nil where
	// they share the one below /var or that is not told.
	Containerd *Disk
	// Time is nil where that is not told.
	Time *Clocking
}

// Disk is in bytes.
type Disk struct{ Size, Available int64 }

// Clocking is how a clock is kept.
type Clocking struct {
	// Synced tells that it is synchronised, or not meant to be; Disabled tells
	// those two apart.
	Synced, Disabled bool
}

// Vitals asks a machine, found by name or address. With [EffectStall] of its disk
// it answers when that is over. A caller that gives up before, or loses its
// connection, has the error of that, and in Time what a machine tells all the
// same.
func (w *World) Vitals(ctx context.Context, name string) (vitals Vitals, err error) {
	if err := ctx.Err(); err != nil {
		return Vitals{}, err
	}

	var (
		asked   *node
		current call
		stalled <-chan struct{}
	)

	w.locked(func() {
		if asked, err = w.observe(name, "vitals"); err != nil {
			return
		}

		current, stalled = begin(ctx, asked), asked.stalled
		vitals = w.vitals(asked)
	})

	if err != nil {
		return Vitals{}, err
	}

	defer current.end()

	if stalled == nil {
		return vitals, nil
	}

	select {
	case <-stalled:
	case <-current.ctx.Done():
	}

	if current.broken() {
		return vitals, current.err(ctx)
	}

	w.locked(func() { vitals = w.vitals(asked) })

	return vitals, nil
}

func (w *World) vitals(n *node) Vitals {
	vitals := Vitals{Time: &Clocking{Synced: true}}

	if !n.suffers(StepDisk, EffectUnreadable) && !n.suffers(StepDisk, EffectStall) {
		vitals.Disk, vitals.Containerd = w.disks(n)
	}

	switch {
	case n.suffers(StepClock, EffectUnreadable):
		vitals.Time = nil
	case n.suffers(StepClock, EffectUnsynced):
		vitals.Time.Synced = false
	case n.suffers(StepClock, EffectDisabled):
		vitals.Time.Disabled = true
	}

	return vitals
}

// disks are the file system below /var and that of the images, if that is another.
func (w *World) disks(n *node) (disk, containerd *Disk) {
	disk = &Disk{Size: DiskSize, Available: DiskFree}
	images := disk

	if w.options.ContainerdVolume {
		containerd = &Disk{Size: ContainerdSize, Available: ContainerdFree}
		images = containerd
	}

	if n.suffers(StepDisk, EffectFull) {
		images.Available = FullDisk
	}

	return disk, containerd
}
