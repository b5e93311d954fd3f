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
// planes, manifests and all components but the kubelets of workers move one at a
// time with nothing beside them. Workers move beside workers of the same hop, and
// their kubelets beside kubelets, canaries before the others, for as long as the
// budget of their kind allows: one that is unavailable anyway costs nothing.
// Behind a canary that had its turn and is not in service nothing begins.
func (p Plan) Startable(snapshot cluster.Snapshot, busy []Step) []Step {
	if len(p.Steps) == 0 {
		return nil
	}

	if len(busy) > 0 && slices.ContainsFunc(busy, func(s Step) bool { return !s.parallel() }) {
		return nil
	}

	first := p.firstIdle(busy)
	if first < 0 {
		return nil
	}

	kubelets := p.Steps[first].Component == cluster.Kubelet
	free := newSlotPlan(snapshot, p.slotsFor(&p.Steps[first]), busy, kubelets)
	started := p.fill(free, busy)

	// A kubelet is restarted in no time, and waiting would bring nobody back: one
	// always goes on.
	if kubelets && len(started)+len(busy) == 0 && p.Steps[first].parallel() {
		return p.Steps[first : first+1]
	}

	return started
}

// firstIdle is the index of the first step of a node that is not busy; negative
// where there is none.
func (p Plan) firstIdle(busy []Step) int {
	return slices.IndexFunc(p.Steps, func(step Step) bool {
		return !slices.ContainsFunc(busy, func(s Step) bool { return s.Node == step.Node })
	})
}

// fill starts steps of the first hop for as long as there are slots.
func (p Plan) fill(free *slotPlan, busy []Step) []Step {
	var started []Step

	canaries := slices.ContainsFunc(busy, func(s Step) bool { return s.Canary })

	// waiting tells that a worker found no slot: what goes alone waits behind it.
	waiting := false

	for i := range p.Steps {
		step := p.Steps[i]
		if step.Hop != p.Steps[0].Hop {
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
			if len(busy)+len(started) == 0 && !waiting {
				return []Step{step}
			}

			return started
		case len(busy) > 0 && !busy[0].kin(step), len(started) > 0 && !started[0].kin(step), canaries && !step.Canary:
			return started
		case free.take(step.Node):
			started = append(started, step)
		default:
			waiting = true
		}
	}

	return started
}

// kin tells whether the steps move the same thing to the same version.
func (s *Step) kin(other Step) bool {
	return s.To.Equal(other.To) && s.Component == other.Component
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

// newSlotPlan counts for turns of nodes or, where the nodes are not emptied
// before, for those of kubelets: a cordon is no matter of theirs.
func newSlotPlan(snapshot cluster.Snapshot, budget int, busy []Step, kubelets bool) *slotPlan {
	s := &slotPlan{
		busy: make(map[string]bool, len(busy)), available: make(map[string]bool, len(snapshot.Nodes)),
		turns: len(busy), most: max(budget, 1),
	}

	for _, step := range busy {
		s.busy[step.Node] = true
	}

	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		there := node.Available() || (kubelets && node.Kube != nil && node.Kube.Ready)

		switch {
		case node.Gone, node.Role != cluster.Worker:
		case there && !s.busy[node.Name]:
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
