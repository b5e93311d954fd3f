// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestCallThatIsUnderWayAtACancelEndsUnderTheLease: one that was cut off could take
// effect when the lease is somebody else's.
func TestCallThatIsUnderWayAtACancelEndsUnderTheLease(t *testing.T) {
	for method, request := range map[string]func() (talos, kubernetes string){
		"Configure": func() (string, string) { return "", "1.35.2" },
		"Reboot":    func() (string, string) { return toLifecycle, "" },
		"Cordon":    func() (string, string) { return toLifecycle, "" },
		"Evict":     func() (string, string) { return toLifecycle, "" },
	} {
		t.Run(method, func(t *testing.T) {
			inCluster(t, setup{Options: model.Options{ControlPlanes: 3, Workers: 2}}, func(r *rig) {
				r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

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

// TestNoPodIsEvictedAfterACancel: the node has many, and each takes its time.
func TestNoPodIsEvictedAfterACancel(t *testing.T) {
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

// TestTimeThatIsUpEarlierCostsALaterCancelNothing: a drain that timed out in the
// middle of a call is none that had to stop the run.
func TestTimeThatIsUpEarlierCostsALaterCancelNothing(t *testing.T) {
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
