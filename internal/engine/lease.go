// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

const (
	// leaseDuration is how long a lease must stand still before it counts as
	// abandoned. Only our own clock measures it: those of two runners differ.
	leaseDuration = 30 * time.Second
	leaseRenewal  = 10 * time.Second
	leaseWatch    = 2 * time.Second
	// acquireTimeout bounds how long the lease is fought for.
	acquireTimeout = 2 * time.Minute
	// leaseFresh is how recent the last renewal must be for a mutating call.
	leaseFresh = 20 * time.Second
)

// acquire takes the lease, after watching an abandoned one for long enough. A
// lease that somebody renews is refused at once. One that is gone, or was made anew
// without a holder, while the journal names who had it may have been taken from a run
// that does not know it yet: that is watched for as long.
func (e *Engine) acquire(ctx context.Context) (*lock, error) {
	begun := e.clock.Now()

	for {
		current, _, err := e.readLease(ctx)
		if err != nil {
			return nil, err
		}

		switch {
		case current.Holder != "" && current.Holder != e.holder():
			if err := e.watchStandStill(ctx, current, "the lease is held by "+current.Holder); err != nil {
				return nil, err
			}

			e.emit(cluster.Event{Kind: cluster.EventWarning, Text: fmt.Sprintf(
				"taking over the lease of %s, which has not been renewed for %s", current.Holder, leaseDuration)})
		case neverHeld(current):
			last, err := e.lastHolder(ctx)
			if err != nil {
				return nil, err
			}

			if last == "" || last == e.holder() {
				break
			}

			if err := e.watchStandStill(ctx, current, "the lease was deleted, and "+last+" held it last"); err != nil {
				return nil, err
			}

			e.emit(cluster.Event{Kind: cluster.EventWarning, Text: fmt.Sprintf(
				"taking the lease that was deleted; %s, which held it last, has had %s to notice that", last, leaseDuration)})
		}

		now := e.clock.Now()
		wanted := current
		wanted.Holder, wanted.Acquired, wanted.Renewed, wanted.Duration = e.holder(), now, now, leaseDuration
		wanted.Transitions++

		written, err := e.kubernetes.WriteLease(ctx, wanted)

		switch {
		case err == nil:
			return e.keep(ctx, written, now), nil
		case cluster.Heals(err) && e.clock.Now().Sub(begun) < acquireTimeout:
			// Read it again: either somebody else has it now, or we do, or the
			// API server was just away.
			if e.clock.Sleep(ctx, minPoll) != nil {
				return nil, cluster.Ended(ctx)
			}
		default:
			return nil, &say.Failure{
				Summary: "Unable to take the lease kube-system/talosupgrade", Seen: err.Error(),
				State: "Nothing was touched.", Remedy: leaseRemedy(err), Err: err,
			}
		}
	}
}

// neverHeld tells whether nobody has held this very lease so far: because there is none, or
// because somebody made one to suspend the upgrades. A run that gives its lease back leaves
// in it when it took it.
func neverHeld(lease cluster.Lease) bool { return lease.Holder == "" && lease.Acquired.IsZero() }

// readLease waits a little for an API server that is just away, and tells
// whether it had to.
func (e *Engine) readLease(ctx context.Context) (lease cluster.Lease, away bool, err error) {
	bounded, cancel := e.clock.WithTimeout(ctx, acquireTimeout)
	defer cancel()

	err = e.wait(bounded, "", "the lease kube-system/talosupgrade to be readable", func(ctx context.Context) (bool, string, error) {
		var err error

		lease, err = e.kubernetes.Lease(ctx)
		if err != nil && cluster.Heals(err) {
			away = true

			return false, err.Error(), nil
		}

		return err == nil, "", err
	})
	if err != nil {
		return cluster.Lease{}, away, &say.Failure{
			Summary: "Unable to read the lease kube-system/talosupgrade", Seen: err.Error(),
			State: "Nothing was touched.", Remedy: leaseRemedy(err), Err: err,
		}
	}

	return lease, away, nil
}

// freeRemedy is how a lease that is renewed becomes free. To delete it does not end
// the process that renews it.
const freeRemedy = "To end it sooner, interrupt its terraform apply where that runs (a shell, a pipeline). " +
	"A lease whose process terraform-provider-talosupgrade is gone is taken over by the next apply. " +
	"Delete it (kubectl -n kube-system delete lease talosupgrade) only once that process is gone, " +
	"which shows in spec.renewTime of kubectl -n kube-system get lease talosupgrade -o yaml standing still for more than 30s."

// lastHolder is who took the lease last, as far as the journal knows.
func (e *Engine) lastHolder(ctx context.Context) (holder string, err error) {
	bounded, cancel := e.clock.WithTimeout(ctx, acquireTimeout)
	defer cancel()

	err = e.wait(bounded, "", "the journal kube-system/talosupgrade-journal to be readable", func(ctx context.Context) (bool, string, error) {
		journal, err := e.kubernetes.Journal(ctx)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		holder = journal.Holder

		return true, "", nil
	})
	if err != nil {
		return "", fmt.Errorf("who held it last could not be read: %w", err)
	}

	return holder, nil
}

// leaseRemedy is what to do where the lease cannot be read or written.
func leaseRemedy(err error) string {
	if errors.Is(err, cluster.ErrDenied) {
		return "Allow the credentials to get, create and patch leases in kube-system, then run terraform apply again."
	}

	return say.WritableRemedy
}

// LockStatus is who may act on a cluster, and what a run would find.
type LockStatus struct {
	// Lease is the lease as it was read last; without a holder where nobody has it.
	Lease cluster.Lease
	// Alive tells that the holder was seen to renew it. Whoever was not is gone, and the
	// next run takes the lease over.
	Alive bool
	// LastHolder held a lease that somebody deleted, and may not know it; empty where the
	// lease was given back, or nobody has ever held one. The next run watches for a while
	// before it takes it.
	LastHolder string
	// Journal is what runs have left unfinished.
	Journal cluster.Journal
}

// LockStatus finds out who holds the lease, as a run does: by watching it stand still. That
// takes [leaseDuration] at most while the API server answers. Nothing is written. Errors
// are a [*say.Failure] or of a port.
func (e *Engine) LockStatus(ctx context.Context) (LockStatus, error) {
	var status LockStatus

	lease, _, err := e.readLease(ctx)
	if err != nil {
		return status, err
	}

	status.Lease = lease

	if lease.Holder != "" {
		status.Lease, status.Alive, err = e.watchLease(ctx, lease, "the lease is held by "+lease.Holder)
		if err != nil {
			return status, err
		}
	}

	status.Journal, err = e.kubernetes.Journal(ctx)
	if err != nil {
		return status, fmt.Errorf("the journal kube-system/talosupgrade-journal could not be read: %w", err)
	}

	if neverHeld(status.Lease) {
		status.LastHolder = status.Journal.Holder
	}

	return status, nil
}

// leaseLeft tells whether somebody still holds the lease of a cluster that has
// nothing to do: a run that died after its last node could not say so any more.
func (e *Engine) leaseLeft(ctx context.Context) bool {
	lease, err := e.kubernetes.Lease(ctx)

	return err == nil && lease.Holder != ""
}

// watchStandStill watches another holder's lease, or that there is none, until that has
// stood still for a whole duration. It fails as soon as somebody renews or takes it.
func (e *Engine) watchStandStill(ctx context.Context, first cluster.Lease, seen string) error {
	current, alive, err := e.watchLease(ctx, first, seen)
	if err != nil || !alive {
		return err
	}

	return &say.Failure{
		Summary: "Unable to upgrade the cluster: another upgrade is running",
		Seen:    fmt.Sprintf("The lease kube-system/talosupgrade is held by %s since %s and is being renewed.", current.Holder, current.Acquired.UTC().Format(time.RFC3339)),
		State:   "Nothing was touched.",
		Remedy:  "Wait for it to finish and apply again. " + freeRemedy,
		Err:     say.ErrLocked,
	}
}

// watchLease watches a lease until somebody renews or takes it, which is alive, until its
// holder gives it back, or until it has stood still for a whole duration. Current is the
// lease as it was read last. Time in which it could not be read does not count: its holder
// could not renew it either.
func (e *Engine) watchLease(ctx context.Context, first cluster.Lease, seen string) (current cluster.Lease, alive bool, err error) {
	begun := e.clock.Now()
	current = first
	e.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("%s; watching for %s whether it is still alive", seen, leaseDuration)})

	for e.clock.Now().Sub(begun) < leaseDuration {
		if e.clock.Sleep(ctx, leaseWatch) != nil {
			return current, false, cluster.Ended(ctx)
		}

		read, away, err := e.readLease(ctx)
		if err != nil {
			return current, false, err
		}

		current = read

		if away {
			begun = e.clock.Now()
		}

		switch {
		case first.Holder == "" && neverHeld(current):
			// It is still gone.
		case current.Holder == "":
			return current, false, nil
		case current.Holder != first.Holder || !current.Renewed.Equal(first.Renewed):
			return current, true, nil
		}
	}

	return current, false, nil
}

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
	held := &lock{engine: e, renewing: newSemaphore(1), lease: lease, renewed: asked, stop: stop, done: make(chan struct{})}

	go func() {
		defer close(held.done)

		for e.clock.Sleep(background, leaseRenewal) == nil {
			held.renew(background)
		}
	}()

	return held
}

// bind makes a context that ends, with [say.ErrLeaseLost] as its cause, as soon as
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
		return say.ErrLeaseFreed
	}

	return fmt.Errorf("%w: it is now held by %s since %s", say.ErrLeaseLost, current.Holder, current.Acquired.UTC().Format(time.RFC3339))
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

// stillOurs reads whose the lease is, however recently it was renewed. It renews nothing.
func (l *lock) stillOurs(ctx context.Context) (ok bool, seen string, err error) {
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

// takenMeanwhile is the loss of the lease, where that is why something could not be written in time.
// A run whose process was stopped learns that its time is up before it learns of the loss.
func (l *lock) takenMeanwhile(ctx context.Context) error {
	bounded, cancel := l.engine.clock.WithTimeout(ctx, leaseRenewal)
	defer cancel()

	if _, _, err := l.stillOurs(bounded); errors.Is(err, say.ErrLeaseLost) {
		return err
	}

	return nil
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

// lastRenewed is when the lease was renewed last, as far as its freshness goes by that.
func (l *lock) lastRenewed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.renewed
}

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

// holder is the name under which the engine holds the lease.
func (e *Engine) holder() string {
	if e.owner == "" {
		return e.runID
	}

	return e.runID + " (" + e.owner + ")"
}
