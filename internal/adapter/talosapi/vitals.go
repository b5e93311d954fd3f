// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"math"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	timepb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/time"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

const (
	// ephemeralMount is where Talos mounts the volume EPHEMERAL, which holds the
	// local data of pods and, unless it is divided, images.
	ephemeralMount = "/var"
	// imagesPath is where the container runtime keeps images, constant
	// CRIContainerdDataPath of Talos. From 1.14 on it may be a volume of its own,
	// CRI.
	imagesPath = "/var/lib/containerd"
)

// Vitals are what the node says of its disk and its clock. What an answer leaves
// out, and what the node or the credentials do not allow to be read, is nil; of
// the latter the reason comes along. An error means that the node said nothing
// at all.
//
// A node has to ask each of its mounts, and one of them, such as that of an NFS
// server that is gone, may keep it waiting for ever. It is asked no more then: the
// answer would be the same, and on the node every question hangs where the first
// one does.
func (c *Client) Vitals(ctx context.Context, address string) (cluster.Vitals, error) {
	var (
		vitals           cluster.Vitals
		diskErr, timeErr error
		group            errgroup.Group
	)

	// One failure does not end the other question, and they write different fields.
	group.Go(func() error { vitals.Disk, diskErr = c.diskSpace(ctx, address); return nil })
	group.Go(func() error { vitals.Time, timeErr = c.timeSync(ctx, address); return nil })

	_ = group.Wait()

	if isSilence(ctx, diskErr) && isSilence(ctx, timeErr) {
		return cluster.Vitals{}, diskErr
	}

	vitals.DiskError = diskErr

	var failure *callError
	if errors.As(diskErr, &failure) && failure.silent && ctx.Err() == nil {
		c.hung.Store(address, diskErr)
	}

	// A node that has no such resource does not say, and there is no more to it.
	if !errors.Is(timeErr, cluster.ErrNotFound) {
		vitals.TimeError = timeErr
	}

	return vitals, nil
}

// isSilence tells an error that is no word of the node's from one that is its
// answer.
func isSilence(ctx context.Context, err error) bool {
	var failure *callError

	switch {
	case err == nil:
		return false
	case ctx.Err() != nil, errors.Is(err, cluster.ErrUnreachable), errors.Is(err, cluster.ErrCredentials):
		return true
	default:
		return errors.As(err, &failure) && failure.forwarding
	}
}

// diskSpace is nil where nothing is known to be mounted for images.
func (c *Client) diskSpace(ctx context.Context, address string) (*cluster.DiskSpace, error) {
	if known, found := c.hung.Load(address); found {
		failure, _ := known.(error)

		return nil, failure
	}

	var answer *machineapi.MountsResponse

	op := operation{what: "read the mounts of " + place(address), node: address, timeout: mountsTimeout}

	err := c.call(ctx, op, func(ctx context.Context, api *client.Client) (err error) {
		answer, err = api.MachineClient.Mounts(ctx, &emptypb.Empty{})

		return err
	})
	if err != nil {
		return nil, err
	}

	return spaceForImages(answer), nil
}

// spaceForImages picks the file system of images, whose sizes are in bytes: the
// innermost mount, from /var on, that their directory is in. Of two mounts in
// one place the later one is seen. A size of zero is one that the node could not
// find out.
func spaceForImages(answer *machineapi.MountsResponse) *cluster.DiskSpace {
	var (
		space *cluster.DiskSpace
		place string
	)

	for _, message := range answer.GetMessages() {
		for _, mount := range message.GetStats() {
			at := mount.GetMountedOn()

			switch {
			case !within(imagesPath, at) || !within(at, ephemeralMount) || len(at) < len(place):
				continue
			case len(at) > len(place):
				place, space = at, nil
			}

			if mount.GetSize() > 0 {
				space = &cluster.DiskSpace{Size: signed(mount.GetSize()), Available: signed(mount.GetAvailable())}
			}
		}
	}

	return space
}

// within tells whether a path is a directory or below it.
func within(path, directory string) bool {
	return path == directory || strings.HasPrefix(path, directory+"/")
}

func signed(size uint64) int64 { return int64(min(size, math.MaxInt64)) }

// timeSync is nil where the node does not say, as one that has just booted.
func (c *Client) timeSync(ctx context.Context, address string) (*cluster.TimeSync, error) {
	var spec timepb.StatusSpec

	// Unlike resource, read tells a node that has none from one that is silent.
	if _, err := c.read(ctx, address, kindTimeStatus(), "node", &spec); err != nil {
		return nil, err
	}

	return &cluster.TimeSync{Synced: spec.GetSynced(), Disabled: spec.GetSyncDisabled()}, nil
}
