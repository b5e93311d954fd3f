// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
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

// acquire takes the lease, after watching an abandoned one for long enough. A
// lease that somebody renews is refused at once. One that is gone while the
// journal names who had it may have been taken from a run that does not know it
// yet: that is watched for as long.
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
		case current.ResourceVersion == "":
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
		case cluster.Heals(err) && e.clock.Now().Sub(begun) < acquirePatience:
			// Read it again: either somebody else has it now, or we do, or the
			// API server was just away.
			if err := e.clock.Sleep(ctx, minPoll); err != nil {
				return nil, err
			}
		default:
			return nil, &Failure{
				Summary: "Unable to take the lease kube-system/talosupgrade", Seen: err.Error(),
				State: "Nothing was touched.", Remedy: leaseRemedy(err), Err: err,
			}
		}
	}
}

// readLease waits a little for an API server that is just away, and tells
// whether it had to.
func (e *Engine) readLease(ctx context.Context) (lease cluster.Lease, away bool, err error) {
	bounded, cancel := e.clock.WithTimeout(ctx, acquirePatience)
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
		return cluster.Lease{}, away, &Failure{
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
	bounded, cancel := e.clock.WithTimeout(ctx, acquirePatience)
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

	return writableRemedy
}

// leaseLeft tells whether somebody still holds the lease of a cluster that has
// nothing to do: a run that died after its last node could not say so any more.
func (e *Engine) leaseLeft(ctx context.Context) bool {
	lease, err := e.kubernetes.Lease(ctx)

	return err == nil && lease.Holder != ""
}

// watchStandStill watches another holder's lease, or that there is none, until that has
// stood still for a whole duration. It fails as soon as somebody renews or takes
// it. Time in which it could not be read does not count: its holder could not
// renew it either.
func (e *Engine) watchStandStill(ctx context.Context, first cluster.Lease, seen string) error {
	begun := e.clock.Now()
	e.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("%s; watching for %s whether it is still alive", seen, leaseDuration)})

	for e.clock.Now().Sub(begun) < leaseDuration {
		if err := e.clock.Sleep(ctx, leaseWatch); err != nil {
			return err
		}

		current, away, err := e.readLease(ctx)
		if err != nil {
			return err
		}

		if away {
			begun = e.clock.Now()
		}

		switch {
		case current.Holder == "" && current.ResourceVersion != first.ResourceVersion:
			return nil
		case current.Holder == "":
			// It is still gone.
		case current.Holder != first.Holder || !current.Renewed.Equal(first.Renewed):
			return &Failure{
				Summary: "Unable to upgrade the cluster: another upgrade is running",
				Seen:    fmt.Sprintf("The lease kube-system/talosupgrade is held by %s since %s and is being renewed.", current.Holder, current.Acquired.UTC().Format(time.RFC3339)),
				State:   "Nothing was touched.",
				Remedy:  "Wait for it to finish and apply again. " + freeRemedy,
				Err:     ErrLocked,
			}
		}
	}

	return nil
}
