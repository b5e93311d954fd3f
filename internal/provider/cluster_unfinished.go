// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// undone are the nodes of which the journal says that an upgrade of them did
// not get to its end, by how far it got.
type undone map[cluster.Phase][]string

// unfinished are the nodes in the journal. A machine that left the cluster counts
// no more, and a node that runs its old system again has had its decision where it
// is held, runs the new system after all, or is to run another one; but an armed
// one stays armed, whatever is wanted.
func unfinished(snapshot cluster.Snapshot, held map[string]bool, wanted types.String) undone {
	left := undone{}

	if snapshot.Journal == nil {
		return left
	}

	for _, node := range snapshot.Managed() {
		_, entry, found := snapshot.Journal.Of(node)
		if found && (entry.Open() || !held[node.Name] && awaited(entry, node, wanted)) {
			left[entry.Phase] = append(left[entry.Phase], node.Name)
		}
	}

	return left
}

// awaited tells whether a node that runs its old system again is still to run what
// failed on it: as what is desired, or on the way to a later release line.
func awaited(entry cluster.Entry, node cluster.Node, wanted types.String) bool {
	desired, err := version.Parse(wanted.ValueString())
	if err != nil || !entry.Target.IsZero() && !desired.Equal(entry.Target) && desired.Minor().Compare(entry.Target.Minor()) <= 0 {
		return false
	}

	// A schematic may be what failed: then the version says nothing.
	return node.Machine == nil || entry.Previous.Equal(entry.Target) || node.Machine.Talos.Less(entry.Target)
}

// open are the nodes that may be armed, by name.
func (l undone) open() []string {
	return l.of(func(phase cluster.Phase) bool { return cluster.Entry{Phase: phase}.Open() })
}

// returned are the nodes that run their old system again, by name.
func (l undone) returned() []string {
	return l.of(func(phase cluster.Phase) bool { return cluster.Entry{Phase: phase}.Returned() })
}

func (l undone) of(wanted func(cluster.Phase) bool) []string {
	var nodes []string

	for phase, names := range l {
		if wanted(phase) {
			nodes = append(nodes, names...)
		}
	}

	slices.Sort(nodes)

	return nodes
}

// message says what became of the nodes that a person has to decide about; and
// of the others, where there are none of those, what they are in the middle of.
func (l undone) message() string {
	var parts []string

	say := func(what, next string, wanted func(cluster.Phase) bool) {
		if nodes := l.of(wanted); len(nodes) > 0 {
			parts = append(parts, what+": "+strings.Join(nodes, ", ")+next)
		}
	}

	if len(l.returned()) > 0 {
		say("Fell back to the old system and waits for a decision", ".", func(phase cluster.Phase) bool { return phase == cluster.PhaseFallback })
		say("Was rolled back to the old system and waits for a decision", ".", func(phase cluster.Phase) bool { return phase == cluster.PhaseRolledBack })
	} else {
		say("In the middle of an upgrade", "; the next apply continues.", func(phase cluster.Phase) bool { return phase != cluster.PhaseRollingBack })
		say("In the middle of a rollback", "; the next apply continues.", func(phase cluster.Phase) bool { return phase == cluster.PhaseRollingBack })
	}

	return strings.Join(parts, " ")
}
