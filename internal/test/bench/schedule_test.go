// SPDX-License-Identifier: MPL-2.0

package bench_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// The best schedule is the shortest roll that the policy allows: the longest pull once, then
// the workers, each of which takes the first place that becomes free, in the order in which
// they were cordoned, and then the control planes one after the other. A node takes the time
// that it needs by itself: its installer, and from its reboot until it has confirmed its
// system. The model draws these durations, so they are those of this very run.

// lookupTime is how long a machine takes to find an image that it has, confirmTime how long it takes to confirm its
// upgrade once it is ready.
const (
	lookupTime  = 730 * time.Millisecond
	confirmTime = 613 * time.Millisecond
)

// span is a period in seconds since the simulation began.
type span struct{ begin, end float64 }

// rolled is what the history has about the nodes of a roll.
type rolled struct {
	controlPlanes map[string]bool
	// own is the time that each node needs by itself, in seconds.
	own map[string]float64
	// away is from its first cordon to its last uncordon.
	away map[string]*span
}

// talosRoll reads the history of an upgrade of Talos.
func talosRoll(events []history.Event) rolled {
	var (
		made  = rolled{controlPlanes: map[string]bool{}, own: map[string]float64{}, away: map[string]*span{}}
		begun = map[string]float64{}
		down  = map[string]bool{}
	)

	for _, event := range events {
		switch event.Kind {
		case history.KindNode:
			made.controlPlanes[event.Node] = event.Detail["role"] == string(model.ControlPlane)
		case history.KindCordon:
			made.cordon(event)
		case history.KindJournal:
			// The entries are by machine ID, but the event has the node.
			if event.Detail["phase"] == "intent" {
				begun[event.Node] = event.Sim
			}
		case history.KindInstall:
			if event.Detail["by"] == "client" {
				made.own[event.Node] += event.Sim - begun[event.Node]
				delete(begun, event.Node)
			}
		case history.KindStage:
			if strings.HasPrefix(event.Detail["to"], "rebooting") {
				down[event.Node] = true

				if _, since := begun[event.Node]; !since {
					begun[event.Node] = event.Sim
				}
			}
		case history.KindKubelet:
			if since, found := begun[event.Node]; found && down[event.Node] && event.Detail["ready"] == "true" {
				made.own[event.Node] += event.Sim - since + confirmTime.Seconds() + lookupTime.Seconds()
				delete(begun, event.Node)
				delete(down, event.Node)
			}
		default:
		}
	}

	return made
}

func (r *rolled) cordon(event history.Event) {
	away := r.away[event.Node]

	switch {
	case event.Detail["unschedulable"] != "true":
		if away != nil {
			away.end = event.Sim
		}
	case away == nil:
		r.away[event.Node] = &span{begin: event.Sim}
	}
}

// workers returns the workers that were cordoned, in the order of their cordons.
func (r *rolled) workers() []string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(r.away)), func(name string) bool { return r.controlPlanes[name] })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(r.away[a].begin, r.away[b].begin), cmp.Compare(a, b))
	})

	return names
}

// best returns how long the best schedule takes, in seconds, without the pulls.
func (r *rolled) best(slots int) float64 {
	return makespan(r.workers(), r.own, slots) + r.ofControlPlanes()
}

func (r *rolled) ofControlPlanes() float64 {
	sum := 0.0

	for name, own := range r.own {
		if r.controlPlanes[name] {
			sum += own
		}
	}

	return sum
}

// makespan returns how long it takes until all are done, if each takes the place that becomes free first.
func makespan(names []string, own map[string]float64, slots int) float64 {
	free := make([]float64, slots)

	for _, name := range names {
		slices.Sort(free)
		free[0] += own[name]
	}

	return slices.Max(free)
}

// firstCordon returns when the first node was cordoned, in seconds since the simulation began.
func (r *rolled) firstCordon() float64 {
	first := -1.0
	for _, away := range r.away {
		if first < 0 || away.begin < first {
			first = away.begin
		}
	}

	return first
}

// onTheirWay returns how many workers were cordoned at a time, on average, between the first and the last start, as a
// share of how many may be. A single worker counts as all of them.
func (r *rolled) onTheirWay(slots int) float64 {
	names := r.workers()
	if len(names) == 0 {
		return 1
	}

	from, to := r.away[names[0]].begin, r.away[names[len(names)-1]].begin
	if to <= from {
		return 1
	}

	busy := 0.0
	for _, name := range names {
		busy += min(r.away[name].end, to) - r.away[name].begin
	}

	return busy / (to - from) / float64(slots)
}

// kubernetesBest returns how long the best schedule of the Kubernetes half takes, in seconds, without the pulls: the
// components of the control planes, which change one after the other, and the kubelets of the workers, each of which
// takes the place that becomes free first. A component takes from the change of its configuration until it serves.
func kubernetesBest(events []history.Event, slots int) float64 {
	var (
		needed, ended float64
		order         []string
		own           = map[string]float64{}
		worker        = map[string]bool{}
		asked         = map[string]float64{}
	)

	for _, event := range events {
		switch event.Kind {
		case history.KindNode:
			worker[event.Node] = event.Detail["role"] == string(model.Worker)
		case history.KindConfig:
			asked[event.Node] = event.Sim

			if worker[event.Node] {
				order = append(order, event.Node)
			}
		case history.KindComponent:
			since, found := asked[event.Node]

			switch {
			case event.Detail["state"] != "ready" || !found:
			case worker[event.Node]:
				own[event.Node] = event.Sim - since
			default:
				// Two that restart together need the time once.
				needed += event.Sim - max(since, ended)
				ended = event.Sim
			}
		default:
		}
	}

	return needed + makespan(order, own, slots)
}
