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

// Crash is how a run is struck at one of its calls.
type Crash string

const (
	// DieBefore: the process dies before the request leaves it.
	DieBefore Crash = "before the call"
	// DieDuring: the process dies while the request is carried out.
	DieDuring Crash = "during the call"
	// DieAfter: the process dies after the request was carried out, before it can act on the reply.
	DieAfter Crash = "after the call"
	// LoseReply: the process lives, but does not learn that the request was carried out.
	LoseReply Crash = "reply lost"
)

// Crashes returns all of them.
func Crashes() []Crash { return []Crash{DieBefore, DieDuring, DieAfter, LoseReply} }

// ErrKilled is the error of every call of a dead process.
var ErrKilled = errors.New("the process was killed")

// Strike is one crash of one client.
type Strike struct {
	crash Crash
	at    func(ports.Call) bool

	mu     sync.Mutex
	dead   bool
	killed chan struct{}
	end    context.CancelFunc
	// struck is the call at which it happened; empty until then.
	struck string
}

// NewStrike returns a crash of one client at the first call for which at is true. end ends the context of the
// client's run.
func NewStrike(kind Crash, at func(ports.Call) bool, end context.CancelFunc) *Strike {
	return &Strike{crash: kind, at: at, killed: make(chan struct{}), end: end}
}

// Killed returns a channel that is closed once the process is dead.
func (s *Strike) Killed() <-chan struct{} { return s.killed }

// Struck returns the call at which it happened; empty if it did not.
func (s *Strike) Struck() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.struck
}

// Kill makes every further call of the client fail without effect. What the engine still does then changes nothing,
// as if the process had ended at once.
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

// Crashing runs an upgrade that is struck, and returns once its process is dead or the upgrade has ended. It returns
// the call at which it was struck, and a function that waits for what is left of a dead process.
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
