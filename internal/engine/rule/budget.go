// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// CheckBudget is the name of the check of how many workers are unavailable, and
// attributeBudget and attributePools where their number is configured.
const (
	CheckBudget     = cluster.CheckNodesReady
	attributeBudget = "max_unavailable"
	attributePools  = "pools"
)

// budget keeps no more workers unavailable than the policy allows, of all of them
// and of those in the pool, the step's own node included. A node that is unavailable
// without the doing of this run costs nothing.
func budget(s View) []cluster.Finding {
	node, found := s.Node(s.Step.Node)
	if !found || node.Role != cluster.Worker || node.Kube == nil {
		return nil
	}

	if !node.Kube.Ready || node.Kube.Unschedulable && node.Kube.CordonedBy != s.Run {
		return nil
	}

	workers := s.Workers()

	away, spent := s.awayBeside(node.Name), s.Budget(s.Policy.MaxUnavailable)
	if len(away) >= spent {
		return budgetFinding(s.Observation, away, fmt.Sprintf("max_unavailable = %s of %d workers is %d", s.Policy.MaxUnavailable, len(workers), spent), "max_unavailable")
	}

	for _, pool := range s.Policy.Selected.Pools {
		inPool := slices.DeleteFunc(slices.Clone(away), func(name string) bool { return !pool.Counts(name) })
		if !pool.Has(node.Name) || len(inPool) < pool.Budget() {
			continue
		}

		findings := budgetFinding(s.Observation, inPool, fmt.Sprintf("%s is %d", plan.PoolText(pool), pool.Budget()), "max_unavailable of the pool "+pool.Name)
		findings[0].Attribute, findings[0].Within = plan.PoolAt(pool.Name)

		return findings
	}

	return nil
}

// awayBeside are the workers that are unavailable beside the node, or will be before it
// is, sorted.
func (s View) awayBeside(node string) []string {
	var away []string

	for _, other := range s.Workers() {
		if other.Name == node {
			continue
		}

		// Where two upgrades would wait for each other, the later one waits: its
		// node does not count for the earlier one.
		earlier, busy := s.Others[other.Name]
		if busy && earlier || !busy && !other.Available() {
			away = append(away, other.Name)
		}
	}

	slices.Sort(away)

	return away
}

// budgetFinding says that a budget, with its number, is taken up by the workers that
// are away. Raised is what would have to be raised.
func budgetFinding(observed cluster.Observation, away []string, budget, raised string) []cluster.Finding {
	findings := NewFinding(CheckBudget, away[0],
		fmt.Sprintf("%s, and these are not Ready or cordoned: %s", budget, strings.Join(away, ", ")), BudgetRemedy(observed, raised), nil)
	findings[0].Attribute = attributeBudget

	return findings
}

// BudgetRemedy is what to do about a budget that is spent.
func BudgetRemedy(observed cluster.Observation, raised string) string {
	if !plan.SparesOne(observed) {
		return "Bring them back (kubectl uncordon, kubectl describe node)."
	}

	return "Bring them back (kubectl uncordon, kubectl describe node) or raise " + raised + "."
}

// AboutBudget tells whether the finding is about the number of those that may be
// unavailable.
func AboutBudget(f cluster.Finding) bool {
	return f.Check == CheckBudget && (f.Attribute == attributeBudget || f.Attribute == attributePools)
}

// kubelets counts the workers whose kubelets run the new version and whose
// nodes are not Ready with it: as many as may restart at a time, of all or of the pool,
// are enough to stop, and so is one canary. A kubelet that does not come up with a version must
// not be followed by others, in this run or in the next.
func kubelets(s View) []cluster.Finding {
	if s.Step.Component != cluster.Kubelet || s.Step.Role != cluster.Worker || s.KubernetesError != nil {
		return nil
	}

	var broken []string

	workers := s.Workers()
	most := s.Budget(s.Policy.Kubernetes.MaxUnavailableKubelets)

	for _, node := range workers {
		if node.Name == s.Step.Node || node.Kube == nil || node.Kube.Ready || !node.Kube.Kubelet.Equal(s.Step.To) || s.Policy.Holds(node.Name) {
			continue
		}

		broken = append(broken, node.Name)

		if slices.Contains(s.Policy.Canaries(), node.Name) && !s.Step.Canary {
			return NewFinding(CheckKubelets, node.Name, fmt.Sprintf("this canary is not Ready with its kubelet %s: %s", s.Step.To, node.Kube.ReadyReason),
				"Look at it (kubectl describe node, talosctl logs kubelet).", nil)
		}
	}

	if len(broken) >= most {
		return brokenKubelets(s.Step, broken, most, "workers", "kubernetes.max_unavailable_kubelets")
	}

	for _, pool := range s.Policy.Selected.Pools {
		inPool := slices.DeleteFunc(slices.Clone(broken), func(name string) bool { return !pool.Has(name) })
		if pool.Has(s.Step.Node) && len(inPool) >= pool.Budget() {
			return brokenKubelets(s.Step, inPool, pool.Budget(), "workers of the pool "+pool.Name, "max_unavailable of that pool")
		}
	}

	return nil
}

// brokenKubelets says that as many kubelets did not come up as may restart at a time, of
// the workers that are named so. Raised is what would have to be raised.
func brokenKubelets(step plan.Step, broken []string, budget int, workers, raised string) []cluster.Finding {
	return NewFinding(CheckKubelets, broken[0],
		fmt.Sprintf("%d of at most %d %s are not Ready with their kubelets %s: %s", len(broken), budget, workers, step.To, strings.Join(broken, ", ")),
		"Look at them (kubectl describe node, talosctl logs kubelet), or raise "+raised+".", nil)
}
