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
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/say"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// coordinator is what the upgrades of a run must know of each other.
type coordinator struct {
	// cordoning is held from the judgement of the guards of a cordon until it stands: two
	// upgrades must not both take the other one's node for available. What was seen before
	// that may be older than the cordon of another: that one is known to be on its way.
	cordoning semaphore
	// looking bounds how many upgrades look at the cluster in order to cordon at a time. A
	// look counts for a few seconds only: with a hundred at once none would be done with
	// it in time.
	looking semaphore

	mu sync.Mutex
	// disturbed are the nodes that this run is taking out of service, by the
	// order in which it began to.
	disturbed map[string]int
	order     int
	// ended is closed when the next upgrade ends.
	ended chan struct{}
}

// looksAtATime is how many upgrades look at the cluster in order to cordon at a time.
const looksAtATime = 4

func newCoordinator() *coordinator {
	return &coordinator{cordoning: newSemaphore(1), looking: newSemaphore(looksAtATime), disturbed: map[string]int{}, ended: make(chan struct{})}
}

// disturb notes that the node is about to be taken out of service.
func (t *coordinator) disturb(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if _, known := t.disturbed[node]; known {
		return
	}

	t.order++
	t.disturbed[node] = t.order
}

// done notes that the upgrade of the node is over.
func (t *coordinator) done(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.disturbed, node)
	close(t.ended)
	t.ended = make(chan struct{})
}

// peerDone is closed when the next upgrade ends.
func (t *coordinator) peerDone() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.ended
}

// others are the nodes of other upgrades: true for those which were taken out of
// service before the given node, false for those which came after it.
func (t *coordinator) others(node string) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	mine, moving := t.disturbed[node]
	found := make(map[string]bool, len(t.disturbed))

	for name, place := range t.disturbed {
		if name != node {
			found[name] = !moving || place < mine
		}
	}

	return found
}

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

// errStopped ends an upgrade that has not touched its node, because the run must
// not begin another one. It is no failure of the upgrade.
var errStopped = errors.New("no further node is begun")

func newStarter() *starter {
	return &starter{untouched: map[string]context.CancelCauseFunc{}, doubtful: map[string]bool{}}
}

// startContext makes the context of an upgrade, which ends when the upgrade has to stand
// down. An upgrade that finishes what was begun never has to.
func (r *run) startContext(ctx context.Context, step plan.Step) (stepCtx context.Context, end context.CancelFunc) {
	stepCtx, cancel := context.WithCancelCause(ctx)
	entry, found := r.journal.entry(step.Key)

	r.engine.facts.Move(step.Node, true)

	r.starter.mu.Lock()
	defer r.starter.mu.Unlock()

	if !step.Finish && !step.Done && !(found && entry.Open()) {
		r.starter.untouched[step.Node] = cancel
	}

	return stepCtx, func() {
		r.starter.mu.Lock()
		defer r.starter.mu.Unlock()

		delete(r.starter.untouched, step.Node)
		delete(r.starter.doubtful, step.Node)
		r.engine.facts.Move(step.Node, false)
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
		return fmt.Errorf("%w: %w", errStopped, say.ErrDeadline)
	case r.windowClosed() != nil:
		return fmt.Errorf("%w: %w", errStopped, say.ErrWindow)
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

// suspect notes that the node is seen to have returned to its old system. The upgrade may
// take long yet to find out, as it waits for a system to come up first.
func (u *nodeUpgrade) suspect(machine cluster.Machine) {
	reached := machine.Talos.Equal(u.entry.Target) && (!u.step.Demanded || machine.Schematic == u.step.Schematic)

	// Until it has finished booting it may not tell its schematic, and only the version
	// tells the two systems apart.
	told := machine.Settled() || !u.entry.Target.Equal(u.entry.Previous)

	if told && !reached && machine.Talos.Equal(u.entry.Previous) && machine.Schematic == u.entry.PreviousSchematic {
		u.run.starter.markDoubtful(u.step.Node)
	}
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
