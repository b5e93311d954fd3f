// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// Startable are the steps, in order, that may begin now, beside the busy ones:
// those whose turn has begun and has not ended. The snapshot is the one the
// plan was made from; a busy node may still have steps in it, or none any more.
//
// What an earlier run left unfinished begins alone and before all else. Control
// planes and components move one at a time with nothing beside them. Workers
// move beside workers of the same hop, canaries before the others, for as long
// as the budget allows: one that is unavailable anyway costs nothing. Behind a
// canary that had its turn and is not in service nothing begins.
func (p Plan) Startable(snapshot cluster.Snapshot, busy []Step) []Step {
	if len(p.Steps) == 0 {
		return nil
	}

	free := newSlotPlan(snapshot, p.Budget, busy)

	if len(busy) > 0 && slices.ContainsFunc(busy, func(s Step) bool { return !s.parallel() }) {
		return nil
	}

	hop := p.Steps[0].Hop
	canaries := slices.ContainsFunc(busy, func(s Step) bool { return s.Canary })

	var started []Step

	for i := range p.Steps {
		step := p.Steps[i]
		if step.Hop != hop {
			break
		}

		// A pending canary holds back the others even while its node is busy.
		canaries = canaries || step.Canary

		switch {
		case free.busy[step.Node]:
			continue
		case p.faltering && step.behindCanaries():
			return started
		case !step.parallel():
			if len(busy)+len(started) == 0 {
				return []Step{step}
			}

			return started
		case len(busy) > 0 && !busy[0].To.Equal(step.To), canaries && !step.Canary:
			return started
		case free.take(step.Node):
			started = append(started, step)
		}
	}

	return started
}

// slotPlan counts the workers that are unavailable, and will be.
type slotPlan struct {
	// busy are the nodes whose turn has begun.
	busy map[string]bool
	// available are the workers that are so now and not busy.
	available map[string]bool
	// turns counts the turns going on, away the unavailable workers.
	turns, away int
	most        int
}

func newSlotPlan(snapshot cluster.Snapshot, budget int, busy []Step) *slotPlan {
	s := &slotPlan{
		busy: make(map[string]bool, len(busy)), available: make(map[string]bool, len(snapshot.Nodes)),
		turns: len(busy), most: max(budget, 1),
	}

	for _, step := range busy {
		s.busy[step.Node] = true
	}

	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]

		switch {
		case node.Gone, node.Role != cluster.Worker:
		case node.Available() && !s.busy[node.Name]:
			s.available[node.Name] = true
		default:
			s.away++
		}
	}

	return s
}

// take takes a slot for the worker, if one is left.
func (s *slotPlan) take(name string) bool {
	if s.turns >= s.most {
		return false
	}

	if s.available[name] {
		if s.away >= s.most {
			return false
		}

		s.away++
	}

	s.busy[name] = true
	s.turns++

	return true
}
