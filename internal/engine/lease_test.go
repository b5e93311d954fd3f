// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestSlowReplyDoesNotMakeTheLeaseFresher: what counts is when a renewal was
// asked for. A reply that took half a minute is about a lease that anybody may
// have taken by now.
func TestSlowReplyDoesNotMakeTheLeaseFresher(t *testing.T) {
	const late = 25 * time.Second

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")

		var writes atomic.Int32

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)

			if call.Method == "WriteLease" && writes.Add(1) > 1 {
				_ = engine.RealClock().Sleep(ctx, late)
			}

			return err
		})

		// A lease that is never fresh is no reason to go on, whatever becomes of
		// the run.
		_ = w.Apply(context.Background(), to(toLifecycle))

		r.Sound()

		if drained := r.Judge.Of(history.KindPull); len(drained) == 0 {
			t.Error("the run did not come to the point at all")
		}
	})
}

// TestOutageIsNotTakenForTheDeathOfAHolder: while the lease cannot be read, its
// holder cannot renew it either.
func TestOutageIsNotTakenForTheDeathOfAHolder(t *testing.T) {
	const (
		renewal = 10 * time.Second
		begins  = 3 * time.Second
		lasts   = 28 * time.Second
	)

	inCluster(t, setup{}, func(r *rig) {
		if err := r.HoldLease("alive"); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		begun := time.Now()
		away := func() bool { return time.Since(begun) > begins && time.Since(begun) < begins+lasts }

		go func() {
			for engine.RealClock().Sleep(ctx, renewal) == nil {
				if !away() {
					_ = r.HoldLease("alive")
				}
			}
		}()

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "Lease" && away() {
				return fmt.Errorf("connection refused: %w", cluster.ErrUnreachable)
			}

			return next(ctx)
		})

		_ = failure(t, w.Apply(context.Background(), to(toLifecycle)), engine.ErrLocked, "")

		if holder := r.Lease().Holder; holder != "alive" {
			t.Errorf("the lease was taken over by %q", holder)
		}

		r.Sound()
	})
}

// TestCancelReturnsInTimeWhereNothingAnswers is about an API server that takes
// every request and answers none.
func TestCancelReturnsInTimeWhereNothingAnswers(t *testing.T) {
	const call = time.Minute

	for _, moment := range []time.Duration{70 * time.Second, 95 * time.Second, 110 * time.Second, 3 * time.Minute, 8 * time.Minute} {
		t.Run(moment.String(), func(t *testing.T) {
			inCluster(t, pairs(137), func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				begun := time.Now()
				w := r.Worker("run-1")

				w.Client.Intercept(func(ctx context.Context, made ports.Call, next func(context.Context) error) error {
					if time.Since(begun) < moment || !ofKubernetes(made.Method) {
						return next(ctx)
					}

					_ = engine.RealClock().Sleep(ctx, call)

					return fmt.Errorf("no reply: %w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
				})

				ended := make(chan error, 1)

				go func() {
					_, err := w.Upgrade(ctx, sharing(t, toLifecycle, "2"))
					ended <- err
				}()

				time.Sleep(moment + 17*time.Second)
				cancel()

				cancelled := time.Now()

				if err := <-ended; err == nil {
					t.Error("the cancelled run reports success")
				}

				if took := time.Since(cancelled); took > cancelMost {
					t.Errorf("it took %s to return after the cancel\n%s", took, r.Judge.Text())
				}

				r.Sound()
			})
		})
	}
}

// ofKubernetes tells whether a method belongs to the port of Kubernetes. The
// annotations do not: a real publisher does not hold up a run.
func ofKubernetes(method string) bool {
	switch method {
	case "Machine", "Members", "ClusterID", "Etcd", "ForfeitLeadership", "Pull", "Install", "InstallerIdle", "Upgrade", "Reboot", "Annotate":
		return false
	default:
		return true
	}
}
