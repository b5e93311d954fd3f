// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// TestLease_SlowReplyDoesNotMakeItFresher: what counts is when a renewal was
// asked for. A reply that took half a minute is about a lease that anybody may
// have taken by now.
func TestLease_SlowReplyDoesNotMakeItFresher(t *testing.T) {
	t.Parallel()

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

// TestLease_RenewalThatIsNotPermittedSaysSo: the role of the user lets it create a Lease and not patch it.
func TestLease_RenewalThatIsNotPermittedSaysSo(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		w := r.Worker("run-1")

		var writes atomic.Int32

		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteLease" && writes.Add(1) > 1 {
				return fmt.Errorf("%w: leases \"talosupgrade\" is forbidden", cluster.ErrDenied)
			}

			return next(ctx)
		})

		var failed *say.Failure
		if err := w.Apply(context.Background(), to(toLifecycle)); !errors.As(err, &failed) ||
			!strings.Contains(failed.Detail(), "the lease could not be renewed: ") || !strings.Contains(failed.Detail(), "is forbidden") {
			t.Errorf("got %v", err)
		}

		r.Sound()
	})
}

// TestLease_OutageIsNotTakenForTheDeathOfItsHolder: while the lease cannot be read, its
// holder cannot renew it either.
func TestLease_OutageIsNotTakenForTheDeathOfItsHolder(t *testing.T) {
	t.Parallel()

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

		_ = failure(t, w.Apply(context.Background(), to(toLifecycle)), say.ErrLocked, "")

		if holder := r.Lease().Holder; holder != "alive" {
			t.Errorf("the lease was taken over by %q", holder)
		}

		r.Sound()
	})
}

// TestLease_CancelReturnsInTimeWhereNothingAnswers is about an API server that takes
// every request and answers none.
func TestLease_CancelReturnsInTimeWhereNothingAnswers(t *testing.T) {
	t.Parallel()

	const call = time.Minute

	for _, moment := range []time.Duration{70 * time.Second, 95 * time.Second, 110 * time.Second, 3 * time.Minute, 8 * time.Minute} {
		t.Run(moment.String(), func(t *testing.T) {
			t.Parallel()

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

// TestLease_TakenWithoutAReplyIsGivenBack is about a run that ends before it knows whether it has taken the lease.
func TestLease_TakenWithoutAReplyIsGivenBack(t *testing.T) {
	t.Parallel()

	const late = 700 * time.Millisecond

	lost := fmt.Errorf("no reply: %w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)

	for name, test := range map[string]struct {
		// write takes the place of a write of the lease. It may cancel the run.
		write  func(ctx context.Context, r *rig, next func(context.Context) error, cancel func()) error
		holder string
	}{
		"cancelled": {write: func(ctx context.Context, _ *rig, next func(context.Context) error, cancel func()) error {
			defer cancel()

			return cmp.Or(next(ctx), lost)
		}},
		"no reply in time": {write: func(ctx context.Context, _ *rig, next func(context.Context) error, _ func()) error {
			return cmp.Or(next(ctx), lost)
		}},
		// The request arrives, whatever becomes of who has sent it, unless that waits for it.
		"carried out late": {write: func(ctx context.Context, _ *rig, next func(context.Context) error, cancel func()) error {
			cancel()

			select {
			case <-time.After(late):
				return next(ctx)
			case <-ctx.Done():
				time.AfterFunc(late, func() { _ = next(context.WithoutCancel(ctx)) })

				return lost
			}
		}},
		"somebody else takes it": {holder: "other", write: func(_ context.Context, r *rig, _ func(context.Context) error, cancel func()) error {
			defer cancel()

			return cmp.Or(r.HoldLease("other"), lost)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{}, func(r *rig) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()

				var (
					writes    atomic.Int32
					cancelled atomic.Bool
				)

				w := r.Worker("run-1")
				w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
					if call.Method != "WriteLease" || cancelled.Load() {
						return next(ctx)
					}

					writes.Add(1)

					return test.write(ctx, r, next, func() {
						cancelled.Store(true)
						cancel()
					})
				})

				if err := w.Apply(ctx, to(toLifecycle)); err == nil {
					t.Error("the run reports success")
				}

				time.Sleep(2 * late)

				// Within the two minutes that it tries, the pauses grow to five seconds.
				const most = 40

				if holder, n := r.Lease().Holder, writes.Load(); holder != test.holder || n == 0 || n > most {
					t.Errorf("the lease is held by %q after %d writes, want %q after 1 to %d", holder, n, test.holder, most)
				}

				r.Sound()
			})
		})
	}
}

// TestLease_CancelReturnsInTimeWhileItIsTaken is about an API server that answers nothing since the lease was written.
func TestLease_CancelReturnsInTimeWhileItIsTaken(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()

		var gone atomic.Bool

		w := r.Worker("run-1")
		w.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Method == "WriteLease" && !gone.Swap(true) {
				cancel()
			}

			if !gone.Load() || !ofKubernetes(call.Method) {
				return next(ctx)
			}

			_ = engine.RealClock().Sleep(ctx, time.Minute)

			return fmt.Errorf("no reply: %w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
		})

		begun := time.Now()

		if err := w.Apply(ctx, to(toLifecycle)); err == nil {
			t.Error("the run reports success")
		}

		if took := time.Since(begun); took > cancelMost {
			t.Errorf("it took %s to return\n%s", took, r.Judge.Text())
		}

		r.Sound()
	})
}

// ofKubernetes reports whether a method belongs to the port of Kubernetes. The
// annotations do not: a real publisher does not hold up a run.
func ofKubernetes(method string) bool {
	switch method {
	case "Machine", "Members", "ClusterID", "Etcd", "ForfeitLeadership", "Pull", "Install", "InstallerIdle", "Upgrade", "Reboot", "Annotate":
		return false
	default:
		return true
	}
}

func TestLease_OnlyOneOfTwoRunsWorks(t *testing.T) {
	t.Parallel()

	for name, later := range map[string]time.Duration{"at once": 0, "in mid-roll": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(later + time.Millisecond)

				second := r.Worker("run-2")
				err := second.Apply(context.Background(), to(toLifecycle))
				failed := failure(t, err, say.ErrLocked, "")

				if !strings.Contains(failed.Detail(), "run-1 (talosupgrade_cluster.test)") {
					t.Errorf("the holder is not named: %v", failed)
				}

				if _, mutating := second.Client.Calls(); mutating != 0 {
					t.Errorf("the run without the lease made %d mutating calls", mutating)
				}

				if err := <-ended; err != nil {
					t.Errorf("the run with the lease failed: %v", err)
				}

				r.At(toLifecycle)
				r.Once()
			})
		})
	}
}

func TestLease_RunStopsWhenItIsTaken(t *testing.T) {
	t.Parallel()

	for _, moment := range []time.Duration{30 * time.Second, 80 * time.Second, 150 * time.Second, 7 * time.Minute} {
		t.Run(moment.String(), func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(moment)

				if err := r.HoldLease("intruder"); err != nil {
					t.Fatal(err)
				}

				err := <-ended
				if !errors.Is(err, say.ErrLeaseLost) || !strings.Contains(err.Error(), "intruder") {
					t.Errorf("got %v, want the loss of the lease to intruder", err)
				}

				if holder := r.Lease().Holder; holder != "intruder" {
					t.Errorf("the lease is held by %q, want it left to the intruder", holder)
				}

				if err := r.HoldLease(""); err != nil {
					t.Fatal(err)
				}

				r.Must(r.Worker("run-2"), to(toLifecycle))
				r.AllRun(toLifecycle)

				r.Sound()
			})
		})
	}
}

// TestLease_DeletedLetsNobodyElseInstall: somebody deletes the lease of a run that is
// alive, and starts another one.
func TestLease_DeletedLetsNobodyElseInstall(t *testing.T) {
	t.Parallel()

	for moment := 10 * time.Second; moment < 6*time.Minute; moment += stride * (3*time.Second + 70*time.Millisecond) {
		t.Run(moment.String(), func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(moment)
				r.DeleteLeaseAsPerson()

				second := r.Worker("run-2")
				r.Must(second, to(toLifecycle))

				err := <-ended
				if !errors.Is(err, say.ErrLeaseLost) {
					t.Errorf("the first run ended with %v, want the loss of its lease", err)
				}

				if warned := strings.Join(second.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "run-1 (talosupgrade_cluster.test)") {
					t.Errorf("nobody was told who held the lease before: %q", warned)
				}

				r.singleWriter()
				r.AllRun(toLifecycle)
				r.Tidy()
			})
		})
	}
}

// TestLease_MadeByASuspensionProvesNoRelease: somebody deletes the lease of a run that is
// alive, somebody suspends the upgrades and lets them go on, and another run starts. That
// there is a lease again does not mean that the first run gave it back.
func TestLease_MadeByASuspensionProvesNoRelease(t *testing.T) {
	t.Parallel()

	for moment := 10 * time.Second; moment < 6*time.Minute; moment += 13*time.Second + 70*time.Millisecond {
		t.Run(moment.String(), func(t *testing.T) {
			t.Parallel()

			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(moment)
				r.DeleteLeaseAsPerson()

				brake := r.Worker("ola").Engine
				if _, err := brake.Suspend(context.Background(), "ola: storage is degraded"); err != nil {
					t.Fatal(err)
				}

				if _, err := brake.Resume(context.Background()); err != nil {
					t.Fatal(err)
				}

				second := r.Worker("run-2")
				r.Must(second, to(toLifecycle))

				if err := <-ended; !errors.Is(err, say.ErrLeaseLost) {
					t.Errorf("the first run ended with %v, want the loss of its lease", err)
				}

				if warned := strings.Join(second.Texts(cluster.EventWarning), "\n"); !strings.Contains(warned, "run-1 (talosupgrade_cluster.test), which held it last") {
					t.Errorf("nobody was told who held the lease before: %q", warned)
				}

				r.singleWriter()
				r.AllRun(toLifecycle)
			})
		})
	}
}

// TestLease_RunThatWasOvertakenInstallsNothing: the journal is gone as well, so that the
// second run begins at once, while the first is about to write its intent and has
// no reason to doubt its lease yet.
func TestLease_RunThatWasOvertakenInstallsNothing(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var cordoned, overtaken atomic.Bool

		ended, took := make(chan error, 1), make(chan struct{})
		first, second := r.Worker("run-1"), r.Worker("run-2")

		second.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			err := next(ctx)
			if call.Method == "WriteJournal" && overtaken.CompareAndSwap(false, true) {
				close(took)
			}

			return err
		})

		first.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch {
			case call.Method == "Cordon":
				cordoned.Store(true)
			case call.Method == "WriteJournal" && cordoned.CompareAndSwap(true, false):
				r.DeleteLeaseAsPerson()
				r.DeleteJournalAsPerson()

				go func() { ended <- second.Apply(context.Background(), to(toLifecycle)) }()

				<-took
			}

			return next(ctx)
		})

		if err := first.Apply(context.Background(), to(toLifecycle)); !errors.Is(err, say.ErrLeaseLost) {
			t.Errorf("the first run ended with %v, want the loss of its lease", err)
		}

		if err := <-ended; err != nil {
			t.Errorf("the second run failed: %v", err)
		}

		r.singleWriter()
		r.AllRun(toLifecycle)
		r.Once()
	})
}

// singleWriter fails the test where two runs acted at the same time. A run whose lease
// was deleted acts without one until it notices that.
func (r *rig) singleWriter() {
	r.T.Helper()

	for _, broken := range r.Judge.Verdict().Violations {
		if broken.Invariant != checker.S12 {
			r.T.Errorf("%+v\n%s", broken, r.Judge.Text())
		}
	}
}

// withCall answers all calls of a method with an error, from a time on.
func withCall(method string, answer error) ports.Interceptor {
	return func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
		if call.Method == method {
			return answer
		}

		return next(ctx)
	}
}

func TestLease_OfADeadRunIsTakenOver(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		if err := r.HoldLease("long gone"); err != nil {
			t.Fatal(err)
		}

		w := r.Worker("run-1")
		r.Must(w, to(toLifecycle))
		r.At(toLifecycle)
		r.Once()

		if warnings := strings.Join(w.Texts(cluster.EventWarning), "\n"); !strings.Contains(warnings, "long gone") {
			t.Errorf("nobody was told of the takeover: %q", warnings)
		}
	})
}

// TestLease_LastWordStandsBeforeItIsGivenBack: of a process that dies in between nobody
// would say it.
func TestLease_LastWordStandsBeforeItIsGivenBack(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		reader, last := r.Client("reader"), &lateWord{}
		last.flush = func(ctx context.Context) {
			lease, err := reader.Lease(ctx)
			if err != nil || !strings.HasPrefix(lease.Holder, "run-1") {
				t.Errorf("the last word is published while %q holds the lease: %v", lease.Holder, err)
			}
		}

		r.Must(r.WorkerBeside("run-1", nil, last), to(toLifecycle))

		if last.flushed == 0 {
			t.Error("nobody waited for the last word")
		}

		if lease, err := reader.Lease(context.Background()); err != nil || lease.Holder != "" {
			t.Errorf("the run is over, and %q holds the lease: %v", lease.Holder, err)
		}
	})
}

// TestLease_LastWordsDoNotWaitForEachOther: annotations and Events may go to two clusters. If one of them does not answer,
// the other one's last word is passed on nevertheless.
func TestLease_LastWordsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		reader, stuck, last := r.Client("reader"), &lateWord{}, &lateWord{}
		stuck.flush = func(ctx context.Context) { <-ctx.Done() }
		last.flush = func(ctx context.Context) {
			if _, err := reader.Lease(ctx); err != nil {
				t.Errorf("no time is left for the last word: %v", err)
			}
		}

		r.Must(r.WorkerBeside("run-1", nil, stuck, last), to(toLifecycle))

		if last.flushed == 0 {
			t.Error("nobody waited for the last word")
		}
	})
}

// lateWord is an observer that passes on late what it is told.
type lateWord struct {
	flush   func(context.Context)
	flushed int
}

func (*lateWord) Observe(cluster.Event) {}

func (l *lateWord) Flush(ctx context.Context) {
	l.flushed++
	l.flush(ctx)
}

// TestLease_RunThatStoodStillSaysWhoTookIt: a process is stopped while it writes the journal, for longer than it would try
// to, and another run goes on in the meantime. That the journal could not be written is not what happened.
func TestLease_RunThatStoodStillSaysWhoTookIt(t *testing.T) {
	t.Parallel()

	inCluster(t, setup{}, func(r *rig) {
		var (
			writes       atomic.Int32
			stopped      = make(chan struct{})
			goesOn       = make(chan struct{})
			renewalsGoOn = make(chan struct{})
			ended        = make(chan error, 1)
			first        = r.Worker("run-1")
		)

		first.Client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			switch call.Method {
			case "WriteJournal":
				// The third one says that a node has installed.
				if writes.Add(1) == 3 {
					close(stopped)
					<-goesOn
				}
			case "WriteLease":
				if writes.Load() >= 3 {
					<-renewalsGoOn
				}
			}

			return next(ctx)
		})

		go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

		<-stopped
		r.Must(r.Worker("run-2"), to(toLifecycle))
		close(goesOn)

		go func() {
			time.Sleep(time.Minute)
			close(renewalsGoOn)
		}()

		if err := <-ended; !errors.Is(err, say.ErrLeaseLost) {
			t.Errorf("got %v, want the loss of the lease", err)
		}

		r.AllRun(toLifecycle)
	})
}
