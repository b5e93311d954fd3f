// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

func TestOnlyOneOfTwoRunsWorks(t *testing.T) {
	for name, later := range map[string]time.Duration{"at once": 0, "in mid-roll": 3 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(later + time.Millisecond)

				second := r.Worker("run-2")
				err := second.Apply(context.Background(), to(toLifecycle))
				failed := failure(t, err, engine.ErrLocked, "")

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

func TestRunStopsWhenItsLeaseIsTaken(t *testing.T) {
	for _, moment := range []time.Duration{30 * time.Second, 80 * time.Second, 150 * time.Second, 7 * time.Minute} {
		t.Run(moment.String(), func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(moment)

				if err := r.HoldLease("intruder"); err != nil {
					t.Fatal(err)
				}

				err := <-ended
				if !errors.Is(err, engine.ErrLeaseLost) || !strings.Contains(err.Error(), "intruder") {
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

// TestDeletedLeaseLetsNobodyElseInstall: somebody deletes the lease of a run that is
// alive, and starts another one.
func TestDeletedLeaseLetsNobodyElseInstall(t *testing.T) {
	for moment := 10 * time.Second; moment < 6*time.Minute; moment += 3*time.Second + 70*time.Millisecond {
		t.Run(moment.String(), func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				ended := make(chan error, 1)
				first := r.Worker("run-1")

				go func() { ended <- first.Apply(context.Background(), to(toLifecycle)) }()

				time.Sleep(moment)
				r.DeleteLeaseAsPerson()

				second := r.Worker("run-2")
				r.Must(second, to(toLifecycle))

				err := <-ended
				if !errors.Is(err, engine.ErrLeaseLost) {
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

// TestLeaseThatASuspensionMadeIsNobodysToTake: somebody deletes the lease of a run that is
// alive, somebody suspends the upgrades and lets them go on, and another run starts. That
// there is a lease again does not mean that the first run gave it back.
func TestLeaseThatASuspensionMadeIsNobodysToTake(t *testing.T) {
	for moment := 10 * time.Second; moment < 6*time.Minute; moment += 13*time.Second + 70*time.Millisecond {
		t.Run(moment.String(), func(t *testing.T) {
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

				if err := <-ended; !errors.Is(err, engine.ErrLeaseLost) {
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

// TestRunThatWasOvertakenInstallsNothing: the journal is gone as well, so that the
// second run begins at once, while the first is about to write its intent and has
// no reason to doubt its lease yet.
func TestRunThatWasOvertakenInstallsNothing(t *testing.T) {
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

		if err := first.Apply(context.Background(), to(toLifecycle)); !errors.Is(err, engine.ErrLeaseLost) {
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

func TestNothingIsInstalledWithoutAJournal(t *testing.T) {
	for name, given := range map[string]struct {
		method string
		answer error
		want   error
	}{
		"unreadable":   {"Journal", cluster.ErrDenied, engine.ErrBlocked},
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

func TestLeaseOfTheDeadIsTakenOver(t *testing.T) {
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
