// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
)

// permit decides about an observation of an upgrade, and writes a debug line about an action that it permits.
func (r *run) permit(asked permit.Ask, world permit.World) permit.Verdict {
	_, fresh, lost := r.lock.state()
	world.Leased = fresh && lost == nil

	switch {
	case r.deadlinePassed():
		world.Over = fmt.Errorf("%w: %w", permit.ErrStopped, say.ErrDeadline)
	case r.windowClosed() != nil:
		world.Over = fmt.Errorf("%w: %w", permit.ErrStopped, say.ErrWindow)
	}

	made := r.shared.decide(r.engine, asked, &world)

	if made.Kind == permit.Go && asked.Acts && r.engine.permitted != nil {
		r.engine.permitted(world.Line(asked, r.lock.lastRenewed()))
	}

	r.engine.tell(made.Skipped)

	return made
}

// guardedAction is an action on a node that is taken only while it is safe.
type guardedAction struct {
	// before is the action, as it stands in front of the name of the node, such as "reboot".
	before, node string
	// timeout is how long to wait until it is safe, pause the longest pause between two attempts.
	timeout, pause time.Duration
	// prepare asks for what takes time and may be a few seconds old; may be nil.
	prepare func(ctx context.Context)
	// looking is held from the observation until the action is done; nil if any number of observations may run at
	// the same time.
	looking semaphore
	// observe observes the cluster, and permit decides about that observation.
	observe func(ctx context.Context) error
	permit  func() permit.Verdict
	// then acts on the very observation that was permitted; what it waits for is waited for together with the
	// guards. May be nil.
	then look
}

// awaitGuarded waits until an observation is permitted, and then acts. It fails if that does not happen in time,
// or if waiting cannot help.
func (r *run) awaitGuarded(ctx context.Context, action guardedAction) error {
	bounded, cancel := r.engine.clock.WithTimeout(ctx, action.timeout)
	defer cancel()

	g := guarding{guardedAction: action, run: r}
	what := "it to be safe to " + action.before + " " + action.node

	err := r.engine.waitClosely(bounded, action.node, what, action.pause, func(bounded context.Context) (bool, string, error) {
		return g.try(bounded, ctx)
	})

	switch {
	case err == nil:
		return nil
	case g.failed != nil && ctx.Err() == nil:
		return g.failed
	case ctx.Err() != nil && !errors.Is(cluster.Ended(ctx), context.DeadlineExceeded):
		return err
	default:
		return &say.GuardError{Before: action.before, Findings: g.last, Slow: g.slow, Err: err}
	}
}

// guarding is a guarded action that is being waited for.
type guarding struct {
	guardedAction
	run *run

	// last are the findings of the last attempt, failed is why there is no further one.
	last   []cluster.Finding
	failed error
	// looked is true once an attempt had a result; slow is true if only slow observations have prevented a permit
	// since.
	looked, slow bool
}

// try makes one attempt in the time that is left, and acts if that is permitted.
func (g *guarding) try(ctx, unbounded context.Context) (bool, string, error) {
	if ok, seen, err := g.run.lock.holds(ctx); err != nil || !ok {
		g.looked, g.slow = true, false

		return false, seen, err
	}

	if g.prepare != nil {
		g.prepare(ctx)
	}

	if ctx.Err() != nil {
		return false, "", cluster.Ended(ctx)
	}

	if g.looking != nil {
		asked := g.run.engine.clock.Now()

		if err := g.looking.enter(ctx); err != nil {
			g.missed(ctx, unbounded)

			return false, "others were looking at the cluster", err
		}

		defer g.looking.leave()

		// Answers from before a long wait are too old.
		if g.prepare != nil && g.run.engine.clock.Now().Sub(asked) > permit.MostAge {
			g.prepare(ctx)
		}
	}

	if err := g.observe(ctx); err != nil {
		g.missed(ctx, unbounded)
		g.looked = g.looked || ctx.Err() == nil

		return false, err.Error(), permanentOnly(err)
	}

	return g.act(unbounded)
}

// act asks for the permit, and acts if it is given.
func (g *guarding) act(unbounded context.Context) (bool, string, error) {
	made := g.permit()
	g.last, g.looked, g.slow = made.Findings, true, made.Slow

	switch made.Kind {
	case permit.Yield:
		g.failed = made.Err

		return false, "", made.Err
	case permit.Wait, permit.Abort:
		return false, made.Missing, made.Err
	case permit.Go:
	}

	if g.then == nil {
		return true, "", nil
	}

	// It has begun in time, and is not cut off.
	done, seen, err := g.then(unbounded)
	g.failed = err

	return done, seen, err
}

// missed records that an attempt ended without a result.
func (g *guarding) missed(ctx, unbounded context.Context) {
	g.slow = (g.slow || !g.looked) && ctx.Err() != nil && unbounded.Err() == nil
}
