// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
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
		before := r.rig.State(node).BootID

		if _, err := r.rig.World().Reboot(ctx, node, model.RebootDefault); err != nil {
			return nil, err
		}

		for r.rig.State(node).BootID == before || !r.rig.State(node).Ready {
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
		first := r.WorkerOver(disturbed.Client, disturbed, disturbed)

		if _, err := first.Upgrade(ctx, to(toLifecycle)); err == nil {
			t.Error("the killed run reports success")
		}

		first.Notes.Finish()

		r.Must(r.Worker("run-2"), to(toLifecycle))
		r.At(toLifecycle)
		r.Sound()

		for name, found := range r.Judge.Verdict().Nodes {
			if found.Installs != 1 {
				t.Errorf("%s was installed %d times", name, found.Installs)
			}
		}
	})
}

// slow is a cluster whose members take their time to be listed until the run
// has begun.
type slow struct {
	*ports.Client

	looks atomic.Int32
}

func (s *slow) Members(ctx context.Context) ([]cluster.Member, error) {
	if s.looks.Add(1) <= 2 {
		if err := engine.RealClock().Sleep(ctx, 45*time.Second); err != nil {
			return nil, err
		}
	}

	return s.Client.Members(ctx)
}

// TestSlowClusterIsStillObserved: a look is not cut off because it takes longer
// than a lease lasts, as it may where many nodes are away.
func TestSlowClusterIsStillObserved(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		client := r.Client("run-1")

		r.Must(r.WorkerOver(client, &slow{Client: client}, client), to(toLifecycle))
		r.At(toLifecycle)
		r.Sound()
	})
}
