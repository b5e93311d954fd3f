// SPDX-License-Identifier: MPL-2.0

package report

import (
	"slices"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// lane is one node, or the cluster.
type lane struct {
	node string
	// pieces are the steps in the order in which they began, also of turns that
	// went on beside each other.
	pieces []*piece
	turns  []*turn
}

// turn is one node, or one component of it, on its way to a version.
type turn struct {
	component cluster.Component
	to        version.Version
	from      time.Time
	// until is zero while it goes on.
	until time.Time
	state turnState
}

type turnState string

const (
	turnRunning turnState = "running"
	turnDone    turnState = "done"
	turnFailed  turnState = "failed"
	turnStopped turnState = "stopped"
)

// piece is one step, which ends where the next one of its turn begins.
type piece struct {
	turn        *turn
	component   cluster.Component
	step        cluster.NodeStep
	text        string
	from, until time.Time
	failed      bool
	// waits are the last things that were waited for.
	waits []string
}

// open is the turn of the component that is going on; nil where there is none.
func (l *lane) open(component cluster.Component) *turn {
	for _, one := range slices.Backward(l.turns) {
		if one.component == component && one.until.IsZero() {
			return one
		}
	}

	return nil
}

// last is the latest piece of the turn, or of none; nil where there is no such
// piece that is going on.
func (l *lane) last(of *turn) *piece {
	for _, one := range slices.Backward(l.pieces) {
		if one.turn == of && one.until.IsZero() {
			return one
		}
	}

	return nil
}

// forget drops the last turn of the component where it was on its way to the same
// version and was given up before it touched anything: a node that waits for room
// begins again and again, for hours.
func (l *lane) forget(component cluster.Component, to version.Version) {
	last := len(l.turns) - 1
	if last < 0 || l.turns[last].component != component || l.turns[last].state != turnStopped || !l.turns[last].to.Equal(to) {
		return
	}

	given := l.turns[last]
	touched := func(one *piece) bool {
		return one.turn == given && one.step != cluster.StepGates && one.step != cluster.StepPull
	}

	if slices.ContainsFunc(l.pieces, touched) {
		return
	}

	l.turns = l.turns[:last]
	l.pieces = slices.DeleteFunc(l.pieces, func(one *piece) bool { return one.turn == given })
}

// culprit is the step of the turn at which it failed. A turn that ended with its node
// back in service, or that sent it back to its old system, failed before that.
func (l *lane) culprit(of *turn) *piece {
	var steps []*piece

	for _, one := range l.pieces {
		if one.turn == of {
			steps = append(steps, one)
		}
	}

	after := []cluster.NodeStep{cluster.StepUncordon, cluster.StepReady, cluster.StepEtcd}

	back := slices.IndexFunc(steps, func(one *piece) bool { return one.step == cluster.StepRollback })
	if back > 0 {
		steps, after = steps[:back], []cluster.NodeStep{cluster.StepCordon, cluster.StepDrain}
	}

	last := len(steps) - 1
	if back > 0 || last >= 0 && steps[last].step == cluster.StepUncordon {
		for last > 0 && slices.Contains(after, steps[last].step) {
			last--
		}
	}

	if last < 0 {
		return nil
	}

	return steps[last]
}
