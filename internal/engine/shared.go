// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/fact"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/permit"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/engine/rule"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// shared is what the upgrades of a run know about each other, and what the run has found out for all of them. One
// lock guards it: each upgrade asks here before it disturbs its node, is judged by one state of the run, and what
// it is permitted counts for the next one that asks.
type shared struct {
	mu sync.Mutex
	// disturbed are the nodes that this run is taking out of service, with the order in which that began.
	disturbed map[string]int
	order     int
	// ended is closed when the next upgrade ends.
	ended chan struct{}
	// over is true once no further upgrade may disturb its node. An upgrade begins long before it does that,
	// because images and guards may take their time. untouched holds the functions that end the upgrades that
	// have not disturbed their nodes.
	over      bool
	untouched map[string]context.CancelCauseFunc
	// doubtful are the nodes being upgraded whose new system is known not to have come up, or may not have been
	// installed.
	doubtful map[string]bool

	// soak are the nodes that were moved and have to stay healthy.
	soak *soak
	// selected is what the selectors of the policy have chosen so far.
	selected selected
	// operator is what is known about the operator beside the run.
	operator operatorWatch
}

// newShared begins with the requested policy, including what its selectors chose in the first observation.
func newShared(policy cluster.Policy) *shared {
	return &shared{
		disturbed: map[string]int{}, ended: make(chan struct{}), untouched: map[string]context.CancelCauseFunc{}, doubtful: map[string]bool{},
		soak: newSoak(policy.Settle), selected: newSelected(policy),
	}
}

// decide decides about an observation of an upgrade with regard to the other upgrades, and records at once what
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

	// A node is watched before its upgrade is done: if it is no longer among Others, it is among Unsettled.
	if asked.Stage != rule.Component && !asked.Installed && !asked.Judged {
		world.Unsettled = s.soak.unsettled(world.View, world.Now.At, asked.Touched())
	}

	e.facts.Take(world.Step.Role, func(sofar fact.Steps) bool {
		world.Now.Steps = sofar
		made = permit.Permit(*world, asked)

		return made.Kind == permit.Go && asked.Acts && !asked.Cordons
	})

	if made.Kind == permit.Go && asked.Acts {
		// From now on the upgrade continues to its end, whatever happens to others.
		delete(s.untouched, node)

		if asked.Cordons {
			s.disturb(node)
		}
	}

	return made
}

// disturb records that the node is about to be taken out of service. The caller holds the lock.
func (s *shared) disturb(node string) {
	if _, known := s.disturbed[node]; known {
		return
	}

	s.order++
	s.disturbed[node] = s.order
}

// noteResumed records that an earlier run has taken the node out of service.
func (s *shared) noteResumed(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.disturb(node)
}

// done records that the upgrade of the node has ended.
func (s *shared) done(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.disturbed, node)
	close(s.ended)
	s.ended = make(chan struct{})
}

// peerDone returns a channel that is closed when the next upgrade ends.
func (s *shared) peerDone() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.ended
}

// beside returns the nodes of other upgrades that are out of service, or about to be: true for those that began
// before the given node, false for those that began after it.
func (s *shared) beside(node string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.others(node)
}

// others is [shared.beside] for a caller that holds the lock.
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

// mayStandDown registers an upgrade that has not disturbed its node yet, so that stopUntouched can end it.
func (s *shared) mayStandDown(node string, end context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.untouched[node] = end
}

// forget drops what is known about the upgrade of a node, once the rollout has handled its end.
func (s *shared) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.untouched, node)
	delete(s.doubtful, node)
}

// stopUntouched ends all upgrades that have not touched their nodes.
func (s *shared) stopUntouched() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.over = true
	for _, cancel := range s.untouched {
		cancel(permit.ErrStopped)
	}
}

// markDoubtful records that the new system of a node that is being upgraded does not become healthy.
func (s *shared) markDoubtful(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.doubtful[node] = true
}

// anyDoubtful reports whether the outcome of an upgrade must be known before others are started.
func (s *shared) anyDoubtful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.doubtful) > 0
}

// noteStep updates whether a node is doubtful, from the step that it enters and from what this run has written
// about it in the journal. A node that reboots while the journal has only the intent may have no new system: its
// installer failed, or its result is unknown.
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

// settles reports whether the node still has to stay healthy for some time.
func (s *shared) settles(node string) (found bool) {
	s.settling(func(w *soak) { found = w.watches(node) })

	return found
}

// policy returns the policy with everything that was chosen so far.
func (s *shared) policy() cluster.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.selected.policy
}

// choose adds what another observation chose, and returns the policy with everything that was chosen so far.
func (s *shared) choose(fresh cluster.Selection) cluster.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.selected.add(fresh)
}

// holdNews says, once, that a node came to be held during the run, or that only the run still holds it; empty if
// there is nothing new.
func (s *shared) holdNews(policy cluster.Policy, node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.selected.news(policy, node)
}

// operatorWatch is what a run knows about the operator beside it.
type operatorWatch struct {
	// pausing is true if the operator may be held in the name of the run.
	pausing bool
	// blocking are the findings of the last report.
	blocking []cluster.Finding
	// silent is when the object last could not be read; zero if it could.
	silent time.Time
	// unhold says how a person ends the hold.
	unhold string
}

// silentTimeout is how long an object that could not be read is not read again: otherwise every upgrade would
// wait for it.
const silentTimeout = 30 * time.Second

// operatorSilent reports whether the object could not be read a moment ago.
func (s *shared) operatorSilent(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return !s.operator.silent.IsZero() && now.Sub(s.operator.silent) < silentTimeout
}

// noteOperatorSilent records that the object could not be read.
func (s *shared) noteOperatorSilent(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.operator.silent = now
}

// noteOperator records the result of a report.
func (s *shared) noteOperator(blocking []cluster.Finding, unhold string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.operator.blocking, s.operator.silent = slices.Clone(blocking), time.Time{}
	if unhold != "" {
		s.operator.unhold = unhold
	}
}

// operatorFindings returns the findings of the last report.
func (s *shared) operatorFindings() []cluster.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.Clone(s.operator.blocking)
}

// noteOperatorPaused records that the operator may be held in the name of the run.
func (s *shared) noteOperatorPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.operator.pausing = true
}

// operatorPaused reports whether the operator may be held in the name of the run.
func (s *shared) operatorPaused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.operator.pausing
}

// operatorUnhold says how a person ends the hold; empty if that is unknown.
func (s *shared) operatorUnhold() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.operator.unhold
}

// Labels change during a run. In each observation, the selectors of the policy choose again which nodes are held
// and which are canaries, and neither is revoked before the run has ended: a held node is not started, and the
// others wait for each canary. For images, reboot modes and pools, the last observation counts.

// selected is what the selectors of the policy have chosen in a run. The lock of shared guards it.
type selected struct {
	policy cluster.Policy
	// began are the nodes that were held when the run began, said those whose hold was reported since.
	began map[string]cluster.Hold
	said  map[string]bool
}

// newSelected begins with what the first observation of the run chose.
func newSelected(policy cluster.Policy) selected {
	return selected{policy: policy, began: policy.Selected.Held, said: map[string]bool{}}
}

// add adds what another observation chose, and returns the policy with everything that was chosen so far.
func (s *selected) add(fresh cluster.Selection) cluster.Policy {
	held := maps.Clone(s.policy.Selected.Held)
	canaries := slices.Clone(s.policy.Selected.Canaries)

	if held == nil {
		held = map[string]cluster.Hold{}
	}

	maps.Copy(held, fresh.Held)

	for _, name := range fresh.Canaries {
		if !slices.Contains(canaries, name) {
			canaries = append(canaries, name)
		}
	}

	fresh.Held, fresh.Canaries = held, canaries
	s.policy.Selected = fresh

	return s.policy
}

// news is [shared.holdNews].
func (s *selected) news(policy cluster.Policy, node string) string {
	hold, held := policy.Selected.Held[node]
	_, before := s.began[node]

	switch {
	case !held || policy.Hold[node] || s.said[node] || before && !hold.Earlier:
		return ""
	case hold.Earlier:
		s.said[node] = true

		return fmt.Sprintf("%s stays held until this run ends (%s); the next apply decides anew", node, plan.HeldBy(policy, node))
	default:
		// The hold is reported now; if its label is removed, that is reported as well.
		s.began = with(s.began, node, hold)

		return fmt.Sprintf("%s is held from now on (%s): nothing new is begun on it", node, plan.HeldBy(policy, node))
	}
}

func with(holds map[string]cluster.Hold, node string, hold cluster.Hold) map[string]cluster.Hold {
	more := maps.Clone(holds)
	if more == nil {
		more = map[string]cluster.Hold{}
	}

	more[node] = hold

	return more
}
