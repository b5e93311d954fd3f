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

// errStoodDown ends a turn that has not touched its node, because the run must
// not begin another one. It is no failure of the turn.
var errStoodDown = errors.New("no further node is begun")

// starts is what keeps turns from touching their nodes once the run must not
// begin another one. A turn begins long before it touches its node: an image
// may take its time, and so may the guards.
type starts struct {
	mu sync.Mutex
	// over tells that nothing is begun any more.
	over bool
	// untouched end the turns that have not touched their nodes.
	untouched map[string]context.CancelCauseFunc
	// doubtful are the nodes on their way of which it is known that the new
	// system did not come up, or not known whether it was installed.
	doubtful map[string]bool
}

func newStarts() *starts {
	return &starts{untouched: map[string]context.CancelCauseFunc{}, doubtful: map[string]bool{}}
}

// launch makes the context of a turn, which ends when the turn has to stand
// down. A turn that finishes what was begun never has to.
func (r *run) launch(ctx context.Context, step plan.Step) (turning context.Context, end context.CancelFunc) {
	turning, cancel := context.WithCancelCause(ctx)
	entry, found := r.journal.entry(step.Key)

	r.engine.presence.move(step.Node, true)

	r.starts.mu.Lock()
	defer r.starts.mu.Unlock()

	if !step.Finish && !step.Done && !(found && entry.Open()) {
		r.starts.untouched[step.Node] = cancel
	}

	return turning, func() {
		r.starts.mu.Lock()
		defer r.starts.mu.Unlock()

		delete(r.starts.untouched, step.Node)
		delete(r.starts.doubtful, step.Node)
		r.engine.presence.move(step.Node, false)
		cancel(nil)
	}
}

// touch is asked right before a turn disturbs its node for the first time.
// From then on the turn goes on to its end, whatever becomes of others.
func (r *run) touch(node string) error {
	r.starts.mu.Lock()
	defer r.starts.mu.Unlock()

	if _, untouched := r.starts.untouched[node]; !untouched {
		return nil
	}

	switch {
	case r.starts.over:
		return errStoodDown
	case r.late():
		return fmt.Errorf("%w: %w", errStoodDown, ErrDeadline)
	case r.shut() != nil:
		return fmt.Errorf("%w: %w", errStoodDown, ErrWindow)
	case len(r.starts.doubtful) > 0:
		return fmt.Errorf("%w before it is clear what became of %v", errStoodDown, slices.Sorted(maps.Keys(r.starts.doubtful)))
	}

	delete(r.starts.untouched, node)

	return nil
}

// stop makes all turns stand down that have not touched their nodes.
func (s *starts) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.over = true
	for _, cancel := range s.untouched {
		cancel(errStoodDown)
	}
}

// doubt notes that the new system of a node on its way does not become healthy.
func (s *starts) doubt(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.doubtful[node] = true
}

// doubts tells whether it has to become clear first what became of a node.
func (s *starts) doubts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.doubtful) > 0
}

// late tells whether the time for the whole run is used up.
func (r *run) late() bool {
	return r.request.Deadline > 0 && r.engine.clock.Now().Sub(r.since) >= r.request.Deadline
}

// emit tells the observers of an event. What turns do shows here long before
// they end.
func (r *run) emit(event cluster.Event) {
	if event.Kind == cluster.EventNodeStep && event.Component == "" {
		r.watch(event.Node, event.Step)
	}

	r.engine.emit(event)
}

// suspect notes which of the nodes on their way are seen to have returned to
// their old systems. Their turns may take long yet to find out, as they wait
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
			r.starts.doubt(step.Node)
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
		if one.Node == node && one.Run == r.engine.run {
			entry = one
		}
	}

	r.starts.mu.Lock()
	defer r.starts.mu.Unlock()

	switch {
	case entry.Phase == cluster.PhaseRollingBack, entry.Phase == cluster.PhaseRolledBack && step != cluster.StepPull:
		r.starts.doubtful[node] = true
	case step == cluster.StepInstall, step == cluster.StepLegacy, step == cluster.StepReturn && entry.Phase != cluster.PhaseIntent:
		delete(r.starts.doubtful, node)
	case step == cluster.StepReturn, step != cluster.StepPull && entry.Phase == cluster.PhaseFallback:
		r.starts.doubtful[node] = true
	}
}
