// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/wording"
)

// saving is a request that takes a snapshot first.
func saving(store cluster.SnapshotStore) engine.Request {
	request := to(toLifecycle)
	request.Snapshots = store

	return request
}

func TestSnapshot_TakenBeforeAnythingIsTouched(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		store := ports.NewVault()
		first := r.Worker("run-1")

		first.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if slices.Contains([]string{"Pull", "Cordon", "Install", "Reboot"}, call.Method) && len(store.Saved()) == 0 {
				t.Errorf("%s before there was a snapshot", call)
			}

			return next(ctx)
		})

		r.Must(first, saving(store))
		r.At(toLifecycle)

		saved := store.Saved()
		if len(saved) != 1 {
			t.Fatalf("saved %+v, want one", saved)
		}

		record := r.Journal().Snapshot
		if record == nil || record.Path != saved[0].Path || record.SHA256 != saved[0].SHA256 || record.Size != saved[0].Size || record.Run != "run-1" {
			t.Errorf("recorded %+v, want %+v", record, saved[0])
		}
	})
}

func TestSnapshot_TakenOncePerTarget(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		store := ports.NewVault()

		r.dieBehind("Install", r.Worker("run-1"), saving(store))

		r.Must(r.Worker("run-2"), saving(store))

		if saved := store.Saved(); len(saved) != 1 {
			t.Errorf("saved %d snapshots for one target, want one", len(saved))
		}

		next := saving(store)
		next.Target = to("1.13.6").Target
		r.Must(r.Worker("run-3"), next)

		if saved := store.Saved(); len(saved) != 2 {
			t.Errorf("saved %d snapshots for two targets, want two", len(saved))
		}
	})
}

func TestSnapshot_FailureStopsEverything(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		effect model.Effect
		says   []string
	}{
		"the members refuse":       {effect: model.EffectFail},
		"the streams end early":    {effect: model.EffectCut},
		"the streams break":        {effect: model.EffectConnectionLost},
		"what they give is broken": {effect: model.EffectCorrupt},
		"nothing comes":            {effect: model.EffectStall},
	} {
		t.Run(name, func(t *testing.T) {
			faults := []model.Fault{{Node: model.AnyNode, Step: model.StepEtcdSnapshot, Effect: given.effect}}

			inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
				store := ports.NewVault()

				err := r.Worker("run-1").Apply(context.Background(), saving(store))
				if !errors.Is(err, say.ErrSnapshot) || !strings.Contains(err.Error(), "No node was disturbed") {
					t.Fatalf("got %v, want the snapshot", err)
				}

				if touched := r.Judge.Of(history.KindCordon, history.KindInstall, history.KindPull); len(touched) > 0 {
					t.Errorf("touched: %+v", touched)
				}

				if saved := store.Saved(); len(saved) > 0 || r.Journal().Snapshot != nil {
					t.Errorf("saved %+v and recorded %+v, want neither", saved, r.Journal().Snapshot)
				}

				r.Tidy()
			})
		})
	}
}

// full is a directory without room.
type full struct{ *ports.Vault }

func (full) Save(context.Context, string, time.Time, func(context.Context, io.Writer) error) (cluster.EtcdSnapshot, error) {
	return cluster.EtcdSnapshot{}, noSpace{}
}

// noSpace is what the store of files says of a disk that is full.
type noSpace struct{}

func (noSpace) Error() string { return "unable to write a snapshot of etcd: no space left on device" }

func (noSpace) Unwrap() []error { return []error{cluster.ErrRefused, cluster.ErrUnsaved} }

// TestSnapshot_FullDiskOfTheRunnerIsNotBlamedOnEtcd: no member can do anything about it, and none
// of the others is asked.
func TestSnapshot_FullDiskOfTheRunnerIsNotBlamedOnEtcd(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		request := saving(ports.NewVault())
		request.Snapshots = full{ports.NewVault()}

		var failed *say.Failure
		if err := r.Worker("run-1").Apply(context.Background(), request); !errors.As(err, &failed) || !errors.Is(err, say.ErrSnapshot) {
			t.Fatalf("got %v, want the snapshot", err)
		}

		const want = "Unable to write a snapshot of etcd: no space left on device.\n\nNo node was disturbed.\n\n" +
			"Look at etcd_snapshot.directory on the machine that runs terraform apply: it needs room for the snapshot, and has to be writable. Then run terraform apply again."
		if failed.Summary != "Unable to save a snapshot of etcd" || failed.Detail() != want {
			t.Errorf("%s\n%s\nwant\n%s", failed.Summary, failed.Detail(), want)
		}
	})
}

func TestSnapshot_TakenFromAnotherMemberWhenOneFails(t *testing.T) {
	t.Parallel()

	for _, broken := range [][]string{{"cp-0"}, {"cp-1", "cp-2"}} {
		t.Run(strings.Join(broken, " and "), func(t *testing.T) {
			var faults []model.Fault
			for _, node := range broken {
				faults = append(faults, model.Fault{Node: node, Step: model.StepEtcdSnapshot, Effect: model.EffectCut})
			}

			inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
				store := ports.NewVault()
				r.Must(r.Worker("run-1"), saving(store))
				r.At(toLifecycle)

				if len(store.Saved()) != 1 {
					t.Errorf("saved %+v, want one", store.Saved())
				}
			})
		})
	}
}

func TestSnapshot_LaterErrorsSayWhereItIs(t *testing.T) {
	t.Parallel()

	faults := []model.Fault{{Node: "worker-1", Step: model.StepBoot, Effect: model.EffectFallback}}

	inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
		store := ports.NewVault()

		for _, run := range []string{"run-1", "run-2"} {
			err := r.Worker(run).Apply(context.Background(), saving(store))
			if err == nil {
				t.Fatal("the upgrade succeeded")
			}

			saved := store.Saved()
			if len(saved) != 1 || !strings.Contains(err.Error(), saved[0].Path) || !strings.Contains(err.Error(), saved[0].SHA256) {
				t.Errorf("%s: %v\ndoes not name the snapshot %+v", run, err, saved)
			}
		}
	})
}

// A run that stops before the first node has the snapshot in what it reports.
func TestSnapshot_ReportedWhereNoNodeMoved(t *testing.T) {
	t.Parallel()

	faults := []model.Fault{{Node: "worker-1", Step: model.StepPull, Effect: model.EffectNotFound}}

	inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
		last, err := r.Worker("run-1").Upgrade(context.Background(), saving(ports.NewVault()))
		if err == nil {
			t.Fatal("the image was pulled")
		}

		if last.Journal == nil || last.Journal.Snapshot == nil || !strings.Contains(err.Error(), last.Journal.Snapshot.Path) {
			t.Errorf("reported %+v with %v, want the snapshot in both", last.Journal, err)
		}
	})
}

func TestSnapshot_UnusablePlaceIsFoundBeforeTheLease(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		store := ports.NewVault()
		store.Refuse(errors.New("permission denied"))

		w := r.Worker("run-1")

		err := w.Apply(context.Background(), saving(store))
		if !errors.Is(err, say.ErrBlocked) || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), cluster.CheckSnapshot) {
			t.Fatalf("got %v, want the place of the snapshot", err)
		}

		if _, mutating := w.Client.Calls(); mutating > 0 {
			t.Errorf("%d mutating calls, want none", mutating)
		}
	})
}

func TestSnapshot_CancelledLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	faults := []model.Fault{{Node: model.AnyNode, Step: model.StepEtcdSnapshot, Effect: model.EffectStall}}

	inCluster(t, setup{Options: model.Options{Faults: faults}}, func(r *rig) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()

		store := ports.NewVault()
		if err := r.Worker("run-1").Apply(ctx, saving(store)); err == nil {
			t.Fatal("the upgrade succeeded")
		}

		r.Tidy()
		r.Sound()
	})
}

// TestSnapshot_CheckerSeesARunThatTakesNone: where a snapshot is asked for.
func TestSnapshot_CheckerSeesARunThatTakesNone(t *testing.T) {
	t.Parallel()

	judging := []checker.Option{checker.SnapshotFirst()}

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.Must(r.Worker("run-1"), to(toLifecycle))

		if broken := r.Judge.Verdict().Broken(); !slices.Contains(broken, checker.S14) {
			t.Errorf("a run without a snapshot broke %v, want %s", broken, checker.S14)
		}
	})

	inCluster(t, setup{Judging: judging}, func(r *rig) {
		r.Must(r.Worker("run-1"), saving(ports.NewVault()))
		r.At(toLifecycle)
	})
}

// TestSnapshot_SavedByItselfBesideARun: by itself, one takes no lease, and no journal remembers it,
// so that a roll takes its own.
func TestSnapshot_SavedByItselfBesideARun(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		if err := r.HoldLease("run-1"); err != nil {
			t.Fatal(err)
		}

		store := ports.NewVault()
		store.Expose("the directory is open to others")

		asked := r.Worker("asked")

		saved, err := asked.Engine.SaveSnapshot(context.Background(), store)
		if err != nil || len(store.Saved()) != 1 || saved.Path != store.Saved()[0].Path || saved.SHA256 == "" {
			t.Fatalf("saved %+v, %v", saved, err)
		}

		if _, changed := asked.Client.Calls(); changed != 0 || r.Lease().Holder != "run-1" || r.Journal().Snapshot != nil {
			t.Errorf("%d calls changed something; the journal says %+v", changed, r.Journal().Snapshot)
		}

		if warned := strings.Join(asked.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "holds every secret") {
			t.Errorf("a person is warned %q", warned)
		}

		if err := r.HoldLease(""); err != nil {
			t.Fatal(err)
		}

		r.Must(r.Worker("run-2"), saving(store))

		if len(store.Saved()) != 2 {
			t.Errorf("saved %d, want that of the roll as well", len(store.Saved()))
		}
	})
}

// TestSnapshot_FailureByItselfSaysWhatIsWrong, and with what.
func TestSnapshot_FailureByItselfSaysWhatIsWrong(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		spoil func(store *ports.Vault, asked *harness.Worker)
		want  error
		says  string
	}{
		"a directory": {func(store *ports.Vault, _ *harness.Worker) { store.Refuse(cluster.ErrUnsaved) }, cluster.ErrUnsaved, "Look at directory on the machine"},
		"a member": {func(_ *ports.Vault, asked *harness.Worker) {
			asked.Client.Intercept(withCall("EtcdSnapshot", cluster.ErrDenied))
		}, cluster.ErrDenied, "talosctl etcd status"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				store, asked := ports.NewVault(), r.Worker("asked")
				test.spoil(store, asked)

				_, err := asked.Engine.SaveSnapshot(context.Background(), store)

				failed := failure(t, err, test.want, "")
				if !errors.Is(err, say.ErrSnapshot) || !strings.Contains(failed.Remedy, test.says) || !strings.Contains(failed.Remedy, "nvoke the action again") {
					t.Errorf("it says %s", failed.Detail())
				}

				wording.Note(t, wording.Entry{Kind: wording.KindFailure, Summary: failed.Summary, Detail: failed.Detail()})
			})
		})
	}
}

// TestSnapshot_ThatTakesTooLongSaysWhatWasSeen: the stream of one member breaks, and the next one does not answer in
// time.
func TestSnapshot_ThatTakesTooLongSaysWhatWasSeen(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		asked, asks := r.Worker("asked"), 0
		asked.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "EtcdSnapshot" {
				return next(ctx)
			}

			if asks++; asks == 1 {
				return fmt.Errorf("the stream broke: %w", cluster.ErrUnreachable)
			}

			<-ctx.Done()

			return cluster.Ended(ctx)
		})

		bounded, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()

		_, err := asked.Engine.SaveSnapshot(bounded, ports.NewVault())

		failed := failure(t, err, say.ErrSnapshot, "")
		if !strings.Contains(failed.Seen, "the stream broke") {
			t.Errorf("it says %s", failed.Detail())
		}
	})
}

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

// A snapshot belongs to a roll. Another one, be it to the same versions, is not
// to be told of the snapshot of long ago.
func TestSnapshot_NextRollTakesItsOwn(t *testing.T) {
	t.Parallel()

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
func TestSnapshot_NamedByARunThatIsLockedOut(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		store := ports.NewVault()
		r.dieBehind("Install", r.Worker("run-1"), saving(store))

		stop := r.alive("somebody")
		defer stop()

		err := r.Worker("run-2").Apply(context.Background(), saving(store))
		if !errors.Is(err, say.ErrLocked) || !strings.Contains(err.Error(), store.Saved()[0].Path) {
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

// A roll may come to its end in another way than by a run. What is applied after
// that does not offer its snapshot any more.
func TestSnapshot_OfARollThatEndedElsewhereIsClosed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Judging: []checker.Option{checker.Held("worker-1")}}, func(r *rig) {
		store := ports.NewVault()
		first := saving(store)
		first.Policy.Kubernetes.Manifests = cluster.ManifestPolicy{}
		first.Gates = gated(&userGate{timeout: time.Minute, answer: func(node string) (bool, string, error) {
			return node != "worker-1", "degraded", nil
		}}).Gates

		if err := r.Worker("run-1").Apply(context.Background(), bare(first)); !errors.Is(err, say.ErrGate) {
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
func TestSnapshot_SavedOneIsRecordedWhateverEndsTheRun(t *testing.T) {
	t.Parallel()

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

// TestSnapshot_ThatCannotBeRecordedIsNamed: it is there all the same.
func TestSnapshot_ThatCannotBeRecordedIsNamed(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteJournal" && !stamps(call) {
				return cluster.ErrDenied
			}

			return next(ctx)
		})

		err := w.Apply(context.Background(), saving(ports.NewVault()))
		if err == nil || !strings.Contains(err.Error(), "Unable to record the snapshot of etcd") || !strings.Contains(err.Error(), "No node was disturbed. The snapshot is in") {
			t.Errorf("got %v", err)
		}

		r.Sound()
	})
}
