// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// spot is the subject of a lane: a node, one of its components, or the bootstrap manifests.
type spot struct {
	node      string
	component cluster.Component
}

// destination is a spot and the version that it is upgraded to.
type destination struct {
	spot

	to string
}

func (s spot) String() string {
	switch s.component {
	case cluster.Manifests:
		return "bootstrap manifests"
	case "":
		return "Talos on " + s.node
	default:
		return string(s.component) + " on " + s.node
	}
}

// lane is a span whose steps follow one another: an upgrade, or the steps on a node before its first upgrade.
type lane struct {
	*span

	at spot
	// upgrade is true if the lane is an upgrade.
	upgrade bool
	// step is the span of the current step, nil before the first one.
	step *span
	// name is the name of the current step.
	name cluster.NodeStep
}

// inner returns the span of the current step, or that of the lane before the first step.
func (l *lane) inner() *span {
	if l.step != nil {
		return l.step
	}

	return l.span
}

// close ends the current step and the lane.
func (l *lane) close(outcome, text string, at time.Time) {
	failed := outcome == outcomeFailed || outcome == outcomeCut

	if l.step != nil {
		if failed {
			l.step.SetStatus(codes.Error, shortened(text, textMost))
		}

		l.step.end(at)
	}

	switch {
	case failed:
		l.SetStatus(codes.Error, shortened(text, textMost))
	case outcome == outcomeDone:
		l.SetStatus(codes.Ok, "")
	case text != "":
		l.note("left", text, at)
	}

	l.SetAttributes(keyOutcome.String(outcome))
	l.end(at)
}

// open opens a lane. If one is still open for the spot, it is closed.
func (t *Tracer) open(at spot, title string, upgrade bool, event cluster.Event) *lane {
	t.close(at, outcomeLeft, "", event.Time)

	attributes := onNode(at.node)
	if upgrade {
		attributes = place(at.node, at.component)
	}

	made := &lane{at: at, upgrade: upgrade, span: t.below(t.root, title, event.Time, attributes)}
	t.lanes[at] = made

	return made
}

// close closes the lane of the spot, if there is one.
func (t *Tracer) close(at spot, outcome, text string, when time.Time) {
	if found := t.lanes[at]; found != nil {
		found.close(outcome, text, when)
		delete(t.lanes, at)
	}
}

// cutOff closes all lanes at the end of the run.
func (t *Tracer) cutOff(at time.Time) {
	for _, found := range t.sorted(func(*lane) bool { return true }) {
		if found.upgrade {
			t.close(found.at, outcomeCut, "the run ended before", at)
		} else {
			t.close(found.at, outcomeLeft, "", at)
		}
	}
}

// prepared closes the lanes that are not upgrades and for which also returns true.
func (t *Tracer) prepared(at time.Time, also func(*lane) bool) {
	for _, found := range t.sorted(func(one *lane) bool { return !one.upgrade && also(one) }) {
		t.close(found.at, outcomeDone, "", at)
	}
}

// sorted returns the lanes that are wanted, by node and component: about a hundred may be open, but few are
// wanted.
func (t *Tracer) sorted(wanted func(*lane) bool) []*lane {
	var found []*lane

	for _, one := range t.lanes {
		if wanted(one) {
			found = append(found, one)
		}
	}

	slices.SortFunc(found, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.at.node, b.at.node), cmp.Compare(a.at.component, b.at.component))
	})

	return found
}

// laneOf returns the lane that an event is about, or nil if there is none. An event without a component, such as
// a wait, is about any lane of its node.
func (t *Tracer) laneOf(event cluster.Event) *lane {
	if found := t.lanes[spot{event.Node, event.Component}]; found != nil {
		return found
	}

	if event.Component != "" {
		return nil
	}

	if found := t.sorted(func(one *lane) bool { return one.at.node == event.Node }); len(found) > 0 {
		return found[0]
	}

	return nil
}
