// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// twoAtATime is the judgement of a run that may have two workers unavailable.
func twoAtATime() []checker.Option { return []checker.Option{checker.MaxUnavailable(2)} }

// skipping is the judgement of a run that skips checks.
func skipping(checks ...string) []checker.Option { return []checker.Option{checker.Skips(checks...)} }

// narrow has disks on which images leave little room.
type narrow struct {
	liar

	mu     sync.Mutex
	pulled map[string]bool
}

func (n *narrow) Pull(ctx context.Context, address, image string, api cluster.UpgradeAPI) error {
	n.mu.Lock()
	n.pulled[address] = true
	n.mu.Unlock()

	return n.liar.Pull(ctx, address, image, api)
}

func (n *narrow) Vitals(ctx context.Context, address string) (cluster.Vitals, error) {
	found, err := n.liar.Vitals(ctx, address)

	n.mu.Lock()
	defer n.mu.Unlock()

	found.Disk = &cluster.DiskSpace{Size: 4 << 30, Available: 900 << 20}
	if n.pulled[address] {
		found.Disk.Available = 250 << 20
	}

	return found, err
}

// The room that an image takes once it is there is not missing any more.
func TestRoomThatTheImagesTookIsNotMissed(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		client := r.Client("run-1")
		between := &narrow{liar: liar{Client: client}, pulled: map[string]bool{}}
		r.Must(r.WorkerOver(client, between, between), to(toLifecycle))
		r.At(toLifecycle)
	})
}

// shutDown has a person shut a worker down with talosctl.
type shutDown struct{ liar }

func (s *shutDown) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return s.Nodes(ctx)
}

func (s *shutDown) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, s.Nodes)
}

func (s *shutDown) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := s.liar.Nodes(ctx)

	for index := range nodes {
		if nodes[index].Name == "worker-1" {
			nodes[index].Ready, nodes[index].Unschedulable, nodes[index].CordonedByTalos = false, true, true
		}
	}

	return nodes, err
}

func TestHeldWorkerThatIsShutDownIsItsOwnersAffair(t *testing.T) {
	judging := append(twoAtATime(), checker.Held("worker-1"))

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		client := r.Client("run-1")
		between := &shutDown{liar: liar{Client: client}}

		request := bare(sharing(t, toLifecycle, "2"))
		request.Policy.Hold = map[string]bool{"worker-1": true}
		r.Must(r.WorkerOver(client, between, between), request)
		r.Sound()

		if node := r.State("worker-0"); node.Talos != toLifecycle {
			t.Errorf("worker-0 runs %s", node.Talos)
		}
	})
}

// A confirmed upgrade is none that failed because there was no time left to write
// the image into a configuration.
func TestInstallImageMayOutlastTheTimeOfTheNode(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		request := naming(toLifecycle)
		request.Policy.NodeTimeout = 4 * time.Minute

		w := r.Worker("run-1")
		w.Client.Intercept(withCall("Configure", cluster.ErrUnreachable))
		r.Must(w, request)
		r.At(toLifecycle)

		if warned := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "could not be made to name it") {
			t.Errorf("told %q", warned)
		}
	})
}

// A snapshot belongs to a roll. Another one, be it to the same versions, is not
// to be told of the snapshot of long ago.
func TestNextRollTakesASnapshotOfItsOwn(t *testing.T) {
	inCluster(t, setup{Options: model.Options{Schematic: schematicOfTests}}, func(r *rig) {
		store := ports.NewVault()
		r.Must(r.Worker("run-1"), saving(store))

		if record := r.Journal().Snapshot; record == nil || !record.Closed {
			t.Errorf("recorded %+v, want it closed", record)
		}

		time.Sleep(90 * 24 * time.Hour)

		request := saving(store)
		request.Target.InstallerImage = "factory.talos.dev/metal-installer/" + strings.Repeat("b", 64)
		r.World().SetFaults([]model.Fault{{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectFallback}})

		err := r.Worker("run-2").Apply(context.Background(), request)
		saved := store.Saved()

		if len(saved) != 2 || err == nil || !strings.Contains(err.Error(), saved[1].Path) {
			t.Errorf("saved %+v, and the error is %v", saved, err)
		}
	})
}

// Whatever refuses the next run, the snapshot of the one before is named.
func TestRunThatIsLockedOutNamesTheSnapshot(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		store := ports.NewVault()
		r.dieBehind("Install", r.Worker("run-1"), saving(store))

		stop := r.alive("somebody")
		defer stop()

		err := r.Worker("run-2").Apply(context.Background(), saving(store))
		if !errors.Is(err, engine.ErrLocked) || !strings.Contains(err.Error(), store.Saved()[0].Path) {
			t.Errorf("got %v, want the lock and the snapshot", err)
		}
	})
}

// alive holds the lease, and renews it until stopped.
func (r *rig) alive(holder string) (stop func()) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})

	go func() {
		defer close(done)

		for ctx.Err() == nil {
			_ = r.HoldLease(holder)

			select {
			case <-time.After(9 * time.Second):
			case <-ctx.Done():
			}
		}
	}()

	return func() {
		cancel()
		<-done
	}
}

// A closed window says which node it keeps waiting.
func TestRefusalNamesTheNodeThatWaits(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		r.dieBehind("Install", r.Worker("run-1"), to(toLifecycle))

		err := r.Worker("run-2").Apply(context.Background(), within(time.Hour, 2*time.Hour))
		if !errors.Is(err, engine.ErrBlocked) || !strings.Contains(err.Error(), "worker-0 is left in the middle of its upgrade") {
			t.Errorf("got %v, want the window and the node", err)
		}
	})
}

// Pods that two budgets cover are never evicted; with on_timeout = "delete" they
// are deleted in the end.
func TestOverlappingBudgetsEndInADeletionWhereThatIsAskedFor(t *testing.T) {
	judging := []checker.Option{checker.DrainDelete(5 * time.Minute)}

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.AddPod("precious", "worker-1", &ports.Budget{MinAvailable: 0})
		r.AddBudget(ports.Budget{App: "precious", Name: "second"})

		request := to(toLifecycle)
		request.Policy.Drain.OnTimeout = cluster.DrainDelete
		r.Must(r.Worker("run-1"), request)
		r.At(toLifecycle)
	})
}

// A roll may come to its end in another way than by a run. What is applied after
// that does not offer its snapshot any more.
func TestSnapshotOfARollThatEndedElsewhereIsClosed(t *testing.T) {
	inCluster(t, setup{Judging: []checker.Option{checker.Held("worker-1")}}, func(r *rig) {
		store := ports.NewVault()
		first := saving(store)
		first.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}
		first.Gates = gated(&userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			return node != "worker-1", "degraded", nil
		}}).Gates

		if err := r.Worker("run-1").Apply(context.Background(), bare(first)); !errors.Is(err, engine.ErrGate) {
			t.Fatalf("got %v, want the gate", err)
		}

		held := bare(saving(store))
		held.Policy.Hold = map[string]bool{"worker-1": true}
		r.Must(r.Worker("run-2"), held)

		if record := r.Journal().Snapshot; record == nil || !record.Closed && len(store.Saved()) == 1 && r.State("cp-2").Talos == toLifecycle {
			t.Errorf("recorded %+v, want it closed", record)
		}

		r.Tidy()

		again := r.Worker("run-3")
		r.Must(again, held)

		if _, mutating := again.Client.Calls(); mutating > 0 {
			t.Errorf("%d mutating calls where nothing was left to do", mutating)
		}
	})
}

// A cancel behind the last byte loses no snapshot.
func TestSnapshotThatWasSavedIsRecordedWhateverEndsTheRun(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)

			if call.Method == "EtcdSnapshot" {
				cancel()
			}

			return err
		})

		store := ports.NewVault()

		err := w.Apply(ctx, saving(store))
		if saved := store.Saved(); len(saved) == 1 && (r.Journal().Snapshot == nil || err == nil || !strings.Contains(err.Error(), saved[0].Path)) {
			t.Errorf("saved %+v, recorded %+v, and the error is %v", saved, r.Journal().Snapshot, err)
		}

		r.Tidy()
	})
}

// The state of a node that is back in service is not told as if it were not.
func TestNodeInServiceIsToldAsSuch(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		var back atomic.Bool

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Uncordon" {
				back.Store(true)
			}

			if back.Load() && call.Method == "WriteJournal" {
				return cluster.ErrUnreachable
			}

			return next(ctx)
		})

		err := w.Apply(context.Background(), to(toLifecycle))
		if err == nil || !strings.Contains(err.Error(), "is in service; only its entry in the journal is still open") {
			t.Errorf("got %v, want the node in service", err)
		}
	})
}
