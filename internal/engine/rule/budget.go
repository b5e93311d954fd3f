// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// CheckBudget is the name of the check of how many workers are unavailable; attributeBudget and attributePools
// are the attributes that configure their number.
const (
	CheckBudget     = cluster.CheckNodesReady
	attributeBudget = "max_unavailable"
	attributePools  = "pools"
)

// budget refuses to make more workers unavailable than the policy allows, of all workers and of the pool,
// including the step's own node. A node that is not Ready, or that somebody else cordoned, costs nothing.
func budget(s View) []cluster.Finding {
	node, found := s.Node(s.Step.Node)
	if !found || node.Role != cluster.Worker || node.Kube == nil {
		return nil
	}

	if !node.Kube.Ready || node.Kube.Unschedulable && node.Kube.CordonedBy == "" {
		return nil
	}

	away := s.awayBeside(node.Name)

	if s.leftCordoned(node.Name) {
		// If nodes that earlier runs left cordoned waited for one another, none would return.
		away = slices.DeleteFunc(away, s.leftCordoned)
	}

	for _, limit := range plan.Bounds(s.Observation, s.Policy) {
		taken := slices.DeleteFunc(slices.Clone(away), func(name string) bool { return !limit.Counts(name) })
		if !limit.Covers(node.Name) || len(taken) < limit.Budget {
			continue
		}

		raised, attribute, within := "max_unavailable", attributeBudget, []cluster.Within(nil)
		if limit.Pool() != "" {
			raised = "max_unavailable of the pool " + limit.Pool()
			attribute, within = plan.PoolAt(limit.Pool())
		}

		findings := NewFinding(CheckBudget, taken[0],
			fmt.Sprintf("%s is %d, and these are not Ready or cordoned: %s", limit.Says, limit.Budget, strings.Join(taken, ", ")), BudgetRemedy(s.Observation, raised), nil)
		findings[0].Attribute, findings[0].Within = attribute, within

		return findings
	}

	return nil
}

// awayBeside returns the workers other than the node that are unavailable, or will be before it is, sorted.
func (s View) awayBeside(node string) []string {
	var away []string

	for other := range s.EachWorker {
		if other.Name == node {
			continue
		}

		// If two upgrades would wait for each other, the later one waits: its node does not count for the earlier
		// one.
		earlier, busy := s.Others[other.Name]
		if busy && earlier || !busy && !other.Available() {
			away = append(away, other.Name)
		}
	}

	slices.Sort(away)

	return away
}

// leftCordoned reports whether an earlier run left the node cordoned, and this one has not begun it.
func (s View) leftCordoned(name string) bool {
	node, found := s.Node(name)
	_, busy := s.Others[name]

	return found && !busy && node.Kube != nil && node.Kube.Unschedulable && node.Kube.CordonedBy != "" && node.Kube.CordonedBy != s.Run
}

// BudgetRemedy says what to do about a budget that is used up.
func BudgetRemedy(observed cluster.Observation, raised string) string {
	if !plan.SparesOne(observed) {
		return "Bring them back (kubectl uncordon, kubectl describe node)."
	}

	return "Bring them back (kubectl uncordon, kubectl describe node) or raise " + raised + "."
}

// AboutBudget reports whether the finding is about the number of workers that may be unavailable.
func AboutBudget(f cluster.Finding) bool {
	return f.Check == CheckBudget && (f.Attribute == attributeBudget || f.Attribute == attributePools)
}

// kubelets refuses the step if too many workers whose kubelets run the new version are not Ready: as many as may
// restart at a time, of all workers or of the pool, or a single canary if the step's node is none. A version with
// which kubelets do not come up must not spread, in this run or in the next.
func kubelets(s View) []cluster.Finding {
	if s.Step.Component != cluster.Kubelet || s.Step.Role != cluster.Worker || s.KubernetesError != nil {
		return nil
	}

	var broken []string

	for node := range s.EachWorker {
		if node.Name == s.Step.Node || node.Kube == nil || node.Kube.Ready || !node.Kube.Kubelet.Equal(s.Step.To) || s.Policy.Holds(node.Name) {
			continue
		}

		broken = append(broken, node.Name)

		if slices.Contains(s.Policy.Canaries(), node.Name) && !s.Step.Canary {
			return NewFinding(CheckKubelets, node.Name, fmt.Sprintf("this canary is not Ready with its kubelet %s: %s", s.Step.To, node.Kube.ReadyReason),
				"Look at it (kubectl describe node, talosctl logs kubelet).", nil)
		}
	}

	for _, limit := range plan.KubeletBounds(s.Observation, s.Policy) {
		taken := slices.DeleteFunc(slices.Clone(broken), func(name string) bool { return !limit.Covers(name) })
		if !limit.Covers(s.Step.Node) || len(taken) < limit.Budget {
			continue
		}

		if limit.Pool() == "" {
			return brokenKubelets(s.Step, taken, limit.Budget, "workers", "kubernetes.max_unavailable_kubelets")
		}

		return brokenKubelets(s.Step, taken, limit.Budget, "workers of the pool "+limit.Pool(), "max_unavailable of that pool")
	}

	return nil
}

// brokenKubelets returns the finding that as many kubelets did not come up as may restart at a time. Workers
// names the workers that count, and raised the attribute to raise.
func brokenKubelets(step plan.Step, broken []string, budget int, workers, raised string) []cluster.Finding {
	return NewFinding(CheckKubelets, broken[0],
		fmt.Sprintf("%d of at most %d %s are not Ready with their kubelets %s: %s", len(broken), budget, workers, step.To, strings.Join(broken, ", ")),
		"Look at them (kubectl describe node, talosctl logs kubelet), or raise "+raised+".", nil)
}
