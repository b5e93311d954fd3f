// SPDX-License-Identifier: MPL-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/ports"
)

// crash is how a run is struck at one of its mutating calls.
type crash string

const (
	// dieBefore: the process ends before the request leaves it.
	dieBefore crash = "before the call"
	// dieDuring: it ends while the request is being carried out.
	dieDuring crash = "during the call"
	// dieAfter: it ends when the request was carried out, before it can do
	// anything about it.
	dieAfter crash = "after the call"
	// loseReply: it lives, but does not learn that the request was carried out.
	loseReply crash = "reply lost"
)

func crashes() []crash { return []crash{dieBefore, dieDuring, dieAfter, loseReply} }

var errKilled = errors.New("the process was killed")

// strike is one crash of one client.
type strike struct {
	crash    crash
	mutation int

	mu     sync.Mutex
	dead   bool
	killed chan struct{}
	end    context.CancelFunc
	// struck is the call that it happened at, empty when there were fewer.
	struck string
}

func newStrike(kind crash, mutation int, end context.CancelFunc) *strike {
	return &strike{crash: kind, mutation: mutation, killed: make(chan struct{}), end: end}
}

// kill makes every further call of the client come to nothing. What the engine
// still does then has no effect on anything, as if it had ended at once.
func (s *strike) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.dead = true
	s.end()
	close(s.killed)
}

func (s *strike) intercept(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	s.mu.Lock()
	dead := s.dead
	hit := call.Mutation == s.mutation

	if hit {
		s.struck = call.String()
	}
	s.mu.Unlock()

	switch {
	case dead:
		return errKilled
	case !hit:
		return next(ctx)
	}

	switch s.crash {
	case dieBefore:
		s.kill()

		return errKilled
	case dieDuring:
		const inFlight = 1733 * time.Millisecond

		cut, cancel := context.WithTimeout(ctx, inFlight)
		defer cancel()

		_ = next(cut)
		s.kill()

		return errKilled
	case dieAfter:
		_ = next(ctx)
		s.kill()

		return errKilled
	default:
		if err := next(ctx); err != nil {
			return err
		}

		return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}
}

// crashing runs an upgrade that is struck, and returns when its process is dead
// or the upgrade has ended. It tells at which call that was, and returns how to
// wait for what is left of a dead process.
func (r *rig) crashing(run string, request engine.Request, kind crash, mutation int) (struck string, wait func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	hit := newStrike(kind, mutation, cancel)
	struckWorker := r.worker(run)
	struckWorker.client.Intercept(hit.intercept)

	ended := make(chan error, 1)

	go func() {
		defer close(ended)

		ended <- struckWorker.upgrade(ctx, request)
	}()

	select {
	case err = <-ended:
	case <-hit.killed:
	}

	// A run may end at the very moment at which it is killed.
	select {
	case <-hit.killed:
		err = errKilled
	default:
	}

	hit.mu.Lock()
	defer hit.mu.Unlock()

	wait = func() {
		for range ended {
		}

		cancel()
	}

	return hit.struck, wait, err
}

// mutationsOf are the methods of the mutating calls of an undisturbed upgrade.
func mutationsOf(t *testing.T, given setup, request engine.Request) []string {
	t.Helper()

	var (
		mu      sync.Mutex
		methods []string
	)

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

		w := r.worker("run-1")
		w.client.Intercept(func(ctx context.Context, call ports.Call, next func(context.Context) error) error {
			if call.Mutation > 0 {
				mu.Lock()
				methods = append(methods, call.Method)
				mu.Unlock()
			}

			return next(ctx)
		})
		r.must(w, request)
	})

	return methods
}

// lasts tells which calls take their time; in the middle of any other one there
// is nothing but before and after.
func lasts(method string) bool { return method == "Pull" || method == "Install" || method == "Upgrade" }

// TestCrashAnywhereThenApplyAgainConverges strikes a roll at every mutating
// call in every way, and applies once more.
func TestCrashAnywhereThenApplyAgainConverges(t *testing.T) {
	for _, hop := range []struct{ name, from, to string }{
		{"lifecycle", fromLifecycle, toLifecycle}, {"legacy", fromLegacy, toLegacy},
	} {
		t.Run(hop.name, func(t *testing.T) {
			t.Parallel()

			given := setup{Options: model.Options{Talos: hop.from, Seed: 7}}
			methods := mutationsOf(t, given, to(hop.to))
			total := len(methods)
			first, stride := 1, 1

			if testing.Short() || raceEnabled {
				const sampled = 11

				first, stride = 1+int(given.Seed)%sampled, sampled
			}

			runs, missed := 0, 0

			for mutation := first; mutation <= total; mutation += stride {
				for _, kind := range crashes() {
					if kind == dieDuring && !lasts(methods[mutation-1]) {
						continue
					}

					runs++

					if !crashOnce(t, given, to(hop.to), kind, mutation) {
						missed++
					}
				}

				if t.Failed() {
					break
				}
			}

			t.Logf("%d mutating calls, %d crashes, %d of them after the end of the run", total, runs, missed)
		})
	}
}

// crashOnce strikes one call and has the next run finish the work. It tells
// whether the call ever came.
func crashOnce(t *testing.T, given setup, request engine.Request, kind crash, mutation int) bool {
	t.Helper()

	came := false

	inCluster(t, given, func(r *rig) {
		r.AddApp("web", 4, &ports.Budget{MinAvailable: 3})

		struck, wait, err := r.crashing("run-1", request, kind, mutation)
		came = struck != ""

		if kind != loseReply && came && !errors.Is(err, errKilled) {
			t.Errorf("%s %s: the run ended with %v before it was killed", kind, struck, err)
		}

		if kind == loseReply && err != nil {
			t.Errorf("%s %s: the run did not get over it: %v\n%s", kind, struck, err, r.judge.text())
		}

		next := r.worker("run-2")
		if err := next.upgrade(context.Background(), request); err != nil {
			t.Errorf("%s %s: the next run failed: %v\n%s", kind, struck, err, r.judge.text())
		}

		wait()

		if t.Failed() {
			return
		}

		if violations := r.judge.verdict().Violations; len(violations) > 0 {
			t.Errorf("%s %s: %+v\n%s", kind, struck, violations, r.judge.text())

			return
		}

		// Even a run that died with nothing left to do but say so has its last
		// word said, and its lease given back.
		r.at(request.Target.Talos.String())
	})

	return came
}
