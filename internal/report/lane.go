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

// culprit is the step of the turn at which it failed. A turn that ended with its node
// back in service failed before that.
func (l *lane) culprit(of *turn) *piece {
	var steps []*piece

	for _, one := range l.pieces {
		if one.turn == of {
			steps = append(steps, one)
		}
	}

	last := len(steps) - 1
	if last >= 0 && steps[last].step == cluster.StepUncordon {
		for last > 0 && slices.Contains([]cluster.NodeStep{cluster.StepUncordon, cluster.StepReady, cluster.StepEtcd}, steps[last].step) {
			last--
		}
	}

	if last < 0 {
		return nil
	}

	return steps[last]
}
