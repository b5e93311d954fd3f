// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// errStopped ends an upgrade that has not touched its node, because the run must
// not begin another one. It is no failure of the upgrade.
var errStopped = errors.New("no further node is begun")

// starter is what keeps upgrades from touching their nodes once the run must not
// begin another one. An upgrade begins long before it touches its node: an image
// may take its time, and so may the guards.
type starter struct {
	mu sync.Mutex
	// over tells that nothing is begun any more.
	over bool
	// untouched end the upgrades that have not touched their nodes.
	untouched map[string]context.CancelCauseFunc
	// doubtful are the nodes on their way of which it is known that the new
	// system did not come up, or not known whether it was installed.
	doubtful map[string]bool
}

func newStarter() *starter {
	return &starter{untouched: map[string]context.CancelCauseFunc{}, doubtful: map[string]bool{}}
}

// startContext makes the context of an upgrade, which ends when the upgrade has to stand
// down. An upgrade that finishes what was begun never has to.
func (r *run) startContext(ctx context.Context, step plan.Step) (turning context.Context, end context.CancelFunc) {
	turning, cancel := context.WithCancelCause(ctx)
	entry, found := r.journal.entry(step.Key)

	r.engine.presence.move(step.Node, true)

	r.starter.mu.Lock()
	defer r.starter.mu.Unlock()

	if !step.Finish && !step.Done && !(found && entry.Open()) {
		r.starter.untouched[step.Node] = cancel
	}

	return turning, func() {
		r.starter.mu.Lock()
		defer r.starter.mu.Unlock()

		delete(r.starter.untouched, step.Node)
		delete(r.starter.doubtful, step.Node)
		r.engine.presence.move(step.Node, false)
		cancel(nil)
	}
}

// beginDisturbing is asked right before an upgrade disturbs its node for the first time.
// From then on the upgrade goes on to its end, whatever becomes of others.
func (r *run) beginDisturbing(node string) error {
	r.starter.mu.Lock()
	defer r.starter.mu.Unlock()

	if _, untouched := r.starter.untouched[node]; !untouched {
		return nil
	}

	switch {
	case r.starter.over:
		return errStopped
	case r.deadlinePassed():
		return fmt.Errorf("%w: %w", errStopped, ErrDeadline)
	case r.windowClosed() != nil:
		return fmt.Errorf("%w: %w", errStopped, ErrWindow)
	case len(r.starter.doubtful) > 0:
		return fmt.Errorf("%w before it is clear what became of %v", errStopped, slices.Sorted(maps.Keys(r.starter.doubtful)))
	}

	delete(r.starter.untouched, node)

	return nil
}

// stopUntouched makes all upgrades stand down that have not touched their nodes.
func (s *starter) stopUntouched() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.over = true
	for _, cancel := range s.untouched {
		cancel(errStopped)
	}
}

// markDoubtful notes that the new system of a node on its way does not become healthy.
func (s *starter) markDoubtful(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.doubtful[node] = true
}

// anyDoubtful tells whether it has to become clear first what became of a node.
func (s *starter) anyDoubtful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.doubtful) > 0
}

// deadlinePassed tells whether the time for the whole run is used up.
func (r *run) deadlinePassed() bool {
	return r.request.Deadline > 0 && r.engine.clock.Now().Sub(r.since) >= r.request.Deadline
}

// emit tells the observers of an event. What upgrades do shows here long before
// they end.
func (r *run) emit(event cluster.Event) {
	if event.Kind == cluster.EventNodeStep && event.Component == "" {
		r.watch(event.Node, event.Step)
	}

	r.engine.emit(event)
}

// suspect notes which of the nodes on their way are seen to have returned to
// their old systems. Their upgrades may take long yet to find out, as they wait
// for a system to come up first.
func (r *run) suspect(snapshot cluster.Snapshot, busy []plan.Step) {
	for _, step := range busy {
		node, _ := snapshot.Node(step.Node)

		entry, found := r.journal.entry(step.Key)
		if !found || !entry.Open() || node.Machine == nil || node.Machine.BootID == "" || node.Machine.BootID == entry.BootID {
			continue
		}

		machine := *node.Machine
		reached := machine.Talos.Equal(entry.Target) && (!step.Demanded || machine.Schematic == step.Schematic)

		if !reached && machine.Talos.Equal(entry.Previous) && machine.Schematic == entry.PreviousSchematic {
			r.starter.markDoubtful(step.Node)
		}
	}
}

// watch notes what the step that a node enters, together with the journal, says
// about its new system. A node that reboots on a mere intent may have no new
// system: its installer failed, or nobody knows.
func (r *run) watch(node string, step cluster.NodeStep) {
	var entry cluster.Entry

	current, _ := r.journal.read()
	for _, one := range current.Entries {
		if one.Node == node && one.Run == r.engine.runID {
			entry = one
		}
	}

	r.starter.mu.Lock()
	defer r.starter.mu.Unlock()

	switch {
	case entry.Phase == cluster.PhaseRollingBack, entry.Phase == cluster.PhaseRolledBack && step != cluster.StepPull:
		r.starter.doubtful[node] = true
	case step == cluster.StepInstall, step == cluster.StepLegacy, step == cluster.StepReturn && entry.Phase != cluster.PhaseIntent:
		delete(r.starter.doubtful, node)
	case step == cluster.StepReturn, step != cluster.StepPull && entry.Phase == cluster.PhaseFallback:
		r.starter.doubtful[node] = true
	}
}
