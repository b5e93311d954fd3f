// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// FollowEnd is how the following of another run ended.
type FollowEnd string

// The ends.
const (
	// NobodyRuns: nobody held the lease, or whoever did was never seen to renew it.
	NobodyRuns FollowEnd = "nobody-runs"
	// RunEnded: the lease was given back, after everything else that the run had to say.
	RunEnded FollowEnd = "run-ended"
	// RunDied: the run stopped renewing the lease.
	RunDied FollowEnd = "run-died"
)

// followPause is the time between two looks at a run of somebody else.
const followPause = time.Second

// Follow watches the run that holds the lease until it has ended, and has look read what it
// says: again and again, and once more when it has ended. Whether the run is alive is
// judged as in [Engine.LockStatus]. While the API server is away it waits, as the run does.
// Look fails with an error of a port. Nothing is written. Errors are a [*say.Failure], that of
// look, or the cause of the context.
func (e *Engine) Follow(ctx context.Context, look func(ctx context.Context) error) (FollowEnd, error) {
	var (
		first, last cluster.Lease
		seen        bool // a holder
		alive       bool
		moved       = e.clock.Now()
	)

	for {
		current, err := e.kubernetes.Lease(ctx)
		now := e.clock.Now()

		switch {
		case ctx.Err() != nil:
			return "", cluster.Ended(ctx)
		case err != nil && !cluster.Heals(err):
			return "", &say.Failure{
				Summary: "Unable to read the lease kube-system/talosupgrade", Seen: err.Error(), State: "Nothing was touched.", Remedy: leaseRemedy(err), Err: err,
			}
		case err == nil:
			err = look(ctx)
		}

		switch {
		case err != nil && !cluster.Heals(err):
			return "", err
		case err != nil:
			// Its holder could not renew it either.
			moved, current = now, last
		case current.Holder == "" && !seen:
			return NobodyRuns, nil
		case current.Holder == "":
			return RunEnded, nil
		case !seen:
			first, moved, seen = current, now, true
			e.emit(cluster.Event{Kind: cluster.EventWaiting, Text: fmt.Sprintf("the lease is held by %s since %s", current.Holder, current.Acquired.UTC().Format(time.RFC3339))})
		case current.Holder != last.Holder:
			moved, alive = now, true
			e.emit(cluster.Event{Kind: cluster.EventWarning, Text: "the lease is now held by " + current.Holder})
		case !current.Renewed.Equal(last.Renewed):
			moved, alive = now, true
		case now.Sub(moved) >= leaseDuration && alive:
			return RunDied, nil
		case now.Sub(moved) >= leaseDuration:
			e.emit(cluster.Event{Kind: cluster.EventWarning, Text: first.Holder + " has not renewed its lease for " + leaseDuration.String() + ": that run is gone"})

			return NobodyRuns, nil
		}

		last = current

		if e.clock.Sleep(ctx, followPause) != nil {
			return "", cluster.Ended(ctx)
		}
	}
}
