// SPDX-License-Identifier: MPL-2.0

package report

import (
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// A report of a run that waits for days stays readable: no more different things
// that a step waited for are kept than waitsMost, and no more lines of the log than
// linesMost, the first and the last ones.
const (
	waitsMost = 3
	linesMost = 400
)

// story is what a run has done so far, folded from its events.
type story struct {
	began, seen time.Time
	// started tells that the lease is held.
	started bool
	target  cluster.Target
	outline *cluster.Outline
	// talos and kubernetes are how far the halves are, as was said last.
	talos, kubernetes cluster.Progress

	// lanes are by node; that of the cluster as a whole has no name.
	lanes map[string]*lane
	// order is that in which the lanes came up.
	order []string
	lines []line
	// hidden counts the lines in the middle that were not kept.
	hidden int
	// ending is nil while the run goes on.
	ending *Ending
}

// line is an entry of the log.
type line struct {
	at      time.Time
	node    string
	text    string
	warning bool
}

func newStory() *story { return &story{lanes: map[string]*lane{}} }

// fold takes an event into account.
func (s *story) fold(event cluster.Event) {
	if event.Time.After(s.seen) {
		s.seen = event.Time
	}

	if s.began.IsZero() {
		s.began = event.Time
	}

	s.measure(event)

	if event.Kind != cluster.EventWaiting && event.Kind != cluster.EventWarning {
		// What the cluster as a whole did before turns begin has no event of its end.
		s.closeLoose(s.lanes[""], event.Time)
	}

	switch event.Kind {
	case cluster.EventPlanned:
		s.outline = event.Outline
	case cluster.EventRunStarted:
		s.started = true
	case cluster.EventNodeStarted:
		s.begin(event)
	case cluster.EventNodeStep:
		s.step(event)
	case cluster.EventPulled:
		s.pulled(event)
	case cluster.EventNodeDone:
		s.end(event, turnDone)
	case cluster.EventNodeStopped:
		s.stop(event)
	case cluster.EventWaiting:
		s.wait(event)
	case cluster.EventWarning:
		s.write(event, event.Text, true)
	case cluster.EventRollingBack:
		s.write(event, "to be sent back to Talos "+event.To.String()+": "+event.Text, true)
	case cluster.EventRunDone, cluster.EventRunFailed, cluster.EventRunLost:
		s.halt(event.Time)
	}
}

// measure keeps how far the halves are, where the event says so.
func (s *story) measure(event cluster.Event) {
	if !event.Target.Talos.IsZero() || !event.Target.Kubernetes.IsZero() {
		s.target = event.Target
	}

	if event.Talos.Managed {
		s.talos = event.Talos
	}

	if event.Kubernetes.Managed {
		s.kubernetes = event.Kubernetes
	}
}

func (s *story) lane(node string) *lane {
	if s.lanes[node] == nil {
		s.lanes[node] = &lane{node: node}
		s.order = append(s.order, node)
	}

	return s.lanes[node]
}

func (s *story) begin(event cluster.Event) {
	at := s.lane(event.Node)
	s.closeLoose(at, event.Time)
	at.forget(event.Component, event.To)

	at.turns = append(at.turns, &turn{component: event.Component, to: event.To, from: event.Time, state: turnRunning})
}

// step begins a piece, and ends the one before it in the same turn.
func (s *story) step(event cluster.Event) {
	node, text := event.Node, event.Text

	if event.Step == cluster.StepSnapshot {
		// It is the cluster's, whichever member it is taken from.
		node, text = "", strings.TrimSpace("from "+node+" "+text)
	}

	at := s.lane(node)
	during := at.open(event.Component)

	if before := at.last(during); before != nil {
		before.until = event.Time
	}

	at.pieces = append(at.pieces, &piece{turn: during, component: event.Component, step: event.Step, text: text, from: event.Time})
}

func (s *story) pulled(event cluster.Event) {
	at := s.lane(event.Node)
	if one := at.last(nil); one != nil && event.Err != nil {
		one.failed = true
	}

	s.closeLoose(at, event.Time)
}

// closeLoose ends the pieces of the lane that belong to no turn.
func (s *story) closeLoose(at *lane, now time.Time) {
	if at == nil {
		return
	}

	for _, one := range at.pieces {
		if one.turn == nil && one.until.IsZero() {
			one.until = now
		}
	}
}

// end ends the turn that is going on.
func (s *story) end(event cluster.Event, state turnState) {
	at := s.lane(event.Node)

	during := at.open(event.Component)
	if during == nil {
		return
	}

	if one := at.last(during); one != nil {
		one.until = event.Time
	}

	during.until, during.state = event.Time, state
	if one := at.culprit(during); one != nil && state == turnFailed {
		one.failed = true
	}

	if state == turnDone && !event.To.IsZero() {
		during.to = event.To
	}
}

func (s *story) stop(event cluster.Event) {
	if event.Err != nil {
		s.end(event, turnFailed)

		return
	}

	s.end(event, turnStopped)
	s.write(event, event.Text, false)
}

// wait notes what is waited for, with the step that does.
func (s *story) wait(event cluster.Event) {
	at := s.lanes[event.Node]
	if event.Node == "" || at == nil {
		s.write(event, event.Text, false)

		return
	}

	for _, one := range slices.Backward(at.pieces) {
		if !one.until.IsZero() {
			continue
		}

		one.waits = append(slices.DeleteFunc(one.waits, func(text string) bool { return text == event.Text }), event.Text)
		if len(one.waits) > waitsMost {
			one.waits = one.waits[1:]
		}

		return
	}

	s.write(event, event.Text, false)
}

// write adds a line to the log; what is said again is said once.
func (s *story) write(event cluster.Event, text string, warning bool) {
	added := line{at: event.Time, node: event.Node, text: text, warning: warning}

	if last := len(s.lines) - 1; last >= 0 && s.lines[last].text == text && s.lines[last].node == event.Node {
		return
	}

	s.lines = append(s.lines, added)
	if len(s.lines) <= linesMost {
		return
	}

	// Warnings stay as long as there is anything else that can go.
	at := linesMost / 2
	if calm := slices.IndexFunc(s.lines[at:], func(one line) bool { return !one.warning }); calm >= 0 {
		at += calm
	}

	s.lines = slices.Delete(s.lines, at, at+1)
	s.hidden++
}

// halt ends everything that is still going on.
func (s *story) halt(now time.Time) {
	for _, at := range s.lanes {
		for _, one := range at.pieces {
			if one.until.IsZero() {
				one.until = now
			}
		}

		for _, one := range at.turns {
			if one.until.IsZero() {
				one.until, one.state = now, turnStopped
			}
		}
	}
}

// finish takes the end of the run into account: only that tells at which nodes
// something failed, and which turns merely had to stop.
func (s *story) finish(ending Ending, now time.Time) {
	if s.began.IsZero() {
		s.began, s.seen = now, now
	}

	s.halt(s.seen)
	s.ending = &ending

	if ending.Failure == nil {
		return
	}

	for _, at := range s.lanes {
		failed := slices.Contains(ending.Failure.Nodes, at.node)

		for index, one := range at.turns {
			last := index == len(at.turns)-1

			switch {
			case one.state == turnFailed && !failed && at.node != "":
				one.state = turnStopped
			case one.state == turnStopped && failed && last:
				one.state = turnFailed
				if step := at.culprit(one); step != nil {
					step.failed = true
				}
			}
		}

		for _, one := range at.pieces {
			one.failed = one.failed && (one.turn == nil || one.turn.state == turnFailed)
		}
	}
}
