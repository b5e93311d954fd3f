// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// cancelMost is how long a cancelled run may take to return.
const cancelMost = 15 * time.Second

// TestCancel_AtAnyMomentLeavesNothingBehind cancels rolls at random moments and
// applies again.
func TestCancel_AtAnyMomentLeavesNothingBehind(t *testing.T) {
	t.Parallel()

	moments := 80
	if testing.Short() || raceEnabled {
		moments = 10
	}

	for name, hop := range map[string]struct {
		from, to  string
		cps, work int
		length    time.Duration
	}{
		"lifecycle":            {fromLifecycle, toLifecycle, 3, 2, 13 * time.Minute},
		"legacy":               {fromLegacy, toLegacy, 3, 2, 13 * time.Minute},
		"single control plane": {fromLifecycle, toLifecycle, 1, 1, 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			drawn := drawMoments(11, 13, moments, hop.length)

			beside(t, moments, func(number int) {
				moment := drawn[number].at
				given := setup{Options: model.Options{Talos: hop.from, ControlPlanes: hop.cps, Workers: hop.work, Seed: drawn[number].seed}}

				inCluster(t, given, func(r *rig) { r.cancelAt(moment, to(hop.to)) })

				if t.Failed() {
					t.Errorf("cancelled after %s with seed %d", moment, given.Seed)
				}
			})
		})
	}
}

// moment is one of a simulation.
type moment struct {
	at   time.Duration
	seed uint64
}

// drawMoments draws moments of simulations that last so long.
func drawMoments(seed1, seed2 uint64, count int, length time.Duration) []moment {
	random, drawn := rand.New(rand.NewPCG(seed1, seed2)), make([]moment, count) //nolint:gosec // moments, not secrets
	for number := range drawn {
		drawn[number] = moment{time.Duration(random.Int64N(int64(length))), random.Uint64()}
	}

	return drawn
}

func (r *rig) cancelAt(moment time.Duration, request engine.Request) {
	r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	first := r.Worker("run-1")
	ended := make(chan struct{})

	var took time.Duration

	go func() {
		defer close(ended)

		_, err := first.Upgrade(ctx, request)

		if err != nil && ctx.Err() == nil {
			r.T.Errorf("the run failed before it was cancelled: %v", err)
		}
	}()

	select {
	case <-ended:
	case <-time.After(moment):
		cancel()

		begun := time.Now()
		<-ended
		took = time.Since(begun)
	}

	if took > cancelMost {
		r.T.Errorf("it took %s to return after the cancel\n%s", took, r.Judge.Text())
	}

	if r.anyServer() {
		r.leftClean()
	}

	first.Notes.Finish()
	r.Until("in service", 10*time.Minute, r.anyServer)

	// Where the API server was away, the lease has to stand still for a while;
	// a node without its API server is nothing that an apply can go on from.
	r.Must(r.Worker("run-2"), request)
	r.Sound()
	r.AllRun(request.Target.Talos.String())
}

func (r *rig) anyServer() bool {
	for _, state := range r.World().Nodes() {
		if state.APIServerUp {
			return true
		}
	}

	return false
}

// leftClean fails the test when a lease was left, or a cordon on a node that
// is not armed.
func (r *rig) leftClean() {
	r.T.Helper()

	if holder := r.Lease().Holder; holder != "" {
		r.T.Errorf("the lease is still held by %s\n%s", holder, r.Judge.Text())
	}

	armed := map[string]bool{}
	for _, entry := range r.Journal().Entries {
		armed[entry.Node] = entry.Open()
	}

	for name, node := range r.Judge.Verdict().Nodes {
		if node.Cordoned && !armed[name] {
			r.T.Errorf("%s is still cordoned and has no open entry in the journal\n%s", name, r.Judge.Text())
		}
	}
}

// TestCancel_CallUnderWayEndsUnderTheLease: one that was cut off could take
// effect when the lease is somebody else's.
func TestCancel_CallUnderWayEndsUnderTheLease(t *testing.T) {
	t.Parallel()

	for method, request := range map[string]func() (talos, kubernetes string){
		"Configure": func() (string, string) { return "", "1.35.2" },
		"Reboot":    func() (string, string) { return toLifecycle, "" },
		"Cordon":    func() (string, string) { return toLifecycle, "" },
		"Evict":     func() (string, string) { return toLifecycle, "" },
	} {
		t.Run(method, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
				r.AddApp("web", 4, &apiserver.Budget{MinAvailable: 3})

				talos, kubernetes := request()
				wanted := to(cmp.Or(talos, fromLifecycle))

				if kubernetes != "" {
					wanted = both(fromLifecycle, kubernetes)
				}

				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				var (
					struck   atomic.Bool
					returned time.Time
				)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != method || struck.Swap(true) {
						return next(ctx)
					}

					// A network on which the request arrives, whatever becomes of who
					// has sent it, unless that waits for it.
					cancel()

					timer := time.NewTimer(700 * time.Millisecond)
					defer timer.Stop()

					select {
					case <-timer.C:
						err := next(ctx)
						returned = time.Now()

						return err
					case <-ctx.Done():
						go func() {
							<-timer.C
							_ = next(context.WithoutCancel(ctx))
						}()

						return context.Cause(ctx)
					}
				})

				err := w.Apply(ctx, wanted)
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("got %v, want it cancelled", err)
				}

				if returned.IsZero() {
					t.Error("the call was cut off")
				}

				r.Sound()
				r.leftClean()

				r.Must(r.Worker("run-2"), wanted)
				r.Sound()
			})
		})
	}
}

// TestCancel_NoPodIsEvictedAfterIt: the node has many, and each takes its time.
func TestCancel_NoPodIsEvictedAfterIt(t *testing.T) {
	t.Parallel()

	for name, stop := range map[string]func(*rig, context.CancelFunc){
		"cancelled": func(_ *rig, cancel context.CancelFunc) { cancel() },
		"the lease taken": func(r *rig, _ context.CancelFunc) {
			if err := r.HoldLease("intruder"); err != nil {
				r.T.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
				const pods, each = 40, 900 * time.Millisecond

				for number := range pods {
					r.AddPod(fmt.Sprintf("pod-%d", number), "worker-0", nil)
				}

				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				var (
					begun   atomic.Int32
					stopped atomic.Int64
				)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "Evict" {
						return next(ctx)
					}

					if begun.Add(1) == 3 {
						stopped.Store(time.Now().UnixNano())
						stop(r, cancel)
					}

					timer := time.NewTimer(each)
					defer timer.Stop()

					select {
					case <-timer.C:
					case <-ctx.Done():
						return context.Cause(ctx)
					}

					return next(ctx)
				})

				if err := w.Apply(ctx, to(toLifecycle)); err == nil {
					t.Fatal("the run succeeded")
				}

				took := time.Since(time.Unix(0, stopped.Load()))

				if name == "cancelled" {
					if begun.Load() > 3 {
						t.Errorf("%d evictions were begun after the cancel", begun.Load()-3)
					}

					if took > cancelMost {
						t.Errorf("it took %s to return", took)
					}

					r.Sound()

					return
				}

				// Until the next renewal nobody can know.
				if most := int32(3 + leaseRenewal/each + 2); begun.Load() > most {
					t.Errorf("%d evictions, want %d at most", begun.Load(), most)
				}
			})
		})
	}
}

// leaseRenewal is how often a lease is renewed.
const leaseRenewal = 10 * time.Second

// TestCancel_EarlierTimeoutDoesNotShortenItsGrace: a drain that timed out in the
// middle of a call is none that had to stop the run.
func TestCancel_EarlierTimeoutDoesNotShortenItsGrace(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
		r.AddPod("slow", "worker-0", nil)

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		request := to(toLifecycle)
		request.Policy.Drain.OnTimeout = cluster.DrainDelete

		var cancelled atomic.Bool

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			wait := time.Duration(0)

			switch {
			case call.Method == "Evict":
				wait = time.Hour
			case call.Method == "Install" && call.Node == "worker-1":
				cancelled.Store(true)
				cancel()
			case call.Method == "WriteLease" && cancelled.Load():
				wait = time.Second
			}

			timer := time.NewTimer(wait)
			defer timer.Stop()

			select {
			case <-timer.C:
				return next(ctx)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})

		if err := w.Apply(ctx, request); !errors.Is(err, context.Canceled) || !cancelled.Load() {
			t.Fatalf("got %v, want it cancelled", err)
		}

		r.Sound()
		r.leftClean()
	})
}

// TestCancel_HeardAfterAFailureToo: the Kubernetes API hangs while a run that
// failed looks at the cluster for the last time.
func TestCancel_HeardAfterAFailureToo(t *testing.T) {
	t.Parallel()

	given := setup{Options: model.Options{Faults: []model.Fault{{Node: "worker-0", Step: model.StepInstall, Effect: model.EffectFail, Times: 1}}}}

	inCluster(t, given, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		var failed, hung atomic.Bool

		cancelled := time.Time{}

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Install" {
				failed.Store(true)

				return next(ctx)
			}

			if !failed.Load() || call.Method != "Nodes" && call.Method != "WriteLease" {
				return next(ctx)
			}

			if !hung.Swap(true) {
				cancelled = time.Now().Add(2 * time.Second)
				time.AfterFunc(2*time.Second, cancel)
			}

			<-ctx.Done()

			return context.Cause(ctx)
		})

		if err := w.Apply(ctx, to(toLifecycle)); err == nil {
			t.Fatal("the run succeeded")
		}

		if !hung.Load() || ctx.Err() == nil {
			t.Fatal("it was not cancelled after its failure")
		}

		if took := time.Since(cancelled); took > cancelMost {
			t.Errorf("it took %s to return", took)
		}
	})
}

// TestCancel_WhileAnIntentIsWrittenLeavesNothing: the node was never asked.
func TestCancel_WhileAnIntentIsWrittenLeavesNothing(t *testing.T) {
	t.Parallel()

	for name, from := range map[string]string{"lifecycle": fromLifecycle, "legacy": fromLegacy} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{Talos: from}}, func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "WriteJournal" {
						return next(ctx)
					}

					err := next(ctx)

					for _, entry := range r.Journal().Entries {
						if entry.Phase == cluster.PhaseIntent {
							cancel()
						}
					}

					return err
				})

				if err := w.Apply(ctx, to(toLifecycle)); err == nil {
					t.Fatal("the run succeeded")
				}

				r.Sound()
				r.leftClean()

				if len(r.Journal().Entries) > 0 || len(r.Judge.Of(history.KindInstall)) > 0 {
					t.Errorf("the journal holds %+v", r.Journal().Entries)
				}

				if w.FailedNodes() != "" {
					t.Errorf("failed nodes are %q", w.FailedNodes())
				}

				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}
