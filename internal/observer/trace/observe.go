// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Observe implements [cluster.Observer]. It does not use the network.
func (t *Tracer) Observe(event cluster.Event) {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if t.closed {
		return
	}

	event.Time = t.moment(event.Time)
	at := spot{event.Node, event.Component}

	switch event.Kind {
	case cluster.EventPlanned:
		t.planned(event)
	case cluster.EventNodeStarted:
		t.upgrade(event)
	case cluster.EventNodeStep:
		t.step(event)
	case cluster.EventPulled:
		t.pulled(event)
	case cluster.EventNodeDone:
		t.close(at, outcomeDone, "", event.Time)
	case cluster.EventNodeStopped:
		t.stopped(at, outcomeLeft, event)
	case cluster.EventWaiting, cluster.EventWarning, cluster.EventRollingBack, cluster.EventSuspended, cluster.EventResumed:
		t.remark(event)
	case cluster.EventRunStarted, cluster.EventRunDone, cluster.EventRolledBack:
		t.root.note(string(event.Kind), event.Text, event.Time)
	case cluster.EventRunFailed, cluster.EventRunLost:
		t.cutOff(event.Time)
		t.root.note(string(event.Kind), event.Text, event.Time)
	}

	t.root.SetAttributes(progress("talos", event.Talos)...)
	t.root.SetAttributes(progress("kubernetes", event.Kubernetes)...)
}

// planned keeps the plan: the event of an upgrade has only the version it leads to.
func (t *Tracer) planned(event cluster.Event) {
	if event.Outline == nil {
		return
	}

	t.plan = map[destination]cluster.PlannedUpgrade{}

	for _, planned := range slices.Backward(event.Outline.Upgrades) {
		t.plan[destination{spot{planned.Node, planned.Component}, planned.To.String()}] = planned
	}

	t.root.SetAttributes(keyUpgrades.Int(len(event.Outline.Upgrades)), keyEstimate.Float64(event.Outline.Estimate.Seconds()))

	if event.Outline.ClusterID != "" {
		t.root.SetAttributes(keyClusterID.String(event.Outline.ClusterID))
	}
}

// upgrade begins the span of an upgrade of a node or of a component.
func (t *Tracer) upgrade(event cluster.Event) {
	// Other nodes may pull images ahead of their turn.
	t.prepared(event.Time, func(l *lane) bool { return l.name != cluster.StepPull || l.at.node == event.Node })

	at := spot{event.Node, event.Component}
	begun := t.open(at, at.String(), true, event)
	begun.SetAttributes(versioned(keyTo, event.To)...)

	planned, found := t.plan[destination{at, event.To.String()}]
	if !found {
		return
	}

	begun.SetAttributes(versioned(keyFrom, planned.From)...)

	if planned.Role != "" {
		begun.SetAttributes(keyRole.String(string(planned.Role)))
	}

	if planned.Canary {
		begun.SetAttributes(keyCanary.Bool(true))
	}
}

// step begins a step, which ends the previous step of the same upgrade. Steps on a node before its upgrade have a
// lane of their own.
func (t *Tracer) step(event cluster.Event) {
	in := t.lanes[spot{event.Node, event.Component}]
	if in == nil {
		in = t.before(event)
	}

	attributes := append(place(event.Node, event.Component), keyStep.String(string(event.Step)))
	attributes = append(attributes, stepText(event.Step, event.Text)...)

	switch {
	case event.Step == cluster.StepSnapshot && !in.upgrade:
		in.SetAttributes(attributes...)
		in.name = event.Step

		return
	case event.Step == cluster.StepApply && in.name == cluster.StepApply:
		// The text of each such event is about one object.
		in.step.note(string(event.Step), event.Text, event.Time)

		return
	case in.step != nil:
		in.step.end(event.Time)
	}

	in.name = event.Step
	in.step = t.below(in.span, string(event.Step), event.Time, attributes)
}

// before returns the lane of a step that belongs to no upgrade.
func (t *Tracer) before(event cluster.Event) *lane {
	// The next step ends the snapshot.
	t.prepared(event.Time, func(l *lane) bool { return l.name == cluster.StepSnapshot })

	at := spot{node: event.Node}
	if found := t.lanes[at]; found != nil {
		return found
	}

	title := "steps on " + event.Node

	switch event.Step {
	case cluster.StepPull:
		title = "images on " + event.Node
	case cluster.StepSnapshot:
		title = string(cluster.StepSnapshot)
	}

	return t.open(at, title, false, event)
}

// pulled closes the lane of images that were pulled before an upgrade. If the upgrade has begun meanwhile, its
// lane stays open.
func (t *Tracer) pulled(event cluster.Event) {
	at := spot{node: event.Node}

	if found := t.lanes[at]; found != nil && !found.upgrade {
		t.stopped(at, outcomeDone, event)
	}
}

// stopped closes a lane with the outcome, or as failed if the event has an error.
func (t *Tracer) stopped(at spot, outcome string, event cluster.Event) {
	if event.Err != nil {
		outcome = outcomeFailed
	}

	t.close(at, outcome, event.Text, event.Time)
}

// remark adds a wait, a warning or the like to the span in which it occurred.
func (t *Tracer) remark(event cluster.Event) {
	to, attributes := t.root, []attribute.KeyValue(nil)

	// A warning that names no node is about the run, even if a lane without a node is open.
	found := t.laneOf(event)
	if found != nil && (event.Node != "" || event.Component != "" || event.Kind == cluster.EventWaiting) {
		to = found.inner()
	} else {
		attributes = onNode(event.Node)
	}

	attributes = append(attributes, versioned(keyTo, event.To)...)
	to.note(string(event.Kind), event.Text, event.Time, attributes...)

	if event.Kind == cluster.EventRollingBack && found != nil {
		found.SetStatus(codes.Error, shortened(event.Text, textMost))
	}
}
