// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// spot is what has an upgrade: a node, one of its components, or the manifests.
type spot struct {
	node      string
	component cluster.Component
}

// destination is a spot on its way to a version.
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

// lane is a span in which one step follows the other: an upgrade, or what is done to a
// node before the first one.
type lane struct {
	*span

	at spot
	// upgrade tells that it is one.
	upgrade bool
	// step is the span of the present step, nil before the first one.
	step *span
	// name is that of the present step.
	name cluster.NodeStep
}

// inner is where what happens now belongs.
func (l *lane) inner() *span {
	if l.step != nil {
		return l.step
	}

	return l.span
}

// close ends the present step and the lane.
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

// open opens a lane; one that is still open at the spot ends.
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

// close closes the lane at the spot, if there is one.
func (t *Tracer) close(at spot, outcome, text string, when time.Time) {
	if found := t.lanes[at]; found != nil {
		found.close(outcome, text, when)
		delete(t.lanes, at)
	}
}

// cutOff closes all lanes: the run ended.
func (t *Tracer) cutOff(at time.Time) {
	for _, found := range t.sorted(func(*lane) bool { return true }) {
		if found.upgrade {
			t.close(found.at, outcomeCut, "the run ended before", at)
		} else {
			t.close(found.at, outcomeLeft, "", at)
		}
	}
}

// prepared closes what was done before the first upgrade, where nothing else told of
// its end.
func (t *Tracer) prepared(at time.Time, also func(*lane) bool) {
	for _, found := range t.sorted(func(one *lane) bool { return !one.upgrade && also(one) }) {
		t.close(found.at, outcomeDone, "", at)
	}
}

// sorted are the lanes that are wanted. Few are, of a hundred that are open at a time.
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

// laneOf is the lane that an event is about; nil where there is none. Waits name a
// node and no component.
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
