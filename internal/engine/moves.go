// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// moves are the upgrades of a run that are under way, and what they must know of each other. Each asks here
// for a permit before it disturbs its node, and a permit counts for whoever asks next.
type moves struct {
	mu sync.Mutex
	// disturbed are the nodes that this run is taking out of service, by the
	// order in which it began to.
	disturbed map[string]int
	order     int
	// ended is closed when the next upgrade ends.
	ended chan struct{}
	// over tells that no upgrade may begin to disturb its node any more. An upgrade begins long before it
	// does that, because images and guards may take their time. Untouched has the upgrades that have not
	// disturbed their nodes, and ends them.
	over      bool
	untouched map[string]context.CancelCauseFunc
	// doubtful are the nodes on their way of which it is known that the new
	// system did not come up, or not known whether it was installed.
	doubtful map[string]bool
}

func newMoves() *moves {
	return &moves{
		disturbed: map[string]int{}, ended: make(chan struct{}), untouched: map[string]context.CancelCauseFunc{}, doubtful: map[string]bool{},
	}
}

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

	made := r.decide(asked, &world)

	if made.Kind == permit.Go && asked.Acts && r.engine.permitted != nil {
		r.engine.permitted(world.Line(asked, r.lock.lastRenewed()))
	}

	r.engine.tell(made.Skipped)

	return made
}

// decide makes the decision, knowing what the other upgrades do, and takes note at once of what it permits.
func (r *run) decide(asked permit.Ask, world *permit.World) (made permit.Verdict) {
	m, node := r.moves, world.Step.Node

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.over {
		world.Over = permit.ErrStopped
	}

	world.Rules, world.Now.At = r.engine.rules, r.engine.clock.Now()
	world.Others, world.Doubtful = m.others(node), slices.Sorted(maps.Keys(m.doubtful))
	_, world.Untouched = m.untouched[node]

	// A node is watched before its upgrade is done: if it is not among Others any more, it is among Unsettled.
	if asked.Stage != rule.Component && !asked.Installed && !asked.Judged {
		world.Unsettled = r.soak.unsettled(world.View, world.Now.At, asked.Touched())
	}

	r.engine.facts.Take(world.Step.Role, func(sofar fact.Steps) bool {
		world.Now.Steps = sofar
		made = permit.Permit(*world, asked)

		return made.Kind == permit.Go && asked.Acts && !asked.Cordons
	})

	if made.Kind == permit.Go && asked.Acts {
		// From now on the upgrade goes on to its end, whatever becomes of others.
		delete(m.untouched, node)

		if asked.Cordons {
			m.disturb(node)
		}
	}

	return made
}

// disturb notes that the node is about to be taken out of service. The caller holds the lock.
func (m *moves) disturb(node string) {
	if _, known := m.disturbed[node]; known {
		return
	}

	m.order++
	m.disturbed[node] = m.order
}

// resume notes that an earlier run has taken the node out of service.
func (m *moves) resume(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.disturb(node)
}

// done notes that the upgrade of the node is over.
func (m *moves) done(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	delete(m.disturbed, node)
	close(m.ended)
	m.ended = make(chan struct{})
}

// peerDone is closed when the next upgrade ends.
func (m *moves) peerDone() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.ended
}

// beside are the nodes of other upgrades that are out of service, or about to be: true for those
// which began before the given node, false for those which began after it.
func (m *moves) beside(node string) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.others(node)
}

// others is beside for a caller that holds the lock.
func (m *moves) others(node string) map[string]bool {
	mine, moving := m.disturbed[node]
	found := make(map[string]bool, len(m.disturbed))

	for name, place := range m.disturbed {
		if name != node {
			found[name] = !moving || place < mine
		}
	}

	return found
}

// startContext makes the context of an upgrade, which ends when the upgrade has to stand
// down. An upgrade that finishes what was begun never has to.
func (r *run) startContext(ctx context.Context, step plan.Step) (stepCtx context.Context, end context.CancelFunc) {
	stepCtx, cancel := context.WithCancelCause(ctx)
	entry, found := r.journal.entry(step.Key)
	m := r.moves

	r.engine.facts.Move(step.Node, true)

	m.mu.Lock()
	defer m.mu.Unlock()

	if !step.Finish && !step.Done && !(found && entry.Open()) {
		m.untouched[step.Node] = cancel
	}

	return stepCtx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()

		delete(m.untouched, step.Node)
		delete(m.doubtful, step.Node)
		r.engine.facts.Move(step.Node, false)
		cancel(nil)
	}
}

// stopUntouched makes all upgrades stand down that have not touched their nodes.
func (m *moves) stopUntouched() {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.over = true
	for _, cancel := range m.untouched {
		cancel(permit.ErrStopped)
	}
}

// markDoubtful notes that the new system of a node on its way does not become healthy.
func (m *moves) markDoubtful(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.doubtful[node] = true
}

// anyDoubtful tells whether it has to become clear first what became of a node.
func (m *moves) anyDoubtful() bool {
	m.mu.Lock()
	defer m.mu.Unlock()

	return len(m.doubtful) > 0
}

// noteStep notes what the step that a node enters, together with the journal, says
// about its new system. A node that reboots on a mere intent may have no new
// system: its installer failed, or nobody knows.
func (r *run) noteStep(node string, step cluster.NodeStep) {
	var entry cluster.Entry

	current, _ := r.journal.read()
	for _, one := range current.Entries {
		if one.Node == node && one.Run == r.engine.runID {
			entry = one
		}
	}

	r.moves.mu.Lock()
	defer r.moves.mu.Unlock()

	switch {
	case entry.Phase == cluster.PhaseRollingBack, entry.Phase == cluster.PhaseRolledBack && step != cluster.StepPull:
		r.moves.doubtful[node] = true
	case step == cluster.StepInstall, step == cluster.StepLegacy, step == cluster.StepReturn && entry.Phase != cluster.PhaseIntent:
		delete(r.moves.doubtful, node)
	case step == cluster.StepReturn, step != cluster.StepPull && entry.Phase == cluster.PhaseFallback:
		r.moves.doubtful[node] = true
	}
}
