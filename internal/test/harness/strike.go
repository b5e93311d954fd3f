// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
)

// Crash is how a run is struck at one of its mutating calls.
type Crash string

const (
	// DieBefore: the process ends before the request leaves it.
	DieBefore Crash = "before the call"
	// DieDuring: it ends while the request is being carried out.
	DieDuring Crash = "during the call"
	// DieAfter: it ends when the request was carried out, before it can do
	// anything about it.
	DieAfter Crash = "after the call"
	// LoseReply: it lives, but does not learn that the request was carried out.
	LoseReply Crash = "reply lost"
)

// Crashes are all of them.
func Crashes() []Crash { return []Crash{DieBefore, DieDuring, DieAfter, LoseReply} }

// ErrKilled is what becomes of the calls of a dead process.
var ErrKilled = errors.New("the process was killed")

// Strike is one crash of one client.
type Strike struct {
	crash Crash
	at    func(ports.Call) bool

	mu     sync.Mutex
	dead   bool
	killed chan struct{}
	end    context.CancelFunc
	// struck is the call that it happened at, empty when there were fewer.
	struck string
}

// NewStrike makes a crash at the first call that matches, of a client whose run the
// context belongs to that end ends.
func NewStrike(kind Crash, at func(ports.Call) bool, end context.CancelFunc) *Strike {
	return &Strike{crash: kind, at: at, killed: make(chan struct{}), end: end}
}

// Killed is closed when the process is dead.
func (s *Strike) Killed() <-chan struct{} { return s.killed }

// Struck is the call that it happened at, empty when there was none.
func (s *Strike) Struck() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.struck
}

// Kill makes every further call of the client come to nothing. What the engine
// still does then has no effect on anything, as if it had ended at once.
func (s *Strike) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.dead {
		return
	}

	s.dead = true
	s.end()
	close(s.killed)
}

// Intercept is the interceptor of the client.
func (s *Strike) Intercept(ctx context.Context, call ports.Call, next func(context.Context) error) error {
	s.mu.Lock()
	dead := s.dead
	hit := s.struck == "" && s.at(call)

	if hit {
		s.struck = call.String()
	}
	s.mu.Unlock()

	switch {
	case dead:
		return ErrKilled
	case !hit:
		return next(ctx)
	}

	switch s.crash {
	case DieBefore:
		s.Kill()

		return ErrKilled
	case DieDuring:
		const inFlight = 1733 * time.Millisecond

		cut, cancel := context.WithTimeout(ctx, inFlight)
		defer cancel()

		_ = next(cut)
		s.Kill()

		return ErrKilled
	case DieAfter:
		_ = next(ctx)
		s.Kill()

		return ErrKilled
	default:
		if err := next(ctx); err != nil {
			return err
		}

		return fmt.Errorf("%w: %w", cluster.ErrOutcomeUnknown, cluster.ErrUnreachable)
	}
}

// Crashing runs an upgrade that is struck, and returns when its process is dead
// or the upgrade has ended. It tells at which call that was, and returns how to
// wait for what is left of a dead process.
func (r *Rig) Crashing(run string, request engine.Request, kind Crash, at func(ports.Call) bool) (struck string, wait func(), err error) {
	return r.CrashingIn(run, func(ctx context.Context, w *Worker) error { return w.Apply(ctx, request) }, kind, at)
}

// CrashingIn is [Rig.Crashing] for whatever a worker does.
func (r *Rig) CrashingIn(run string, does func(context.Context, *Worker) error, kind Crash, at func(ports.Call) bool) (struck string, wait func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	hit := NewStrike(kind, at, cancel)
	struckWorker := r.Worker(run)
	struckWorker.Client.Intercept(hit.Intercept)

	ended := make(chan error, 1)

	go func() {
		defer close(ended)

		ended <- does(ctx, struckWorker)
	}()

	select {
	case err = <-ended:
	case <-hit.killed:
	}

	// A run may end at the very moment at which it is killed.
	select {
	case <-hit.killed:
		err = ErrKilled
	default:
	}

	wait = func() {
		for range ended {
		}

		cancel()
	}

	return hit.Struck(), wait, err
}
