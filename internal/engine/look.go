// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// blockage is what keeps a run from starting anything. The zero value is none.
type blockage struct {
	// since is when it was first seen without a break.
	since, announced time.Time
	pause            time.Duration
	// hesitate tells that an upgrade ended because it had no room.
	hesitate bool
}

// observe observes and plans, and tells whether something may be started as far as
// that goes. Otherwise it has waited a little. At the beginning whatever blocks
// is an error at once; later it gets the time to heal that it may need after a
// reboot, and upgrades that are going on are left alone meanwhile.
func (s *rollout) observe(ctx context.Context) (ready bool, err error) {
	if s.blockage.hesitate {
		s.blockage.hesitate = false

		return false, s.await(ctx, maxPoll)
	}

	// Whoever asks for this knows when the context has ended.
	observed, err := s.run.engine.Observe(ctx)
	if ctx.Err() != nil {
		return false, nil
	}

	if err != nil {
		if !cluster.Heals(err) {
			return false, s.unobserved(err)
		}

		return false, s.waitOut(ctx, err.Error(), func() error { return s.unobserved(err) })
	}

	s.snapshot, s.made = observed, s.unrepeated(plan.Make(observed, s.run.request.Target, s.presentPolicy(observed)))
	s.run.journal.setNodes(observed.Nodes)
	s.run.suspect(observed, s.running)
	s.run.engine.tell(s.made.Findings)

	// Upgrades that are going on write it, and know better than an observation.
	if observed.Journal != nil && len(s.running) == 0 {
		s.run.adoptJournal(*observed.Journal)
	}

	// A node that this run moves right now may be away.
	blocking := slices.DeleteFunc(cluster.Blocking(s.made.Findings), func(f cluster.Finding) bool {
		return f.Severity == cluster.Observed && f.Node != "" && s.inProgress(f.Node)
	})

	if len(blocking) > 0 {
		return false, s.blocked(ctx, blocking)
	}

	return true, nil
}

// blocked waits a little for findings to pass that block, or fails when that
// is of no use or has taken too long.
func (s *rollout) blocked(ctx context.Context, blocking []cluster.Finding) error {
	refuse := func() error {
		failure := blocked(s.run.request.Target, blocking)
		if s.moved {
			// How the cluster is left is known when all upgrades have ended.
			failure.State = ""
			failure.Remedy = resumeRemedy
			failure.Err = errors.Join(append([]error{ErrGuard}, causes(blocking)...)...)
		}

		return failure
	}

	if fatal(blocking) != nil || hasPermanent(blocking) || !s.begun {
		return refuse()
	}

	return s.waitOut(ctx, blocking[0].String(), refuse)
}

// waitOut waits a little for an obstacle to pass, or gives up when it has been
// there for too long.
func (s *rollout) waitOut(ctx context.Context, seen string, giveUp func() error) error {
	now := s.run.engine.clock.Now()
	if s.blockage.since.IsZero() {
		s.blockage = blockage{since: now, announced: now, pause: minPoll}
	}

	if now.Sub(s.blockage.since) >= guardTimeout {
		return giveUp()
	}

	if now.Sub(s.blockage.announced) >= announceEvery {
		s.blockage.announced = now
		s.run.emit(cluster.Event{Kind: cluster.EventWaiting, Text: "the cluster to be ready for the next node: " + seen})
	}

	pause := s.blockage.pause
	s.blockage.pause = min(pause+pause/2, maxPoll)

	return s.await(ctx, pause)
}

func (s *rollout) unobserved(err error) error {
	return &Failure{
		Summary: "Unable to observe the cluster", Seen: err.Error(), Remedy: unreachedRemedy(err), Err: err,
	}
}
