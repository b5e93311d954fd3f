// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// result is an upgrade that ended.
type result struct {
	step plan.Step
	// ready is the last transition of the node's Ready condition.
	ready time.Time
	err   error
	// release ends what the upgrade was begun with.
	release context.CancelFunc
}

// end takes note of an upgrade that is over.
func (s *rollout) end(over result) {
	s.running = slices.DeleteFunc(s.running, func(step plan.Step) bool { return step.Node == over.step.Node && step.Component == over.step.Component })

	// Only after it is known whether anything may be begun any more.
	defer over.release()

	if over.err != nil {
		s.run.emit(stoppedEvent(over))
	}

	switch {
	case over.err == nil:
		s.completed[keyOf(over.step)]++
		// A node that was moved is watched from the end of its upgrade on, before any
		// other upgrade can take it for one that nobody waits for.
		if over.step.Component == cluster.Kubelet {
			s.run.soak.begin(over.step, over.ready, s.run.engine.clock.Now())
		}
	case errors.Is(over.err, errStopped):
		s.run.emit(cluster.Event{Kind: cluster.EventWaiting, Node: over.step.Node, Text: fmt.Sprintf("%s was left as it is: %v", over.step.Node, over.err)})
		s.blockage.hesitate = true
	case errors.Is(over.err, errYield):
		s.run.emit(cluster.Event{Kind: cluster.EventWaiting, Node: over.step.Node, Text: fmt.Sprintf("%s waits for its turn: %v", over.step.Node, over.err)})
		s.blockage.hesitate = true
	default:
		s.fail(over.err)
	}
}

// stoppedEvent tells of an upgrade that ended with an error.
func stoppedEvent(over result) cluster.Event {
	event := cluster.Event{Kind: cluster.EventNodeStopped, Node: over.step.Node, Component: over.step.Component, Text: over.err.Error()}

	var failure *Failure
	if errors.As(over.err, &failure) {
		event.Text, event.Err = failure.Summary, over.err
	}

	return event
}

// fail keeps the first failure. What fails after it, on nodes that were on
// their way, is named in it.
func (s *rollout) fail(err error) {
	var first, other *Failure

	switch {
	case err == nil || err == s.failure: //nolint:errorlint // it is the very same one
		return
	case s.failure == nil:
		s.failure = err
		s.run.starter.stopUntouched()

		return
	case !errors.As(s.failure, &first) || !errors.As(err, &other):
		s.run.emit(cluster.Event{Kind: cluster.EventWarning, Text: err.Error(), Err: err})

		return
	}

	s.run.emit(cluster.Event{Kind: cluster.EventWarning, Node: other.Node, Text: other.Summary + ": " + other.Seen, Err: err})

	first.Excerpts = append(first.Excerpts, other.Excerpts...)
	first.Findings = append(first.Findings, cluster.Finding{
		Check: checkTurn, Severity: cluster.Observed, Node: other.Node, Err: err,
		Found:  "its turn was going on beside that and failed too: " + other.Seen,
		Remedy: other.State + " " + other.Remedy,
	})
}
