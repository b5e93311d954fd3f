// SPDX-License-Identifier: MPL-2.0

package talosapi

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

func TestTheDiskIsThatOfImages(t *testing.T) {
	t.Parallel()

	mount := func(at string, size uint64) *machineapi.MountStat {
		return &machineapi.MountStat{MountedOn: at, Size: size, Available: size / 2}
	}

	for name, test := range map[string]struct {
		mounts []*machineapi.MountStat
		// size of the file system, zero where it is not known
		size int64
	}{
		"nothing mounted":            {},
		"the root alone":             {[]*machineapi.MountStat{mount("/", 8)}, 0},
		"one volume":                 {[]*machineapi.MountStat{mount("/", 8), mount("/var", 100)}, 100},
		"a volume for images":        {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd", 40)}, 40},
		"listed first":               {[]*machineapi.MountStat{mount("/var/lib/containerd", 40), mount("/var", 100)}, 40},
		"a volume in between":        {[]*machineapi.MountStat{mount("/var/lib", 60), mount("/var", 100)}, 60},
		"volumes for others":         {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/kubelet", 40), mount("/var/lib/etcd", 5), mount("/var/log", 3)}, 100},
		"a similar name":             {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd2", 40), mount("/var/li", 4), mount("/variable", 9)}, 100},
		"mounts of containers":       {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd/io.containerd.snapshotter/1", 7)}, 100},
		"twice in one place":         {[]*machineapi.MountStat{mount("/var", 100), mount("/var", 200)}, 200},
		"twice, the later one empty": {[]*machineapi.MountStat{mount("/var", 100), mount("/var", 0)}, 100},
		"a volume of unknown size":   {[]*machineapi.MountStat{mount("/var", 100), mount("/var/lib/containerd", 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := spaceForImages(&machineapi.MountsResponse{Messages: []*machineapi.Mounts{{Stats: test.mounts}}})

			if test.size == 0 {
				if got != nil {
					t.Errorf("got %+v, want it unknown", *got)
				}

				return
			}

			if want := (cluster.DiskSpace{Size: test.size, Available: test.size / 2}); got == nil || *got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestMountsThatHangAreAskedForOnce, and for a short time only.
func TestMountsThatHangAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32

		c := connect(t, &nodeFake{mounts: func(ctx context.Context) (*machineapi.MountsResponse, error) {
			asked.Add(1)

			return silence[*machineapi.MountsResponse](ctx)
		}})
		begun := time.Now()

		for range 3 {
			vitals, err := c.Vitals(t.Context(), "10.5.0.5")
			if err != nil || vitals.Disk != nil || vitals.Time != nil {
				t.Fatalf("%+v, %v", vitals, err)
			}

			if !errors.Is(vitals.DiskError, cluster.ErrUnreachable) || !strings.Contains(vitals.DiskError.Error(), "mounts of node 10.5.0.5") {
				t.Errorf("the disk is not known because of %v", vitals.DiskError)
			}

			if !errors.Is(vitals.TimeError, cluster.ErrUnsupported) {
				t.Errorf("the clock is not known because of %v", vitals.TimeError)
			}
		}

		if took := time.Since(begun); asked.Load() != 1 || took >= readTimeout {
			t.Errorf("asked %d times in %s", asked.Load(), took)
		}
	})
}
