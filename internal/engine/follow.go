// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// FollowEnd is how following another run ended.
type FollowEnd string

// The ways in which following ends.
const (
	// NobodyRuns: nobody held the lease, or its holder was never seen to renew it.
	NobodyRuns FollowEnd = "nobody-runs"
	// RunEnded: the lease was given back, after everything else that the run had to report.
	RunEnded FollowEnd = "run-ended"
	// RunDied: the run stopped renewing the lease.
	RunDied FollowEnd = "run-died"
)

// followPause is the pause between two polls of another run.
const followPause = time.Second

// Follow watches the run that holds the lease until it ends. It calls look to read what the run reports, again
// and again and once more after the end. Whether the run is alive is judged as in [Engine.LockStatus]. If the API
// server does not answer, Follow waits, as the run does. Errors of look are those of a port. Nothing is written.
// The error is a [*say.Failure], that of look, or the cause of the context.
func (e *Engine) Follow(ctx context.Context, look func(ctx context.Context) error) (FollowEnd, error) {
	var (
		first, last cluster.Lease
		seen        bool // a holder was seen
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
			// The holder could not renew it either.
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
