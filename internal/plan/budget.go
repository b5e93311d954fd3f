// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkBudget refuses a roll that would stand still because the budget of
// unavailable workers is spent by some that are not brought back in time: not
// by the roll at all, or only after others had their turn.
func (p *planner) checkBudget() {
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

			return
		}
	}
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

	ways = append(ways, "or raise max_unavailable.")
	remedy = strings.Join(ways, ", ")

	return spent, strings.ToUpper(remedy[:1]) + remedy[1:]
}
