// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
)

// checkBudget is the name of the check of how many workers are unavailable, and
// attributeBudget where their number is configured.
const (
	checkBudget     = cluster.CheckNodesReady
	attributeBudget = "max_unavailable"
)

// errYield ends an upgrade that gives way, because workers of other upgrades use up what
// may be unavailable. It leaves its node as it found it.
var errYield = errors.New("other workers of this run have to come back first")

// guardBudget keeps no more workers unavailable than the policy allows, the
// step's own node included. A node that is unavailable without the doing of
// this run costs nothing.
func guardBudget(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !found || node.Role != cluster.Worker || node.Kube == nil {
		return nil
	}

	if !node.Kube.Ready || node.Kube.Unschedulable && node.Kube.CordonedBy != s.run {
		return nil
	}

	workers := s.Workers()
	most := s.share.Of(len(workers))

	var away []string

	for _, other := range workers {
		if other.Name == node.Name {
			continue
		}

		// Where two upgrades would wait for each other, the later one waits: its
		// node does not count for the earlier one.
		earlier, busy := s.others[other.Name]
		if busy && earlier || !busy && !other.Available() {
			away = append(away, other.Name)
		}
	}

	if len(away) < most {
		return nil
	}

	slices.Sort(away)

	findings := newFinding(checkBudget, away[0],
		fmt.Sprintf("max_unavailable = %s of %d workers is %d, and these are not Ready or cordoned: %s", s.share, len(workers), most, strings.Join(away, ", ")),
		budgetRemedy(s.Snapshot), nil)
	findings[0].Attribute = attributeBudget

	return findings
}

// budgetRemedy is what to do about a budget that is spent.
func budgetRemedy(snapshot cluster.Snapshot) string {
	if !plan.SparesOne(snapshot) {
		return "Bring them back (kubectl uncordon, kubectl describe node)."
	}

	return "Bring them back (kubectl uncordon, kubectl describe node) or raise max_unavailable."
}

// noPlaceError is an [errNoRoom] for the lack of nodes to which the pods could
// go.
type noPlaceError struct{ why string }

func (n *noPlaceError) Error() string { return n.why }

func (n *noPlaceError) Unwrap() error { return errYield }

// waitsError is an [errNoRoom] for nodes that were moved before and are not as
// they have to be.
type waitsError struct{ why string }

func (w *waitsError) Error() string { return w.why }

func (w *waitsError) Unwrap() error { return errYield }

// aboutMoved tells whether the finding is about a node that was moved before.
func aboutMoved(f cluster.Finding) bool {
	return f.Check == cluster.CheckCanary || f.Check == checkSettle
}

// aboutBudget tells whether the finding is about the number of those that may be
// unavailable.
func aboutBudget(f cluster.Finding) bool { return f.Attribute == attributeBudget }

// yieldTo is what an upgrade ends with that stands back for these reasons.
func yieldTo(findings []cluster.Finding) error {
	if index := slices.IndexFunc(findings, aboutMoved); index >= 0 {
		return &waitsError{why: findings[index].String()}
	}

	if slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != checkRoom && f.Check != cluster.CheckGates }) {
		return errYield
	}

	return &noPlaceError{why: findings[0].Found}
}

// yields tells whether the upgrade ends here without having done anything to its
// node, because the run has a better use for the time than to wait with it: nothing
// is wrong but that other upgrades of this run are in the way, or that a node which was
// moved before has to become well first. One that has cordoned its node, and nothing
// more, gives it back only to the budget: others used that up meanwhile.
func (u *nodeUpgrade) yields(findings []cluster.Finding, cordoning bool) bool {
	beside := len(u.run.coordinator.others(u.step.Node)) > 0

	// A gate that is closed as well is waited for when there is room.
	rest := slices.DeleteFunc(slices.Clone(findings), func(f cluster.Finding) bool { return f.Check == cluster.CheckGates })

	if u.mayHaveInstalled || u.entry.Attempt > 1 || len(rest) == 0 {
		return false
	}

	return !slices.ContainsFunc(rest, func(f cluster.Finding) bool {
		switch {
		case aboutBudget(f):
			return !beside
		case f.Check == checkRoom:
			return !beside || u.cordoned
		case aboutMoved(f):
			return u.touched(cordoning)
		default:
			return true
		}
	})
}
