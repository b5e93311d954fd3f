// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// run is one upgrade of one cluster, from lease to release. Its upgrades share it.
type run struct {
	engine *Engine

	request Request
	since   time.Time
	lock    *lock
	leased  leased
	journal *journal
	// shared is what its upgrades know about each other.
	shared *shared
	// looking bounds how many upgrades observe the cluster at a time in order to cordon. An observation counts
	// for a few seconds only: with a hundred at once, none would be finished in time.
	looking semaphore
	ahead   *ahead

	// suspension is the suspension of the upgrades as last seen by the goroutine that starts them; nil if there
	// was none.
	suspension *cluster.Suspension
}

// looksAtATime is how many upgrades observe the cluster at a time in order to cordon.
const looksAtATime = 4

// newRun returns a run under the lease. Policy is the requested policy with what its selectors chose in the first
// observation.
func (e *Engine) newRun(held *lock, request Request, policy cluster.Policy) *run {
	under := leased{engine: e, lock: held}
	made := &run{
		engine: e, request: request, since: e.clock.Now(), lock: held, leased: under, journal: newJournal(under),
		shared: newShared(policy), looking: newSemaphore(looksAtATime),
	}
	made.ahead = newAhead(e, made.fetch, made.noMoreStarts)

	return made
}

// policy returns the requested policy with everything that its selectors have chosen so far.
func (r *run) policy() cluster.Policy { return r.shared.policy() }

// selectIn returns the policy with what its selectors choose in the observation as well.
func (r *run) selectIn(observed cluster.Observation) cluster.Policy {
	policy, _ := plan.Select(observed, r.policy())

	return r.shared.choose(policy.Selected)
}

// planAgain plans the rest of the run, and warns about nodes that labels have begun or ceased to hold.
func (r *run) planAgain(observed cluster.Observation, policy cluster.Policy) plan.Plan {
	policy.Run = r.engine.runID
	made := plan.Make(observed, r.request.Target, policy)
	r.shared.choose(made.Policy.Selected)

	for _, node := range made.Held {
		if text := r.shared.holdNews(made.Policy, node); text != "" {
			r.engine.emit(cluster.Event{Kind: cluster.EventWarning, Node: node, Text: text})
		}
	}

	return made
}

// progress adds the progress of the two products to an event.
func (r *run) progress(event cluster.Event, made plan.Plan) cluster.Event {
	event.Talos, event.Kubernetes = made.Talos, made.Kubernetes
	event.Target = r.request.Target

	return event
}

// stopped returns the failure of a run that was asked to stop, or has to.
func (r *run) stopped(ctx context.Context, where string) *say.Failure {
	if cause := cluster.Ended(ctx); errors.Is(cause, say.ErrLeaseLost) {
		return &say.Failure{
			Summary: "Unable to go on with the upgrade", Seen: fmt.Sprintf("It stopped %s: %v.", where, cause),
			Remedy: say.LostRemedy(cause), Err: cause,
		}
	}

	return &say.Failure{
		Summary: "The upgrade was cancelled",
		Seen:    "It was interrupted " + where + ".",
		Remedy:  say.ResumeRemedy,
		Err:     cluster.Ended(ctx),
	}
}

// claimJournal writes the name of the run into the journal. A run that held the lease before has read an earlier
// version, and gets a conflict from here on.
func (r *run) claimJournal(ctx context.Context) error {
	err := r.journal.change(ctx, "", func(j cluster.Journal) cluster.Journal { return j })

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		failed := r.stopped(ctx, "before it began")
		failed.State = "No node was disturbed."

		return say.Undisturbed(failed)
	default:
		return say.Undisturbed(&say.Failure{
			Summary: "Unable to record who upgrades the cluster", Seen: say.Sentence(err.Error()), State: "No node was disturbed.",
			Remedy: say.WritableRemedy, Err: err,
		})
	}
}

// deadlinePassed reports whether the time for the whole run is used up.
func (r *run) deadlinePassed() bool {
	return r.request.Deadline > 0 && r.engine.clock.Now().Sub(r.since) >= r.request.Deadline
}

// noMoreStarts returns why nothing may be started any more: the time for the run is used up, or the window has
// closed; nil if something may be.
func (r *run) noMoreStarts() error {
	if r.deadlinePassed() {
		return say.ErrDeadline
	}

	return r.windowClosed()
}

// windowClosed returns an error if the maintenance window is closed.
func (r *run) windowClosed() error {
	if r.request.Window == nil {
		return nil
	}

	open, until := r.request.Window.Open(r.engine.clock.Now())
	if open {
		return nil
	}

	return fmt.Errorf("%w (%s); %s", say.ErrWindow, r.request.Window, opening(until))
}

// opening says when a closed window opens.
func opening(until time.Time) string {
	if until.IsZero() {
		return "it does not open again"
	}

	return "it opens at " + until.UTC().Format(time.RFC3339)
}

// outside returns the failure of a run that the end of the window stops. The text begins with at.
func (r *run) outside(err error, at string) *say.Failure {
	return &say.Failure{
		Summary: "Unable to finish the upgrade in the maintenance window", Seen: at + " " + say.Sentence(err.Error()),
		State: "Nothing was started after it closed.", Remedy: "Run terraform apply again while it is open: it continues where the cluster is.", Err: err,
	}
}

// overtime returns the failure of a run whose time is used up.
func (r *run) overtime(seen string) *say.Failure {
	return &say.Failure{
		Summary: "Unable to finish the upgrade in the time that timeouts allow", Seen: seen,
		Remedy: "Run terraform apply again to continue, or raise timeouts.create and timeouts.update.", Err: say.ErrDeadline,
	}
}

// standing returns the findings that stop a run, and warns about those that the policy skips.
func (r *run) standing(findings []cluster.Finding) []cluster.Finding {
	judged := r.request.Policy.Skip(findings)
	r.engine.tell(judged)

	return cluster.Blocking(judged)
}

// shutdown is when an operation had to stop, as first noticed.
type shutdown struct {
	mu sync.Mutex
	// contexts are those of the operation and of its lease. If any other context ends, only a part of the
	// operation does.
	contexts []context.Context
	since    time.Time
}

// begin begins another operation.
func (h *shutdown) begin(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.contexts, h.since = []context.Context{ctx}, time.Time{}
}

// watch adds a context whose end stops the operation, until the returned function is called.
func (h *shutdown) watch(ctx context.Context) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()

	whole := h.contexts
	h.contexts = append(slices.Clone(whole), ctx)

	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()

		h.contexts = whole
	}
}

// operation returns the contexts of the operation and of its lease.
func (h *shutdown) operation() []context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.contexts
}

// grace returns how long the next action may take that is still taken after something has ended. If the whole
// operation has ended, all such actions together may take no longer than the given time.
func (h *shutdown) grace(now time.Time, most time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()

	if !slices.ContainsFunc(h.contexts, func(ctx context.Context) bool { return ctx.Err() != nil }) {
		return cleanupTimeout
	}

	if h.since.IsZero() {
		h.since = now
	}

	return max(minStopGrace, min(stopGrace, most-now.Sub(h.since)))
}

// flush waits until the observers have passed on the last events. It asks all of them at once, so that one whose
// cluster is slow does not take the time of the others.
func (e *Engine) flush(ctx context.Context) {
	kept, end := e.cleanupContext(ctx)
	defer end()

	bounded, cancel := e.clock.WithTimeout(kept, flushTimeout)
	defer cancel()

	var all sync.WaitGroup

	for _, observer := range e.observers {
		if late, ok := observer.(cluster.Flusher); ok {
			all.Go(func() { late.Flush(bounded) })
		}
	}

	all.Wait()
}

// callWhole makes a short call that changes something, and does not cut it off: otherwise it could take effect
// when somebody else has the lease.
func (e *Engine) callWhole(ctx context.Context, call func(context.Context) error) error {
	if ctx.Err() != nil {
		return cluster.Ended(ctx)
	}

	kept, end := e.recordContext(ctx)
	defer end()

	return call(kept)
}

// recordContext returns a context for recording what has just taken effect: it ends a little after ctx.
func (e *Engine) recordContext(ctx context.Context) (context.Context, context.CancelFunc) {
	kept, end := context.WithCancel(context.WithoutCancel(ctx))
	calm := e.endAfterStop(kept, end, stopTimeout)
	release := context.AfterFunc(ctx, func() {
		_ = e.clock.Sleep(kept, e.shutdown.grace(e.clock.Now(), stopTimeout))

		end()
	})

	return kept, func() {
		release()
		calm()
		end()
	}
}

// cleanupContext returns a context for what has to be done even if ctx has ended.
func (e *Engine) cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return e.cleanupWithin(ctx, stopTimeout)
}

// cleanupWithin is [Engine.cleanupContext] for actions that end no later than the given time after a cancel.
func (e *Engine) cleanupWithin(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	kept, end := e.clock.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	calm := e.endAfterStop(kept, end, most)

	return kept, func() {
		calm()
		end()
	}
}

// endAfterStop ends a context that outlives others a little after the operation had to stop, now or in the
// future.
func (e *Engine) endAfterStop(kept context.Context, end context.CancelFunc, most time.Duration) (calm func()) {
	var releases []func() bool

	for _, whole := range e.shutdown.operation() {
		releases = append(releases, context.AfterFunc(whole, func() {
			_ = e.clock.Sleep(kept, e.shutdown.grace(e.clock.Now(), most))

			end()
		}))
	}

	return func() {
		for _, release := range releases {
			release()
		}
	}
}
