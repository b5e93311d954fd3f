// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestJournal_OneWriteForManyUpgrades: where a write of the journal takes its time, the
// upgrades that wait for it share the next one, also when writes fail.
func TestJournal_OneWriteForManyUpgrades(t *testing.T) {
	t.Parallel()

	const (
		workers = 24
		slow    = 15 * time.Second
	)

	for name, failing := range map[string]bool{"slow": false, "slow, and every third one fails": true} {
		t.Run(name, func(t *testing.T) {
			given := setup{
				Options: model.Options{ControlPlanes: 1, Workers: workers, Seed: 3},
				Judging: []checker.Option{checker.MaxUnavailable(workers / 2)},
			}

			inCluster(t, given, func(r *rig) {
				writes := 0
				w := r.Worker("run-1")

				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "WriteJournal" {
						return next(ctx)
					}

					writes++
					failed := failing && writes%3 == 0

					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(slow):
					}

					if failed {
						return errors.Join(cluster.ErrUnreachable, errors.New("the API server is busy"))
					}

					return next(ctx)
				})

				r.Must(w, sharing(t, toLifecycle, "50%"))
				r.At(toLifecycle)
				r.Once()

				entries := len(r.Judge.Of(history.KindJournal))
				if entries < 3*workers || writes > entries/2 {
					t.Errorf("%d writes for %d changes of entries, want at most half as many", writes, entries)
				}
			})
		})
	}
}

const noUUID = "00000000-0000-0000-0000-000000000000"

// sharedUUID gives all machines the same UUID.
func (r *rig) sharedUUID(uuid string) {
	r.T.Helper()

	for _, state := range r.World().Nodes() {
		if err := r.World().SetUUID(state.Name, uuid); err != nil {
			r.T.Fatal(err)
		}
	}
}

// installsNothing has a run refuse to go on, in these words, and install nothing.
func (r *rig) installsNothing(w *worker, request engine.Request, says ...string) {
	r.T.Helper()

	installs := map[string]int{}
	for _, state := range r.World().Nodes() {
		installs[state.Name] = state.Installs
	}

	err := w.Apply(context.Background(), request)
	for _, part := range says {
		if err == nil || !strings.Contains(err.Error(), part) {
			r.T.Errorf("it does not say %q: %v", part, err)
		}
	}

	for _, state := range r.World().Nodes() {
		if state.Installs != installs[state.Name] {
			r.T.Errorf("%s was installed %d times instead of %d", state.Name, state.Installs, installs[state.Name])
		}
	}

	r.Sound()
}

// TestIdentity_MachinesThatShareAUUIDAreUpgraded, also where a run was killed in between.
func TestIdentity_MachinesThatShareAUUIDAreUpgraded(t *testing.T) {
	t.Parallel()

	for _, uuid := range []string{noUUID, "03000200-0400-0500-0006-000700080009"} {
		inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
			r.sharedUUID(uuid)
			r.killedAt("run-1", "Reboot", 2, to(toLifecycle))
			r.Must(r.Worker("run-2"), to(toLifecycle))
			r.At(toLifecycle)
			r.Once()
		})
	}
}

// TestIdentity_RunGoesOnFromAJournalOfAnEarlierVersion: its entries stand under UUIDs of
// the hardware, and stand under machine IDs when they are written again.
func TestIdentity_RunGoesOnFromAJournalOfAnEarlierVersion(t *testing.T) {
	t.Parallel()

	for _, shared := range []bool{false, true} {
		inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
			if shared {
				r.sharedUUID(noUUID)
			}

			r.killedAt("run-1", "Reboot", 2, to(toLifecycle))

			unfinished := 0

			r.EditJournalAsPerson(func(journal cluster.Journal) cluster.Journal {
				for key, entry := range journal.Entries {
					journal = journal.Without(key).With(r.State(entry.Node).UUID, entry)
					unfinished++
				}

				return journal
			})

			if unfinished != 1 {
				t.Fatalf("%d entries are open, want 1", unfinished)
			}

			w := r.Worker("run-2")

			w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
				err := next(ctx)

				if call.Method == "WriteJournal" && err == nil {
					for key, entry := range r.Journal().Entries {
						if entry.Run == "run-2" && key != r.State(entry.Node).MachineID {
							t.Errorf("the entry of %s stands under %s", entry.Node, key)
						}
					}
				}

				return err
			})

			r.Must(w, to(toLifecycle))
			r.At(toLifecycle)
			r.Once()
		})
	}
}

// TestIdentity_MachinesAreKnownWithoutDiscovery: their identity does not depend on it.
func TestIdentity_MachinesAreKnownWithoutDiscovery(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		for _, step := range []struct {
			run    string
			reboot int32
		}{{"run-1", 2}, {"run-2", 0}} {
			client := r.Client(step.run)
			over := &undiscovered{client}
			w := r.WorkerOver(client, over, client)

			if step.reboot > 0 {
				r.killed(w, "Reboot", step.reboot, to(toLifecycle))
			} else {
				r.Must(w, to(toLifecycle))
			}
		}

		r.At(toLifecycle)
		r.Once()
	})
}

// undiscovered is a cluster whose discovery is off.
type undiscovered struct{ *ports.Client }

func (*undiscovered) Members(context.Context) ([]cluster.Member, error) { return nil, nil }

func (*undiscovered) ClusterID(context.Context) (string, error) { return "", nil }

// TestIdentity_WipedStateInMidUpgradeIsRefused: nobody knows any more which
// machine the journal speaks of.
func TestIdentity_WipedStateInMidUpgradeIsRefused(t *testing.T) {
	t.Parallel()

	for _, method := range []string{"Install", "Reboot"} {
		inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
			r.killedAt("run-1", method, 1, to(toLifecycle))

			before := r.State("worker-0")
			if err := r.World().WipeStateByHand("worker-0"); err != nil {
				t.Fatal(err)
			}

			r.Until("back", 10*time.Minute, func() bool { now := r.State("worker-0"); return now.Ready && now.BootID != before.BootID })

			r.installsNothing(r.Worker("run-2"), to(toLifecycle),
				"worker-0", "under "+before.MachineID, "has the ID "+r.State("worker-0").MachineID, "STATE partition was wiped", "remove the key "+before.MachineID)

			// What it says helps.
			r.EditJournalAsPerson(func(journal cluster.Journal) cluster.Journal { return journal.Without(before.MachineID) })
			r.Must(r.Worker("run-3"), to(toLifecycle))
			r.AllRun(toLifecycle)
		})
	}
}

func TestIdentity_CloneIsRefused(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		if err := r.World().CloneState("worker-0", "worker-1"); err != nil {
			t.Fatal(err)
		}

		r.installsNothing(r.Worker("run-1"), to(toLifecycle), "worker-1", "the same machine ID ("+r.State("worker-0").MachineID+")", "copied from the other")
	})
}

// TestIdentity_StaleNodeObjectIsNoNode: with the address of a machine that registers under
// another name it is neither planned nor counted, whichever of both is listed first, and the
// way out is to delete it.
func TestIdentity_StaleNodeObjectIsNoNode(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"another-0", "worker-9"} {
		inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
			client := r.Client("run-1")
			w := r.WorkerOver(client, client, &doubled{client, "worker-0", name})

			observed, err := w.Engine.Observe(context.Background())
			if err != nil {
				t.Fatal(err)
			}

			want := []cluster.StaleNode{{Name: name, Address: r.State("worker-0").Address, Registered: "worker-0"}}
			if !slices.Equal(observed.Stale, want) {
				t.Errorf("%v are stale, want %v", observed.Stale, want)
			}

			if node, _ := observed.Node("worker-0"); len(observed.Nodes) != 5 || !node.Member || node.Machine == nil {
				t.Errorf("%d nodes, want 5; worker-0 is %+v", len(observed.Nodes), node)
			}

			r.installsNothing(w, to(toLifecycle), name, "the Node object is stale", "kubectl delete node "+name)
			r.Must(r.Worker("run-2"), to(toLifecycle))
		})
	}
}

// doubled is a cluster in which the node of a machine is registered under a second name too.
type doubled struct {
	*ports.Client

	node, as string
}

func (d *doubled) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return d.Nodes(ctx)
}

func (d *doubled) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := d.Client.Nodes(ctx)

	for _, node := range nodes {
		if node.Name == d.node {
			node.Name, node.Ready, node.ReadySince = d.as, false, time.Now().Add(-time.Minute)

			return append([]cluster.KubeNode{node}, nodes...), err
		}
	}

	return nodes, err
}

// TestIdentity_UnfinishedNodeIsNotGone although its kubelet has registered another
// machine ID than Talos told, or none, or its entry is of an earlier version and
// the kubelet registered another UUID.
func TestIdentity_UnfinishedNodeIsNotGone(t *testing.T) {
	t.Parallel()

	for _, registered := range []cluster.KubeNode{
		{}, {MachineID: "0123456789abcdef0123456789abcdef"}, {SystemUUID: noUUID},
	} {
		for _, earlier := range []bool{false, true} {
			inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
				r.killedAt("run-1", "Reboot", 1, to(toLifecycle))

				if earlier {
					r.EditJournalAsPerson(func(journal cluster.Journal) cluster.Journal {
						state := r.State("worker-0")

						return journal.Without(state.MachineID).With(state.UUID, journal.Entries[state.MachineID])
					})
				}

				r.loseForGood("worker-0")
				time.Sleep(time.Hour)

				if members := r.World().Members(); len(members) != 4 {
					t.Fatalf("discovery lists %d machines, want 4", len(members))
				}

				client := r.Client("run-2")
				w := r.WorkerOver(client, client, &registering{client, "worker-0", registered})

				request := to(toLifecycle)
				request.Policy.NodeTimeout = 20 * time.Minute

				r.installsNothing(w, request, "worker-0")
			})
		}
	}
}

// registering is a cluster in which the kubelet of a node has registered something
// else.
type registering struct {
	*ports.Client

	node string
	as   cluster.KubeNode
}

func (r *registering) NodesNow(ctx context.Context, _ string) ([]cluster.KubeNode, error) {
	return r.Nodes(ctx)
}

func (r *registering) Node(ctx context.Context, name string) (cluster.KubeNode, error) {
	return named(ctx, name, r.Nodes)
}

func (r *registering) Nodes(ctx context.Context) ([]cluster.KubeNode, error) {
	nodes, err := r.Client.Nodes(ctx)

	for i := range nodes {
		if nodes[i].Name == r.node {
			nodes[i].MachineID, nodes[i].SystemUUID = r.as.MachineID, r.as.SystemUUID
		}
	}

	return nodes, err
}

// TestJournal_UnreadableMeansNoInstall, such as one of a later version.
func TestJournal_UnreadableMeansNoInstall(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{Seed: 41}}, func(r *rig) {
		client := r.Client("run-1")
		r.installsNothing(r.WorkerOver(client, client, &unreadable{client}), to(toLifecycle), `has the format "3"`)
	})
}

type unreadable struct{ *ports.Client }

func (*unreadable) Journal(context.Context) (cluster.Journal, error) {
	return cluster.Journal{}, fmt.Errorf("the ConfigMap has the format %q", "3")
}

// TestJournal_IntentAloneDoesNotArmTheNode: the journal takes so long to be written that
// the guards are asked again, and then do not hold. Nothing was installed, so
// the turn has no more patience than before, and leaves nothing behind.
func TestJournal_IntentAloneDoesNotArmTheNode(t *testing.T) {
	t.Parallel()

	for name, hop := range map[string]struct{ from, to string }{
		"lifecycle": {fromLifecycle, toLifecycle}, "legacy": {fromLegacy, toLegacy},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: hop.from, Seed: 51}}, func(r *rig) {
				var (
					once  sync.Once
					begun time.Time
				)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					err := next(ctx)

					if call.Method == "WriteJournal" && !stamps(call) {
						once.Do(func() {
							r.World().SetFaults(silent("cp-2"))
							time.Sleep(15 * time.Second)

							begun = time.Now()
						})
					}

					return err
				})

				_ = failure(t, w.Apply(context.Background(), bare(to(hop.to))), say.ErrGuard, "worker-0")

				if took := time.Since(begun); took > 7*time.Minute {
					t.Errorf("it took %s to give up", took)
				}

				r.Sound()
				r.stopped("worker-0", false)
				r.Tidy()
			})
		})
	}
}

// TestJournal_NotWrittenOnALeaseThatRanOutMeanwhile: a turn waits for another
// one that writes the journal, for longer than the lease lasts.
func TestJournal_NotWrittenOnALeaseThatRanOutMeanwhile(t *testing.T) {
	t.Parallel()

	inCluster(t, pairs(59), func(r *rig) {
		var (
			stalled          atomic.Bool
			installs, writes atomic.Int32
			both             = make(chan struct{})
		)

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch {
			case call.Method == "Install":
				err := next(ctx)

				// The first worker moves alone. The two behind it have something to write at
				// the same moment.
				switch installs.Add(1) {
				case 2:
					<-both
				case 3:
					close(both)
				}

				return err
			case call.Method == "WriteJournal" && installs.Load() >= 3 && writes.Add(1) == 1:
				stalled.Store(true)
				time.AfterFunc(time.Minute, func() { stalled.Store(false) })
				time.Sleep(40 * time.Second)

				return fmt.Errorf("written too late: %w", cluster.ErrUnreachable)
			case call.Method == "WriteLease" && stalled.Load():
				return fmt.Errorf("no leases: %w", cluster.ErrUnreachable)
			}

			return next(ctx)
		})

		r.Must(w, sharing(t, toLifecycle, "2"))
		r.At(toLifecycle)
		r.Once()
	})
}

func TestJournal_NothingIsInstalledWithoutIt(t *testing.T) {
	t.Parallel()

	for name, given := range map[string]struct {
		method string
		answer error
		want   error
	}{
		"unreadable":   {"Journal", cluster.ErrDenied, say.ErrBlocked},
		"forbidden":    {"WriteJournal", cluster.ErrDenied, cluster.ErrDenied},
		"conflicting":  {"WriteJournal", cluster.ErrConflict, context.DeadlineExceeded},
		"out of reach": {"WriteJournal", cluster.ErrUnreachable, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				w := r.Worker("run-1")
				w.Client.Intercept(withCall(given.method, given.answer))

				err := w.Apply(context.Background(), to(toLifecycle))
				if !errors.Is(err, given.want) || !strings.Contains(err.Error(), "journal") {
					t.Errorf("got %v, want %v and the journal named", err, given.want)
				}

				if installs := r.Judge.Of(history.KindInstall); len(installs) != 0 {
					t.Errorf("installed without a journal: %+v", installs)
				}

				r.Sound()
				r.leftClean()
				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}
