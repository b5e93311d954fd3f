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

// permit decides on a look of an upgrade, and writes a debug line about what it permits.
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

// guardedAction is something that is done to a node only while it is safe.
type guardedAction struct {
	// before is what has to be safe, in front of the name of the node, as in "reboot".
	before, node string
	// timeout is how long it may take to become safe, pause the longest pause between
	// two looks.
	timeout, pause time.Duration
	// prepare asks for what may take its time and may be a few seconds old; nil for nothing.
	prepare func(ctx context.Context)
	// looking is held from the look on until the action is done; nil where looks may be as many
	// as there are.
	looking semaphore
	// observe looks at the cluster, and permit decides on what it saw.
	observe func(ctx context.Context) error
	permit  func() permit.Verdict
	// then acts on the very observation on which the permit was given; what it still waits
	// for is waited for together with the guards. Nil for nothing.
	then look
}

// awaitGuarded waits for a permit on an observation of its own, and acts then. It
// fails when that does not come about in time, or when waiting cannot help.
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

// guarding is an action while it is waited for.
type guarding struct {
	guardedAction
	run *run

	// last are the findings of the last look, failed is why it need not go on.
	last   []cluster.Finding
	failed error
	// looked tells that anything was found out, and slow that nothing was in the way since
	// but the time that looks take.
	looked, slow bool
}

// try makes one attempt in the time that is left, and acts where it is permitted.
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

		// What was asked before a long wait says nothing about now.
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

// act asks for the permit, and acts where it is given.
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

	// It is begun in time, and not cut off.
	done, seen, err := g.then(unbounded)
	g.failed = err

	return done, seen, err
}

// missed takes note that an attempt did not get as far as to find anything out.
func (g *guarding) missed(ctx, unbounded context.Context) {
	g.slow = (g.slow || !g.looked) && ctx.Err() != nil && unbounded.Err() == nil
}
