// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// TestLockStatusIsJudgedByWatching: whoever renews the lease is alive, whoever does not for
// as long as it is good for is gone, and nobody's clock is asked.
func TestLockStatusIsJudgedByWatching(t *testing.T) {
	var ended chan error

	for name, test := range map[string]struct {
		before func(r *rig)
		after  func()
		holder string
		alive  bool
		longer time.Duration
	}{
		"nobody has upgraded it yet": {before: func(*rig) {}},
		"nobody upgrades it now": {before: func(r *rig) {
			r.Must(r.Worker("run-1"), to(toLifecycle))
		}},
		"a run is alive": {before: func(r *rig) {
			run := r.Worker("run-1")

			go func() { ended <- run.Apply(context.Background(), to(toLifecycle)) }()

			time.Sleep(time.Minute)
		}, after: func() {
			if err := <-ended; err != nil {
				t.Errorf("the run ended with %v", err)
			}
		}, holder: "run-1 (talosupgrade_cluster.test)", alive: true, longer: time.Second},
		"a run is gone": {before: func(r *rig) {
			if err := r.HoldLease("run-1"); err != nil {
				t.Fatal(err)
			}
		}, holder: "run-1", longer: 30 * time.Second},
		"a run ends meanwhile": {before: func(r *rig) {
			if err := r.HoldLease("run-1"); err != nil {
				t.Fatal(err)
			}

			go func() {
				time.Sleep(15 * time.Second)

				_ = r.HoldLease("")
			}()
		}, longer: 15 * time.Second},
		"another run takes it over meanwhile": {before: func(r *rig) {
			if err := r.HoldLease("run-1"); err != nil {
				t.Fatal(err)
			}

			go func() {
				time.Sleep(15 * time.Second)

				_ = r.HoldLease("run-2")
			}()
		}, holder: "run-2", alive: true, longer: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, setup{}, func(r *rig) {
				ended = make(chan error, 1)

				test.before(r)

				asked := r.Worker("asked")
				began := time.Now()

				status, err := asked.Engine.LockStatus(context.Background())
				if err != nil {
					t.Fatal(err)
				}

				took := time.Since(began)

				if status.Lease.Holder != test.holder || status.Alive != test.alive {
					t.Errorf("%q holds it, alive: %t; want %q, alive: %t", status.Lease.Holder, status.Alive, test.holder, test.alive)
				}

				if took < test.longer || took > test.longer+11*time.Second {
					t.Errorf("it took %s, want %s and a renewal at most", took, test.longer)
				}

				if watched := strings.Join(asked.Texts(cluster.EventWaiting), "\n"); (test.longer > 0) != strings.Contains(watched, "watching for 30s") {
					t.Errorf("a person is told %q", watched)
				}

				if test.after != nil {
					test.after()
				}

				if _, changed := asked.Client.Calls(); changed != 0 {
					t.Errorf("%d calls changed something", changed)
				}
			})
		})
	}
}

// TestLockStatusTellsWhatWasLeft: the journal is part of it, and what cannot be read is an
// error.
func TestLockStatusTellsWhatWasLeft(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		ctx, kill := context.WithCancelCause(context.Background())
		run := r.Worker("run-1")

		time.AfterFunc(100*time.Second, func() { kill(errors.New("killed")) })

		_ = run.Apply(ctx, to(toLifecycle))

		status, err := r.Worker("asked").Engine.LockStatus(context.Background())
		if err != nil {
			t.Fatal(err)
		}

		if status.LastHolder != "" {
			t.Errorf("the lease that %s gave back is said to be deleted", status.LastHolder)
		}

		r.DeleteLeaseAsPerson()

		deleted, err := r.Worker("asked").Engine.LockStatus(context.Background())
		if err != nil || !strings.HasPrefix(deleted.LastHolder, "run-1") {
			t.Errorf("the lease was deleted, and held last by %q: %v", deleted.LastHolder, err)
		}

		if len(status.Journal.Entries) == 0 || !strings.HasPrefix(status.Journal.Holder, "run-1") {
			t.Errorf("the journal is %+v", status.Journal)
		}
	})
}

// TestLockStatusEndsWithItsContext, and with an API server that refuses.
func TestLockStatusEndsWithItsContext(t *testing.T) {
	inCluster(t, setup{}, func(r *rig) {
		if err := r.HoldLease("run-1"); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()

		if _, err := r.Worker("asked").Engine.LockStatus(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", err)
		}
	})
}
