// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
)

// shared is what the upgrades of a run have to know of each other, and what the run has found out for all of
// them. One lock guards it: each upgrade asks here before it disturbs its node, is judged by one state of the
// run, and what it is permitted counts for whoever asks next.
type shared struct {
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

	// soak are the nodes that were moved and have to stay healthy.
	soak *soak
	// selected is what the selectors of the policy have chosen so far.
	selected selected
	// operator is what is known of the operator beside the run.
	operator operatorWatch
}

// newShared begins with the policy that the run was asked for, with what its selectors chose at the first look.
func newShared(policy cluster.Policy) *shared {
	return &shared{
		disturbed: map[string]int{}, ended: make(chan struct{}), untouched: map[string]context.CancelCauseFunc{}, doubtful: map[string]bool{},
		soak: newSoak(policy.Settle), selected: newSelected(policy),
	}
}

// decide decides on a look of an upgrade, knowing what the other upgrades do, and takes note at once of what
// is permitted.
func (s *shared) decide(e *Engine, asked permit.Ask, world *permit.World) (made permit.Verdict) {
	node := world.Step.Node

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.over {
		world.Over = permit.ErrStopped
	}

	world.Rules, world.Now.At = e.rules, e.clock.Now()
	world.Others, world.Doubtful = s.others(node), slices.Sorted(maps.Keys(s.doubtful))
	_, world.Untouched = s.untouched[node]

	// A node is watched before its upgrade is done: if it is not among Others any more, it is among Unsettled.
	if asked.Stage != rule.Component && !asked.Installed && !asked.Judged {
		world.Unsettled = s.soak.unsettled(world.View, world.Now.At, asked.Touched())
	}

	e.facts.Take(world.Step.Role, func(sofar fact.Steps) bool {
		world.Now.Steps = sofar
		made = permit.Permit(*world, asked)

		return made.Kind == permit.Go && asked.Acts && !asked.Cordons
	})

	if made.Kind == permit.Go && asked.Acts {
		// From now on the upgrade goes on to its end, whatever becomes of others.
		delete(s.untouched, node)

		if asked.Cordons {
			s.disturb(node)
		}
	}

	return made
}

// disturb notes that the node is about to be taken out of service. The caller holds the lock.
func (s *shared) disturb(node string) {
	if _, known := s.disturbed[node]; known {
		return
	}

	s.order++
	s.disturbed[node] = s.order
}

// noteResumed notes that an earlier run has taken the node out of service.
func (s *shared) noteResumed(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.disturb(node)
}

// done notes that the upgrade of the node is over.
func (s *shared) done(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.disturbed, node)
	close(s.ended)
	s.ended = make(chan struct{})
}

// peerDone is closed when the next upgrade ends.
func (s *shared) peerDone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.ended
}

// beside are the nodes of other upgrades that are out of service, or about to be: true for those
// which began before the given node, false for those which began after it.
func (s *shared) beside(node string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.others(node)
}

// others is beside for a caller that holds the lock.
func (s *shared) others(node string) map[string]bool {
	mine, moving := s.disturbed[node]
	found := make(map[string]bool, len(s.disturbed))

	for name, place := range s.disturbed {
		if name != node {
			found[name] = !moving || place < mine
		}
	}

	return found
}

// mayStandDown registers the upgrade of a node that it has not disturbed yet: stopUntouched ends it.
func (s *shared) mayStandDown(node string, end context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.untouched[node] = end
}

// forget drops what is known of the upgrade of a node, once the rollout has dealt with its end.
func (s *shared) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.untouched, node)
	delete(s.doubtful, node)
}

// stopUntouched makes all upgrades stand down that have not touched their nodes.
func (s *shared) stopUntouched() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.over = true
	for _, cancel := range s.untouched {
		cancel(permit.ErrStopped)
	}
}

// markDoubtful notes that the new system of a node on its way does not become healthy.
func (s *shared) markDoubtful(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.doubtful[node] = true
}

// anyDoubtful tells whether it has to become clear first what became of a node.
func (s *shared) anyDoubtful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.doubtful) > 0
}

// noteStep updates whether a node is doubtful, from the step that it enters and from what this run has written
// of it in the journal. A node that reboots on a mere intent may have no new
// system: its installer failed, or nobody knows.
func (s *shared) noteStep(node string, entry cluster.Entry, step cluster.NodeStep) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case entry.Phase == cluster.PhaseRollingBack, entry.Phase == cluster.PhaseRolledBack && step != cluster.StepPull:
		s.doubtful[node] = true
	case step == cluster.StepInstall, step == cluster.StepLegacy, step == cluster.StepReturn && entry.Phase != cluster.PhaseIntent:
		delete(s.doubtful, node)
	case step == cluster.StepReturn, step != cluster.StepPull && entry.Phase == cluster.PhaseFallback:
		s.doubtful[node] = true
	}
}

// settling calls the function with the nodes that have to stay healthy, under the lock: it must neither wait nor
// call a method of shared.
func (s *shared) settling(do func(*soak)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	do(s.soak)
}

// settles tells whether the node has to stay healthy for some time yet.
func (s *shared) settles(node string) (found bool) {
	s.settling(func(w *soak) { found = w.watches(node) })

	return found
}

// policy is the policy with all that was chosen so far.
func (s *shared) policy() cluster.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.selected.policy
}

// choose takes over what another look chose. It returns the policy with all that was
// chosen so far.
func (s *shared) choose(fresh cluster.Selection) cluster.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.selected.add(fresh)
}

// holdNews says, once, that a node came to be held while the run went on, or that only the
// run still holds it; empty where there is nothing new.
func (s *shared) holdNews(policy cluster.Policy, node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.selected.news(policy, node)
}

// operatorWatch is what a run knows of the operator beside it.
type operatorWatch struct {
	// pausing tells that the operator may be kept from acting in the name of the run.
	pausing bool
	// blocking is what the last look found to be in the way.
	blocking []cluster.Finding
	// silent is when the object could not be read last; zero where it could.
	silent time.Time
	// unhold is how a person ends the hold.
	unhold string
}

// silentTimeout is how long an object that could not be read is left alone: every
// upgrade would wait for it anew otherwise.
const silentTimeout = 30 * time.Second

// operatorSilent tells whether the object could not be read a moment ago.
func (s *shared) operatorSilent(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return !s.operator.silent.IsZero() && now.Sub(s.operator.silent) < silentTimeout
}

// noteOperatorSilent takes note of a look that failed.
func (s *shared) noteOperatorSilent(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.operator.silent = now
}

// noteOperator takes note of a look.
func (s *shared) noteOperator(blocking []cluster.Finding, unhold string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.operator.blocking, s.operator.silent = slices.Clone(blocking), time.Time{}
	if unhold != "" {
		s.operator.unhold = unhold
	}
}

// operatorFindings is what the last look found.
func (s *shared) operatorFindings() []cluster.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Clone(s.operator.blocking)
}

// noteOperatorPaused takes note that the operator may be kept from acting in the name of the run.
func (s *shared) noteOperatorPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.operator.pausing = true
}

// operatorPaused tells whether it may.
func (s *shared) operatorPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.operator.pausing
}

// operatorUnhold is how a person ends the hold; empty where that is not known.
func (s *shared) operatorUnhold() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.operator.unhold
}
