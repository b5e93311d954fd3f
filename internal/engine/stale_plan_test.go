// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// pulledFirst fails the test when an installer ran on a node after a boot, or
// after the run before, without a pull of its image in between.
func (r *rig) pulledFirst(since float64) {
	r.T.Helper()

	pulled := map[string]bool{}

	for _, event := range r.Judge.Of(history.KindPull, history.KindInstall) {
		key := event.Node + " " + event.Detail["image"]

		switch {
		case event.Sim < since:
		case event.Kind == history.KindPull:
			pulled[key] = true
		case !pulled[key]:
			r.T.Errorf("%s was installed without a pull\n%s", key, r.Judge.Text())
		}
	}
}

// TestInstallThatNeverTookIsPlannedAnew: a run was killed on its way into the
// installer. What the next one installs instead is what its plan then says, and
// its image is there before.
func TestInstallThatNeverTookIsPlannedAnew(t *testing.T) {
	for _, given := range []struct {
		from, target, next string
		pause              time.Duration
	}{
		{fromLifecycle, toLifecycle, toLifecycle, 0},
		{fromLifecycle, toLifecycle, toLifecycle, 8 * time.Hour},
		{fromLifecycle, toLifecycle, "1.13.5", 0},
		{fromLegacy, toLegacy, "1.13.5", 0},
	} {
		t.Run(fmt.Sprintf("%s, after %s to %s", given.from, given.pause, given.next), func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: given.from, Seed: 7}}, func(r *rig) {
				method := "Install"
				if given.from == fromLegacy {
					method = "Upgrade"
				}

				r.killedAt("run-1", method, 1, to(given.target))
				time.Sleep(given.pause)

				begun := r.World().Now().Seconds()
				second := r.Worker("run-2")
				r.Must(second, to(given.next))
				r.At(given.next)
				r.pulledFirst(begun)

				// What is left for the next plan is not said to be done.
				for _, event := range second.Events() {
					if event.Kind == cluster.EventNodeDone && event.Component == "" && event.To.String() != given.next {
						t.Errorf("%s is said to be done with %s", event.Node, event.To)
					}
				}

				for name, node := range r.Judge.Verdict().Nodes {
					if node.Installs != 1 {
						t.Errorf("%s was installed %d times", name, node.Installs)
					}
				}
			})
		})
	}
}

// TestManyInstallsThatNeverTookAreFinishedInOneApply is about a run that was
// killed while the connection to all its nodes stood still.
func TestManyInstallsThatNeverTookAreFinishedInOneApply(t *testing.T) {
	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 6, Seed: 5}, Judging: []checker.Option{checker.MaxUnavailable(4)}}

	inCluster(t, given, func(r *rig) {
		const together = 4

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		var calls atomic.Int32

		hit := newStrike(dieBefore, atWill, cancel)
		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method != "Install" {
				return hit.Intercept(ctx, call, next)
			}

			if calls.Add(1) == together {
				hit.Kill()
			}

			<-hit.Killed()

			return harness.ErrKilled
		})

		if err := w.Apply(ctx, sharing(t, toLifecycle, "4")); err == nil {
			t.Error("the killed run reports success")
		}

		if entries := r.Journal().Entries; len(entries) != together {
			t.Fatalf("the journal holds %+v", entries)
		}

		time.Sleep(8 * time.Hour)

		begun := r.World().Now().Seconds()
		r.Must(r.Worker("run-2"), sharing(t, toLifecycle, "4"))
		r.At(toLifecycle)
		r.pulledFirst(begun)
	})
}

// trying is a cluster in which a machine seems to boot the new system, until it
// turns out to have returned to the old one long ago.
type trying struct {
	*ports.Client

	address string
	on      atomic.Bool
}

func (c *trying) Machine(ctx context.Context, address string, known *cluster.Machine) (cluster.Machine, error) {
	machine, err := c.Client.Machine(ctx, address, known)
	if err == nil && address == c.address && c.on.Load() {
		machine.Talos, machine.Stage, machine.Ready, machine.UpgradePending = version.MustParse("1.12.6"), cluster.StageBooting, false, true
	}

	return machine, err
}

// TestNodeThatReturnedAfterThePlanIsNotInstalledFromIt: the plan takes the node
// to be on the system that it could not boot, so an install from it would skip
// a release line, or have no image at all.
func TestNodeThatReturnedAfterThePlanIsNotInstalledFromIt(t *testing.T) {
	for name, order := range map[string]cluster.Order{"first of its hop": cluster.WorkersFirst, "last of its hop": cluster.ControlPlanesFirst} {
		t.Run(name, func(t *testing.T) {
			fallen := model.Fault{Node: "worker-2", Step: model.StepBoot, Effect: model.EffectFallback, Times: 1}
			given := setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Talos: walkFrom, Seed: 79, Faults: []model.Fault{fallen}}}

			inCluster(t, given, func(r *rig) {
				request := walk(t, "1")
				request.Policy.Order = order

				r.killedAfter("run-1", "Upgrade", "worker-2", request)

				entry := r.entryOf("worker-2")
				r.Until("back on the old system", 20*time.Minute, func() bool {
					node := r.State("worker-2")

					return node.Reachable && node.BootID != entry.BootID
				})

				client := r.Client("run-2")
				tries := &trying{Client: client, address: r.State("worker-2").Address}
				tries.on.Store(true)

				second := r.WorkerOver(client, tries, client)
				client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method == "Machine" && call.Node == "worker-2" && len(second.Texts(cluster.EventNodeStarted)) > 0 {
						tries.on.Store(false)
					}

					return next(ctx)
				})

				r.Must(second, request)
				r.AllRun(walkTo)
				r.Tidy()

				for _, violation := range r.Judge.Verdict().Violations {
					// What is told of the cluster is as true as what the node says.
					if violation.Invariant != checker.S8 {
						t.Errorf("%+v", violation)
					}
				}

				if walked := r.walked("worker-2"); !slices.Equal(walked[len(walked)-3:], []string{"1.12.6", "1.13.4", walkTo}) {
					t.Errorf("worker-2 booted %v", walked)
				}
			})
		})
	}
}

// entryOf is what the journal holds about a node.
func (r *rig) entryOf(node string) cluster.Entry {
	r.T.Helper()

	for _, entry := range r.Journal().Entries {
		if entry.Node == node {
			return entry
		}
	}

	r.T.Fatalf("the journal holds nothing about %s: %+v", node, r.Journal().Entries)

	return cluster.Entry{}
}

// killedAfter runs an upgrade that is killed after its first call of a method on
// a node.
func (r *rig) killedAfter(run, method, node string, request engine.Request) {
	r.T.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var once atomic.Bool

	hit := newStrike(dieBefore, atWill, cancel)
	w := r.Worker(run)
	w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method && call.Node == node && !once.Swap(true) {
			_ = next(ctx)

			hit.Kill()
		}

		return hit.Intercept(ctx, call, next)
	})

	if err := w.Apply(ctx, request); err == nil {
		r.T.Fatal("the killed run reports success")
	}
}

// TestNodeIsSaidToHaveReachedWhatItRuns: a turn that only closes what an earlier
// run left open is no proof of the version that comes next.
func TestNodeIsSaidToHaveReachedWhatItRuns(t *testing.T) {
	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2, Talos: walkFrom, Seed: 79}}, func(r *rig) {
		r.killedAfter("run-1", "Uncordon", "cp-2", walk(t, "1"))

		second := r.Worker("run-2")
		r.Must(second, walk(t, "1"))
		r.At(walkTo)

		for _, event := range second.Events() {
			if event.Kind == cluster.EventNodeDone {
				if event.Node != "cp-2" || event.To.String() != "1.12.6" {
					t.Errorf("%s was first said to have reached %s, want cp-2 and 1.12.6", event.Node, event.To)
				}

				return
			}
		}
	})
}

// TestCordonOfAnEarlierRunIsNoWayAroundTheCanaries: a node on which nothing was
// installed yet goes back into service and waits, as all others do.
func TestCordonOfAnEarlierRunIsNoWayAroundTheCanaries(t *testing.T) {
	given := setup{Options: model.Options{ControlPlanes: 3, Workers: 3, Seed: 7}, Judging: []checker.Option{checker.Canary("worker-2")}}

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, nil)
		r.killedAt("run-1", "Evict", 1, to(toLifecycle))

		request := to(toLifecycle)
		request.Policy.Canary = []string{"worker-2"}

		r.Must(r.Worker("run-2"), request)
		r.At(toLifecycle)
		r.Once()
	})
}
