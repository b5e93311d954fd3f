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

const (
	// leaseDuration is how long a lease must stand still before it counts as
	// abandoned. Only our own clock measures it: those of two runners differ.
	leaseDuration = 30 * time.Second
	leaseRenewal  = 10 * time.Second
	leaseWatch    = 2 * time.Second
	// acquirePatience bounds how long the lease is fought for.
	acquirePatience = 2 * time.Minute
	// leaseFresh is how recent the last renewal must be for a mutating call.
	leaseFresh = 20 * time.Second
)

// lock is the lease of a run: it is renewed in the background until released.
type lock struct {
	engine *Engine

	mu      sync.Mutex
	lease   cluster.Lease
	renewed time.Time
	lost    error

	stop context.CancelFunc
	done chan struct{}
}

// acquire takes the lease, after watching an abandoned one for long enough. A
// lease that somebody renews is refused at once.
func (e *Engine) acquire(ctx context.Context) (*lock, error) {
	begun := e.clock.Now()

	for {
		current, err := e.readLease(ctx)
		if err != nil {
			return nil, err
		}

		if current.Holder != "" && current.Holder != e.holder() {
			if err := e.outwatch(ctx, current); err != nil {
				return nil, err
			}

			e.emit(cluster.Event{Kind: cluster.EventWarning, Text: fmt.Sprintf(
				"taking over the lease of %s, which has not been renewed for %s", current.Holder, leaseDuration)})
		}

		now := e.clock.Now()
		wanted := current
		wanted.Holder, wanted.Acquired, wanted.Renewed, wanted.Duration = e.holder(), now, now, leaseDuration
		wanted.Transitions++

		written, err := e.kubernetes.WriteLease(ctx, wanted)

		switch {
		case err == nil:
			return e.keep(ctx, written), nil
		case cluster.Heals(err) && e.clock.Now().Sub(begun) < acquirePatience:
			// Read it again: either somebody else has it now, or we do, or the
			// API server was just away.
			if err := e.clock.Sleep(ctx, pollFirst); err != nil {
				return nil, err
			}
		default:
			return nil, &Failure{
				Summary: "Unable to take the lease kube-system/talosupgrade", Seen: err.Error(),
				State: "Nothing was touched.", Remedy: "The lease needs get, create and patch on leases in kube-system.", Err: err,
			}
		}
	}
}

// readLease waits a little for an API server that is just away.
func (e *Engine) readLease(ctx context.Context) (cluster.Lease, error) {
	bounded, cancel := e.clock.WithTimeout(ctx, acquirePatience)
	defer cancel()

	var lease cluster.Lease

	err := e.wait(bounded, "", "the lease kube-system/talosupgrade to be readable", func(ctx context.Context) (bool, string, error) {
		var err error

		lease, err = e.kubernetes.Lease(ctx)
		if err != nil && cluster.Heals(err) {
			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
	if err != nil {
		return cluster.Lease{}, &Failure{
			Summary: "Unable to read the lease kube-system/talosupgrade", Seen: err.Error(),
			State: "Nothing was touched.", Remedy: resumeRemedy, Err: err,
		}
	}

	return lease, nil
}

// leftLease tells whether somebody still holds the lease of a cluster that has
// nothing to do: a run that died after its last node could not say so any more.
func (e *Engine) leftLease(ctx context.Context) bool {
	lease, err := e.kubernetes.Lease(ctx)

	return err == nil && lease.Holder != ""
}

// outwatch watches another holder's lease until it has stood still for its
// whole duration. It fails as soon as the lease moves.
func (e *Engine) outwatch(ctx context.Context, first cluster.Lease) error {
	begun := e.clock.Now()
	e.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("the lease is held by %s; watching whether it is still alive", first.Holder)})

	for e.clock.Now().Sub(begun) < leaseDuration {
		if err := e.clock.Sleep(ctx, leaseWatch); err != nil {
			return err
		}

		current, err := e.readLease(ctx)
		if err != nil {
			return err
		}

		switch {
		case current.Holder == "":
			return nil
		case current.Holder != first.Holder || !current.Renewed.Equal(first.Renewed):
			return &Failure{
				Summary: "Unable to upgrade the cluster: another upgrade is running",
				Seen:    fmt.Sprintf("The lease kube-system/talosupgrade is held by %s since %s and is being renewed.", current.Holder, current.Acquired.UTC().Format(time.RFC3339)),
				State:   "Nothing was touched.",
				Remedy:  "Wait for it to finish and apply again. If nothing can be running there any more, kubectl -n kube-system delete lease talosupgrade frees it.",
				Err:     ErrLocked,
			}
		}
	}

	return nil
}

// keep renews a lease that was just written until the lock is released.
func (e *Engine) keep(ctx context.Context, lease cluster.Lease) *lock {
	// Renewal outlives a cancelled run: what is in flight is still ours.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	held := &lock{engine: e, lease: lease, renewed: e.clock.Now(), stop: stop, done: make(chan struct{})}

	go func() {
		defer close(held.done)

		for e.clock.Sleep(background, leaseRenewal) == nil {
			held.renew(background)
		}
	}()

	return held
}

// renew writes the lease once. An API server that is away is no loss, however
// long: the next renewal finds out whose the lease is.
func (l *lock) renew(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.lost != nil {
		return
	}

	wanted := l.lease
	wanted.Renewed = l.engine.clock.Now()

	written, err := l.engine.kubernetes.WriteLease(ctx, wanted)
	if err == nil {
		l.lease, l.renewed = written, l.engine.clock.Now()

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

	if current.Holder != l.lease.Holder {
		l.lost = fmt.Errorf("%w: it is now held by %s since %s", ErrLeaseLost, holderName(current), current.Acquired.UTC().Format(time.RFC3339))

		return
	}

	l.lease = current
}

func holderName(lease cluster.Lease) string {
	if lease.Holder == "" {
		return "nobody"
	}

	return lease.Holder
}

// holds is nil when the lease is ours and was renewed so recently that nobody
// can have taken it. It renews when it was not; while the API server is away
// it reports the state without an error: seen says what is missing.
func (l *lock) holds(ctx context.Context) (ok bool, seen string, err error) {
	l.mu.Lock()
	fresh := l.engine.clock.Now().Sub(l.renewed) < leaseFresh
	lost := l.lost
	l.mu.Unlock()

	if lost == nil && !fresh {
		l.renew(ctx)

		l.mu.Lock()
		fresh = l.engine.clock.Now().Sub(l.renewed) < leaseFresh
		lost = l.lost
		l.mu.Unlock()
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

	bounded, cancel := l.engine.aftermath(ctx)
	defer cancel()

	return l.engine.wait(bounded, "", "the lease to be released", func(ctx context.Context) (bool, string, error) {
		released, seen := l.giveBack(ctx)

		return released, seen, nil
	})
}

// giveBack tries to write the lease without a holder. It also reports success
// when the lease turns out not to be ours any more.
func (l *lock) giveBack(ctx context.Context) (released bool, seen string) {
	if l.lost != nil {
		return true, ""
	}

	wanted := l.lease
	wanted.Holder = ""

	if _, err := l.engine.kubernetes.WriteLease(ctx, wanted); err == nil {
		return true, ""
	}

	// Conflict or lost reply: only a look tells whose it is now.
	current, err := l.engine.kubernetes.Lease(ctx)
	if err != nil {
		return false, err.Error()
	}

	l.lease = current

	return current.Holder != l.engine.holder(), "it could not be written"
}
