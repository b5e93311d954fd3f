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
	// leaseDuration is how long a lease must stay unrenewed before it counts as abandoned. Only our own clock
	// measures it, because the clocks of two runners differ.
	leaseDuration = 30 * time.Second
	leaseRenewal  = 10 * time.Second
	leaseWatch    = 2 * time.Second
	// acquireTimeout bounds the attempts to take the lease.
	acquireTimeout = 2 * time.Minute
	// leaseFresh is how recent the last renewal must be for a mutating call.
	leaseFresh = 20 * time.Second
)

// acquire takes the lease, after watching an abandoned one for long enough. A lease that its holder renews is
// refused at once. A lease that is gone, or was recreated without a holder, while the journal has a holder, may
// have been deleted under a run that has not noticed yet: it is watched for as long. If the run ends before it knows
// whether it has taken the lease, the lease is given back.
func (e *Engine) acquire(ctx context.Context) (taken *lock, _ error) {
	begun, pause, unsure := e.clock.Now(), minPoll, false

	defer func() {
		if taken == nil && unsure {
			e.withdraw(ctx)
		}
	}()

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

		var written cluster.Lease

		err = e.callWhole(ctx, func(ctx context.Context) (err error) {
			written, err = e.kubernetes.WriteLease(ctx, wanted)

			return err
		})
		unsure = unsure || errors.Is(err, cluster.ErrOutcomeUnknown)

		switch {
		case err == nil:
			return e.keep(ctx, written, now), nil
		case cluster.Heals(err) && e.clock.Now().Sub(begun) < acquireTimeout:
			// Read it again: either somebody else has it now, or we do, or the API server was only briefly
			// unavailable.
			if e.clock.Sleep(ctx, pause) != nil {
				return nil, cluster.Ended(ctx)
			}

			pause = min(pause+pause/2, maxPoll)
		default:
			return nil, &say.Failure{
				Summary: "Unable to take the lease kube-system/talosupgrade", Seen: err.Error(),
				State: "Nothing was touched.", Remedy: leaseRemedy(err), Err: err,
			}
		}
	}
}

// withdraw gives the lease back if it turns out to be ours. If that cannot be done in time, the next run waits until
// the lease counts as abandoned.
func (e *Engine) withdraw(ctx context.Context) {
	bounded, cancel := e.cleanupWithin(ctx, releaseTimeout)
	defer cancel()

	err := e.waitClosely(bounded, "", "the lease to be given back", minPoll, func(ctx context.Context) (bool, string, error) {
		current, err := e.kubernetes.Lease(ctx)
		if err != nil {
			return false, err.Error(), permanentOnly(err)
		}

		if current.Holder != e.holder() {
			return true, "", nil
		}

		current.Holder = ""

		_, err = e.kubernetes.WriteLease(ctx, current)

		return err == nil, "it could not be written", permanentOnly(err)
	})
	if err != nil {
		e.warn("it is not known whether the lease was taken, and it could not be given back: " + err.Error())
	}
}

// neverHeld reports whether nobody has held this very lease: because there is none, or because somebody created
// it to suspend the upgrades. A run that gives its lease back leaves the time at which it took it.
func neverHeld(lease cluster.Lease) bool { return lease.Holder == "" && lease.Acquired.IsZero() }

// readLease reads the lease. It waits a little if the API server is unavailable, and reports whether it had to.
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

// freeRemedy says how a lease that is being renewed becomes free. Deleting it does not end the process that
// renews it.
const freeRemedy = "To end it sooner, interrupt its terraform apply where that runs (a shell, a pipeline). " +
	"A lease whose process terraform-provider-talosupgrade is gone is taken over by the next apply. " +
	"Delete it (kubectl -n kube-system delete lease talosupgrade) only once that process is gone, " +
	"which shows in spec.renewTime of kubectl -n kube-system get lease talosupgrade -o yaml standing still for more than 30s."

// lastHolder returns who took the lease last, as far as the journal knows.
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

const leaseRights = "Allow the credentials to get, create and patch leases in kube-system, then "

// leaseRemedy says what to do if the lease cannot be read or written.
func leaseRemedy(err error) string {
	if errors.Is(err, cluster.ErrDenied) {
		return leaseRights + "run terraform apply again."
	}

	return say.WritableRemedy
}

// leaseLeft reports whether the lease of a cluster with nothing to do still has a holder, as after a run that
// died after its last node.
func (e *Engine) leaseLeft(ctx context.Context) bool {
	lease, err := e.kubernetes.Lease(ctx)

	return err == nil && lease.Holder != ""
}

// watchStandStill watches another holder's lease, or a missing lease, until its holder gives it back, or until it was
// not renewed for a whole duration. It fails as soon as somebody renews or takes it. Time in which the lease could not
// be read does not count, because its holder could not renew it either.
func (e *Engine) watchStandStill(ctx context.Context, first cluster.Lease, seen string) error {
	begun := e.clock.Now()
	e.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("%s; watching for %s whether it is still alive", seen, leaseDuration)})

	for e.clock.Now().Sub(begun) < leaseDuration {
		if e.clock.Sleep(ctx, leaseWatch) != nil {
			return cluster.Ended(ctx)
		}

		current, away, err := e.readLease(ctx)
		if err != nil {
			return err
		}

		if away {
			begun = e.clock.Now()
		}

		switch {
		case first.Holder == "" && neverHeld(current):
			// It is still gone.
		case current.Holder == "":
			return nil
		case current.Holder != first.Holder || !current.Renewed.Equal(first.Renewed):
			return anotherRuns(current)
		}
	}

	return nil
}

func anotherRuns(current cluster.Lease) *say.Failure {
	return &say.Failure{
		Summary: "Unable to upgrade the cluster: another upgrade is running",
		Seen:    fmt.Sprintf("The lease kube-system/talosupgrade is held by %s since %s and is being renewed.", current.Holder, current.Acquired.UTC().Format(time.RFC3339)),
		State:   "Nothing was touched.",
		Remedy:  "Wait for it to finish and apply again. " + freeRemedy,
		Err:     say.ErrLocked,
	}
}

// lock is the lease of a run: it is renewed in the background until it is released.
type lock struct {
	engine *Engine

	// renewing is held while the lease is being written. Waiting for it ends with the context of whoever waits.
	renewing semaphore

	mu    sync.Mutex
	lease cluster.Lease
	// renewed is when the last successful renewal was sent.
	renewed time.Time
	lost    error
	// tell is called once the lease is lost.
	tell context.CancelCauseFunc

	stop context.CancelFunc
	done chan struct{}
}

// keep renews a lease, whose write was sent at the given time, until the lock is released.
func (e *Engine) keep(ctx context.Context, lease cluster.Lease, asked time.Time) *lock {
	// The renewal outlives a cancelled run: calls in progress still need the lease.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	held := &lock{engine: e, renewing: newSemaphore(1), lease: lease, renewed: asked, stop: stop, done: make(chan struct{})}

	go func() {
		defer close(held.done)

		for e.clock.Sleep(background, leaseRenewal) == nil {
			_ = held.renew(background)
		}
	}()

	return held
}

// bind returns a context that ends, with [say.ErrLeaseLost] as its cause, as soon as the lease is known to be
// somebody else's.
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

// renew writes the lease once, and returns why it could not; nil if the lease is lost. An API server that does not answer
// is no loss, however long: the next renewal finds out whose the lease is.
func (l *lock) renew(ctx context.Context) error {
	if err := l.renewing.enter(ctx); err != nil {
		return err
	}

	defer l.renewing.leave()

	wanted, _, lost := l.state()
	if lost != nil {
		return nil
	}

	holder, asked := wanted.Holder, l.engine.clock.Now()
	wanted.Renewed = asked

	written, err := l.engine.kubernetes.WriteLease(ctx, wanted)
	if err == nil {
		l.written(written, asked)

		return nil
	}

	if !errors.Is(err, cluster.ErrConflict) && !errors.Is(err, cluster.ErrOutcomeUnknown) && !errors.Is(err, cluster.ErrNotFound) {
		return err
	}

	// Conflict: somebody wrote it, or our own last write was applied although its reply was lost. Only reading it
	// again shows which.
	current, unread := l.engine.kubernetes.Lease(ctx)
	if unread != nil {
		return unread
	}

	if current.Holder != holder {
		_ = l.lose(takenBy(current))

		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.lease = current

	return err
}

// takenBy returns the error for a lease that was lost to its present holder.
func takenBy(current cluster.Lease) error {
	if current.Holder == "" {
		return say.ErrLeaseFreed
	}

	return fmt.Errorf("%w: it is now held by %s since %s", say.ErrLeaseLost, current.Holder, current.Acquired.UTC().Format(time.RFC3339))
}

// lose ends what depends on the lease. It returns the first reason why it was lost.
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

// stillOurs reads who holds the lease, however recently it was renewed. It renews nothing.
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

// takenMeanwhile returns the loss of the lease, if that is why something could not be written in time. A run
// whose process was stopped notices its timeout before it notices the loss.
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

// state returns the lease as last written, whether it was renewed so recently that nobody can have taken it, and
// the error if it was lost.
func (l *lock) state() (lease cluster.Lease, fresh bool, lost error) {
	now := l.engine.clock.Now()

	l.mu.Lock()
	defer l.mu.Unlock()

	return l.lease, cluster.Elapsed(l.renewed, now) < leaseFresh, l.lost
}

// lastRenewed returns when the lease was last renewed, as [lock.state] counts it.
func (l *lock) lastRenewed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.renewed
}

// holds reports whether the lease is ours and was renewed so recently that nobody can have taken it. If it is not
// fresh, it is renewed first. If the API server does not answer, that is no error: seen says what is missing.
func (l *lock) holds(ctx context.Context) (ok bool, seen string, err error) {
	var failed error

	_, fresh, lost := l.state()

	if lost == nil && !fresh {
		failed = l.renew(ctx)

		_, fresh, lost = l.state()
	}

	switch {
	case lost != nil:
		return false, "", lost
	case failed != nil && !fresh:
		return false, "the lease could not be renewed: " + failed.Error(), nil
	case !fresh:
		return false, "the lease could not be renewed", nil
	default:
		return true, "", nil
	}
}

// release gives the lease back, if it is still ours, within the time that is left to a run that ends.
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

// giveBack tries to write the lease without a holder. It also reports success if the lease turns out not to be
// ours any more.
func (l *lock) giveBack(ctx context.Context) (released bool, seen string) {
	wanted, _, lost := l.state()
	if lost != nil {
		return true, ""
	}

	wanted.Holder = ""

	if _, err := l.engine.kubernetes.WriteLease(ctx, wanted); err == nil {
		return true, ""
	}

	// Conflict or lost reply: only reading it again shows whose it is now.
	current, err := l.engine.kubernetes.Lease(ctx)
	if err != nil {
		return false, err.Error()
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.lease = current

	return current.Holder != l.engine.holder(), "it could not be written"
}

// holder returns the name under which the engine holds the lease.
func (e *Engine) holder() string {
	if e.owner == "" {
		return e.runID
	}

	return e.runID + " (" + e.owner + ")"
}
