// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkBudget is the name of the check of how many workers are unavailable, and
// attributeBudget where their number is configured.
const (
	checkBudget     = cluster.CheckNodesReady
	attributeBudget = "max_unavailable"
)

// errNoRoom ends a turn that has not touched its node, because workers of other
// turns use up what may be unavailable.
var errNoRoom = errors.New("other workers of this run have to come back first")

// guardBudget keeps no more workers unavailable than the policy allows, the
// step's own node included. A node that is unavailable without the doing of
// this run costs nothing.
func guardBudget(s situation) []cluster.Finding {
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

		// Where two turns would wait for each other, the later one waits: its
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

	findings := unsafe(checkBudget, away[0],
		fmt.Sprintf("max_unavailable = %s of %d workers is %d, and these are not Ready or cordoned: %s", s.share, len(workers), most, strings.Join(away, ", ")),
		"Bring them back (kubectl uncordon, kubectl describe node) or raise max_unavailable.", nil)
	findings[0].Attribute = attributeBudget

	return findings
}

// noPlaceError is an [errNoRoom] for the lack of nodes to which the pods could
// go.
type noPlaceError struct{ why string }

func (n *noPlaceError) Error() string { return n.why }

func (n *noPlaceError) Unwrap() error { return errNoRoom }

// standsBack is what a turn ends with that is crowded out for these reasons.
func standsBack(findings []cluster.Finding) error {
	if slices.ContainsFunc(findings, func(f cluster.Finding) bool { return f.Check != checkRoom && f.Check != cluster.CheckGates }) {
		return errNoRoom
	}

	return &noPlaceError{why: findings[0].Found}
}

// crowded tells whether nothing but other turns of this run keeps one that has
// not touched its node yet from going on: the run may then have a better use
// for it than to wait here.
func (t *turn) crowded(findings []cluster.Finding) bool {
	if t.armed || t.cordoned || len(t.traffic.others(t.step.Node)) == 0 {
		return false
	}

	// A gate that is closed as well is waited for when there is room.
	rest := slices.DeleteFunc(slices.Clone(findings), func(f cluster.Finding) bool { return f.Check == cluster.CheckGates })

	return len(rest) > 0 && !slices.ContainsFunc(rest, func(f cluster.Finding) bool { return f.Attribute != attributeBudget && f.Check != checkRoom })
}
