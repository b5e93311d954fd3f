// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkBudget refuses a roll that would stand still because the budget of
// unavailable workers is spent by some that are not brought back in time: not
// by the roll at all, or only after others had their turn. It tells whether it did.
func (p *planner) checkBudget() (refused bool) {
	workers := make(map[string]*subject, len(p.nodes))
	// passed are the workers that had their turn.
	passed := make(map[string]bool, len(p.nodes))

	for i := range p.nodes {
		if node := &p.nodes[i]; node.Role == cluster.Worker {
			workers[node.Name] = node
		}
	}

	for first := 0; first < len(p.made.Steps); {
		stage := p.stage(first)
		first += len(stage)
		costs := false

		for i := range stage {
			node := workers[stage[i].Node]
			if node == nil || stage[i].Component != "" {
				continue
			}

			if !stage[i].Finish {
				costs = costs || node.Available() || (passed[node.Name] && !node.cordonedElsewhere())
			}

			passed[node.Name] = true
		}

		if !costs {
			continue
		}

		if spent, remedy := p.spent(passed); len(spent) >= p.made.Budget {
			p.find(cluster.Finding{
				Check: cluster.CheckNodesReady, Severity: cluster.Observed,
				Found: fmt.Sprintf("max_unavailable = %s of %d workers is %d, and that is taken up by %s",
					p.policy.MaxUnavailable, len(workers), p.made.Budget, listed(spent)),
				Remedy: remedy,
			})

			return true
		}
	}

	return false
}

// stage are the steps from the first on among which the unavailable workers may
// go before the others: of one hop, and canaries apart from the rest.
func (p *planner) stage(first int) []Step {
	steps := p.made.Steps[first:]

	for i := range steps {
		if steps[i].Hop != steps[0].Hop || steps[i].Finish != steps[0].Finish || steps[i].Canary != steps[0].Canary {
			return steps[:i]
		}
	}

	return steps
}

// spent are the workers that are unavailable and stay so, under a cordon that is
// not ours or because they have had no turn, and what brings them back.
func (p *planner) spent(passed map[string]bool) (spent []string, remedy string) {
	// Each kind of them has a way back of its own.
	var cordoned, ours, unready bool

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.Role != cluster.Worker, node.Kube == nil, node.Available():
		case node.cordonedElsewhere():
			spent, cordoned = append(spent, node.Name+" (cordoned)"), true
			unready = unready || !node.Kube.Ready
		case node.Kube.Unschedulable && !passed[node.Name]:
			spent, ours = append(spent, node.Name+" (cordoned by an earlier run)"), true
		case !passed[node.Name]:
			spent, unready = append(spent, node.Name+" (not ready)"), true
		}
	}

	var ways []string

	if cordoned {
		ways = append(ways, "take their cordons away (kubectl uncordon)")
	}

	if ours {
		ways = append(ways, "let an apply finish what an earlier run began")
	}

	if unready {
		ways = append(ways, "bring back those that are not ready (kubectl describe node) or remove them from the cluster")
	}

	if SparesOne(p.snapshot) {
		ways = append(ways, "raise max_unavailable")
	}

	if last := len(ways) - 1; last > 0 {
		ways[last] = "or " + ways[last]
	}

	remedy = strings.Join(ways, ", ") + "."

	return spent, strings.ToUpper(remedy[:1]) + remedy[1:]
}

// SparesOne tells whether one node more may go out of service without the last one
// that takes pods: only then is a larger max_unavailable safe. Those that a run of
// ours has cordoned come back by themselves.
func SparesOne(snapshot cluster.Snapshot) bool {
	takes := 0

	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; !node.Gone && node.Kube != nil && node.Kube.Ready && takesPods(node) {
			takes++
		}
	}

	return takes > 1
}

// takesPods tells whether pods can be scheduled on the node, now or when a run of
// ours is done with it.
func takesPods(node *cluster.Node) bool {
	return !node.Kube.ExcludesWorkloads && (!node.Kube.Unschedulable || node.Kube.CordonedBy != "")
}

// checkRoom refuses a roll that would take the only node out of service that takes
// pods, where somebody has cordoned the others: its pods would have nowhere to go.
// Where no other could take any, as in a cluster of one worker, that cannot be helped.
func (p *planner) checkRoom() {
	if !p.policy.Drain.Enabled {
		return
	}

	var (
		only     *subject
		cordoned []string
	)

	for i := range p.nodes {
		node := &p.nodes[i]

		switch {
		case node.Kube == nil, node.Kube.ExcludesWorkloads:
		case !takesPods(node.Node):
			// To lift the cordon of one that is not Ready would not help.
			if node.Kube.Ready {
				cordoned = append(cordoned, node.Name)
			}
		case only != nil:
			return
		default:
			only = node
		}
	}

	if only == nil || !only.Kube.Ready || len(cordoned) == 0 || only.moves == 0 || only.unfinished() {
		return
	}

	p.find(cluster.Finding{
		Check: cluster.CheckDrain, Severity: cluster.Observed, Node: only.Name,
		Found:  "it is the only node that takes pods, and while it is upgraded they would have nowhere to go; cordoned by somebody else: " + listed(cordoned),
		Remedy: "Take a cordon away (kubectl uncordon), or add a node that takes pods.",
	})
}
