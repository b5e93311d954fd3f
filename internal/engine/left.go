// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// describeLeftovers completes what a failure says about the cluster, once no upgrade is going
// on any more. What the failure says by itself is about its own node. The last
// observation is nil where there is none. Where no upgrade began, a failure that
// says anything has said it all.
func (r *run) describeLeftovers(err error, last *cluster.Snapshot, moved bool) {
	var failure *Failure
	if !errors.As(err, &failure) || !moved && failure.State != "" {
		return
	}

	lost := errors.Is(err, ErrLeaseLost)
	if lost {
		// What is observed now is what the other run makes of it.
		last = nil
	}

	journal, _ := r.journal.read()
	if last != nil && last.Journal != nil {
		journal = *last.Journal
	}

	var parts []string

	if failure.State != "" {
		parts = append(parts, failure.State)
	}

	unfinished := unfinishedIn(journal, failure.Node, last)
	if len(unfinished) > 0 {
		parts = append(parts, unfinishedText(unfinished))
	}

	others := "No node is being upgraded"
	if failure.Node != "" || len(unfinished) > 0 {
		others = "No other node is being upgraded"
	}

	if lost {
		others += " by this run"
	}

	parts = append(parts, others+serviceText(last, failure.Node, unfinished))

	if lost {
		parts = append(parts, "That is how it was when the lease was lost; this run has not looked since.")
	}

	failure.State = strings.Join(parts, " ")
}

// unfinishedIn are the nodes, other than the given one, that the journal holds
// to be in the middle of their upgrades. Where there is an observation, machines that
// have left the cluster are none of them.
func unfinishedIn(journal cluster.Journal, but string, last *cluster.Snapshot) []string {
	var nodes []string

	for key, entry := range journal.Entries {
		if entry.Open() && entry.Node != but && (last == nil || isThere(*last, journal, key)) {
			nodes = append(nodes, entry.Node)
		}
	}

	slices.Sort(nodes)

	return nodes
}

// isThere tells whether the machine that an entry is about is part of the cluster.
func isThere(snapshot cluster.Snapshot, journal cluster.Journal, key string) bool {
	return slices.ContainsFunc(snapshot.Nodes, func(node cluster.Node) bool {
		known, _, found := journal.Of(node)

		return found && known == key
	})
}

func unfinishedText(nodes []string) string {
	if len(nodes) == 1 {
		return nodes[0] + " is left in the middle of its upgrade and is recorded in the journal; the next run begins with it."
	}

	return strings.Join(nodes, ", ") + " are left in the middle of their upgrades and are recorded in the journal; the next run begins with them."
}

// serviceText says of the nodes that were not spoken of yet whether they are in
// service, where that is known. It ends the sentence.
func serviceText(last *cluster.Snapshot, node string, unfinished []string) string {
	if last == nil || last.KubernetesError != nil {
		return "."
	}

	var away []string

	for _, other := range last.Managed() {
		whole := other.Available() && other.Machine != nil
		if !whole && other.Name != node && !slices.Contains(unfinished, other.Name) {
			away = append(away, other.Name+" ("+awayText(other)+")")
		}
	}

	switch {
	case len(away) > 0:
		return ". Not in service: " + strings.Join(away, ", ") + "."
	case node != "" || len(unfinished) > 0:
		return "; all others are in service."
	default:
		return ", and every node is in service."
	}
}

// awayText is why a node is not in service.
func awayText(node cluster.Node) string {
	switch {
	case node.Kube == nil:
		return "no Node object"
	case !node.Kube.Ready && node.Kube.Unschedulable:
		return "not Ready and cordoned"
	case !node.Kube.Ready:
		return "not Ready"
	case node.Kube.Unschedulable:
		return "cordoned"
	default:
		return "its Talos API does not answer"
	}
}
