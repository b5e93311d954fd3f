// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
)

// restless is a cluster in which a person reboots a node in mid-drain, and the
// run is killed as soon as the installer has ended.
type restless struct {
	*ports.Client

	rig      *rig
	rebooted atomic.Bool
	kill     context.CancelFunc
}

func (r *restless) PodsToEvict(ctx context.Context, node string) ([]cluster.Pod, error) {
	if !r.rebooted.Swap(true) {
		before := r.rig.node(node).BootID

		if _, err := r.rig.World().Reboot(ctx, node, model.RebootDefault); err != nil {
			return nil, err
		}

		for r.rig.node(node).BootID == before || !r.rig.node(node).Ready {
			if err := r.rig.World().Clock().Sleep(ctx, 1777*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}

	return r.Client.PodsToEvict(ctx, node)
}

func (r *restless) Install(ctx context.Context, address, image string) (cluster.Installation, error) {
	_, _ = r.Client.Install(ctx, address, image)
	r.kill()

	return cluster.Installation{}, cluster.ErrOutcomeUnknown
}

// TestRebootInMidTurnIsNotTakenForTheOneAfterTheInstall: the journal must name
// the boot on which the installer ran. Naming an earlier one, it would let the
// next run believe that the node has been through its reboot, and install again.
func TestRebootInMidTurnIsNotTakenForTheOneAfterTheInstall(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		disturbed := &restless{Client: r.Client("run-1"), rig: r, kill: cancel}
		first := r.workerOver(disturbed.Client, disturbed, disturbed)

		if _, err := first.Upgrade(ctx, to(toLifecycle)); err == nil {
			t.Error("the killed run reports success")
		}

		first.notes.finish()

		r.must(r.worker("run-2"), to(toLifecycle))
		r.at(toLifecycle)
		r.sound()

		for name, found := range r.judge.verdict().Nodes {
			if found.Installs != 1 {
				t.Errorf("%s was installed %d times", name, found.Installs)
			}
		}
	})
}
