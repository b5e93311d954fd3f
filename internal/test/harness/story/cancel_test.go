// SPDX-License-Identifier: MPL-2.0

package story_test

import (
	"strings"
	"time"

	"pgregory.net/rapid"
)

// cancelMost is how long a run may go on after it was cancelled.
const cancelMost = 15 * time.Second

// interrupt cancels a run at any moment.
func (s *stage) interrupt(t *rapid.T) {
	s.pass(t)

	if run := s.oneOf(t); run != nil {
		s.tell("cancel", "%s", run.name)
		run.interrupt()
		s.await(cancelMost+time.Second, func() bool { return !run.alive() })
	}
}

// checkCancel ends the story when a cancelled run does not return in time, or
// returned just now and left something behind.
func (s *stage) checkCancel(run *apply, ended time.Time) {
	at := run.interrupted()
	if at.IsZero() {
		return
	}

	took := ended.Sub(at)
	if ended.IsZero() {
		took = time.Since(at)
	}

	if took > cancelMost {
		s.fail("L4: %s was cancelled, and has not returned within %s", run.name, cancelMost)
	}

	if !ended.IsZero() && s.calm(run) {
		s.tell("calm after a cancel", "%s", run.name)
		s.leftNothing(run)
	}
}

// calm tells that nothing keeps a run from tidying up.
func (s *stage) calm(run *apply) bool {
	run.mu.Lock()
	cut := time.Now().Before(run.cut)
	run.mu.Unlock()

	return !cut && len(s.faults) == 0 && !s.touched.After(run.begun) && s.World().Serving() && len(s.living()) < 2
}

// leftNothing ends the story when a run that is over left its lease, or a cordon
// on a node that is not armed.
func (s *stage) leftNothing(run *apply) {
	if holder := s.Lease().Holder; strings.HasPrefix(holder, run.name+" ") {
		s.fail("L4: %s has left its lease", run.name)
	}

	open := map[string]bool{}
	for _, entry := range s.Journal().Entries {
		open[entry.Node] = entry.Open()
	}

	for _, view := range s.NodeViews() {
		if view.Cordoning.Unschedulable && view.Cordoning.Run == run.name && !open[view.Name] {
			s.fail("L4: %s has left its cordon on %s, of which the journal says nothing", run.name, view.Name)
		}
	}
}
