// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// lock is the lease of a run: it is renewed in the background until released.
type lock struct {
	engine *Engine

	// renewing is held while the lease is being written. Nobody has to wait
	// for it longer than the own context lasts.
	renewing semaphore

	mu    sync.Mutex
	lease cluster.Lease
	// renewed is when the last renewal that succeeded was asked for.
	renewed time.Time
	lost    error
	// tell is told once when the lease is lost.
	tell context.CancelCauseFunc

	stop context.CancelFunc
	done chan struct{}
}

// keep renews a lease, asked for at the given time, until the lock is released.
func (e *Engine) keep(ctx context.Context, lease cluster.Lease, asked time.Time) *lock {
	// Renewal outlives a cancelled run: what is in flight is still ours.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	held := &lock{engine: e, renewing: newSemaphore(), lease: lease, renewed: asked, stop: stop, done: make(chan struct{})}

	go func() {
		defer close(held.done)

		for e.clock.Sleep(background, leaseRenewal) == nil {
			held.renew(background)
		}
	}()

	return held
}

// bind makes a context that ends, with [ErrLeaseLost] as its cause, as soon as
// the lease is known to be somebody else's.
func (l *lock) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	bound, end := context.WithCancelCause(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()

	l.tell = end
	if l.lost != nil {
		end(l.lost)
	}

	return bound, func() { end(nil) }
}

// renew writes the lease once. An API server that is away is no loss, however
// long: the next renewal finds out whose the lease is.
func (l *lock) renew(ctx context.Context) {
	if l.renewing.enter(ctx) != nil {
		return
	}

	defer l.renewing.leave()

	wanted, _, lost := l.state()
	if lost != nil {
		return
	}

	holder, asked := wanted.Holder, l.engine.clock.Now()
	wanted.Renewed = asked

	written, err := l.engine.kubernetes.WriteLease(ctx, wanted)
	if err == nil {
		l.written(written, asked)

		return
	}

	if !errors.Is(err, cluster.ErrConflict) && !errors.Is(err, cluster.ErrOutcomeUnknown) && !errors.Is(err, cluster.ErrNotFound) {
		return
	}

	// Conflict: somebody wrote it, or our own last write was applied although
	// its reply was lost. Only a look tells.
	current, err := l.engine.kubernetes.Lease(ctx)
	if err != nil {
		return
	}

	if current.Holder != holder {
		_ = l.lose(takenBy(current))

		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.lease = current
}

// takenBy is the loss of a lease to whoever has it now.
func takenBy(current cluster.Lease) error {
	if current.Holder == "" {
		return errLeaseFreed
	}

	return fmt.Errorf("%w: it is now held by %s since %s", ErrLeaseLost, current.Holder, current.Acquired.UTC().Format(time.RFC3339))
}

// lose ends what rests on the lease. It returns how the lease was lost first.
func (l *lock) lose(lost error) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.lost == nil {
		l.lost = lost
	}

	if l.tell != nil {
		l.tell(l.lost)
	}

	return l.lost
}

// renewOnce reads whose the lease is, however recently it was renewed.
func (l *lock) renewOnce(ctx context.Context) (ok bool, seen string, err error) {
	if _, _, lost := l.state(); lost != nil {
		return false, "", lost
	}

	current, err := l.engine.kubernetes.Lease(ctx)

	switch {
	case err != nil:
		return false, "the lease could not be read: " + err.Error(), permanentOnly(err)
	case current.Holder == l.engine.holder():
		return true, "", nil
	default:
		return false, "", l.lose(takenBy(current))
	}
}

func (l *lock) written(lease cluster.Lease, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.lease, l.renewed = lease, asked
}

// state is the lease as last written, whether it was renewed so recently that
// nobody can have taken it, and the error when it was lost.
func (l *lock) state() (lease cluster.Lease, fresh bool, lost error) {
	now := l.engine.clock.Now()

	l.mu.Lock()
	defer l.mu.Unlock()

	return l.lease, now.Sub(l.renewed) < leaseFresh, l.lost
}

// errLeaseFreed is a lease that somebody took away, by hand it seems: nobody holds
// it.
var errLeaseFreed = fmt.Errorf("%w: somebody deleted or freed kube-system/talosupgrade, and nobody holds it now", ErrLeaseLost)

// holds is true when the lease is ours and was renewed so recently that nobody
// can have taken it. It renews when it was not; while the API server is away
// it reports the state without an error: seen says what is missing.
func (l *lock) holds(ctx context.Context) (ok bool, seen string, err error) {
	_, fresh, lost := l.state()

	if lost == nil && !fresh {
		l.renew(ctx)

		_, fresh, lost = l.state()
	}

	switch {
	case lost != nil:
		return false, "", lost
	case !fresh:
		return false, "the lease could not be renewed", nil
	default:
		return true, "", nil
	}
}

// release gives the lease back, if it is still ours, within the time that is
// left to a run that ends.
func (l *lock) release(ctx context.Context) error {
	l.stop()
	<-l.done

	bounded, cancel := l.engine.cleanupWithin(ctx, releaseTimeout)
	defer cancel()

	return l.engine.waitClosely(bounded, "", "the lease to be released", minPoll, func(ctx context.Context) (bool, string, error) {
		released, seen := l.giveBack(ctx)

		return released, seen, nil
	})
}

// giveBack tries to write the lease without a holder. It also reports success
// when the lease turns out not to be ours any more.
func (l *lock) giveBack(ctx context.Context) (released bool, seen string) {
	wanted, _, lost := l.state()
	if lost != nil {
		return true, ""
	}

	wanted.Holder = ""

	if _, err := l.engine.kubernetes.WriteLease(ctx, wanted); err == nil {
		return true, ""
	}

	// Conflict or lost reply: only a look tells whose it is now.
	current, err := l.engine.kubernetes.Lease(ctx)
	if err != nil {
		return false, err.Error()
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.lease = current

	return current.Holder != l.engine.holder(), "it could not be written"
}
