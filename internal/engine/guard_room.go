// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// checkRoom is the name of the check of where the pods of a node could go.
const checkRoom = "room-for-pods"

// room is what a node has for the pods of another one.
type room int

const (
	// noRoom: it takes no pods, whatever this run does.
	noRoom room = iota
	// roomLater: it takes pods when this run is done with it.
	roomLater
	// roomNow: it takes pods.
	roomNow
)

// roomOn tells what room a node has. Busy are those that an upgrade of this run is
// taking out of service.
func roomOn(node cluster.KubeNode, run string, busy bool) room {
	switch {
	case node.ExcludesWorkloads, node.Unschedulable && node.CordonedBy == "":
		return noRoom
	case busy:
		return roomLater
	case !node.Ready:
		return noRoom
	case !node.Unschedulable:
		return roomNow
	case node.CordonedBy == run:
		return roomLater
	default:
		return noRoom
	}
}

// guardRoom keeps a node in service while other upgrades of this run have every
// node that could take its pods: these would have nowhere to go. So does it with the
// last one that takes pods while another upgrade empties a node, whether that one takes
// any afterwards or not. Where there is no such node anyway, as in a cluster of one
// worker, waiting is of no use.
func guardRoom(s guardInput) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !s.cordoning || !found || node.Kube == nil || !node.Kube.Ready {
		// To move a node that is not Ready may be what brings it back.
		return nil
	}

	var later, emptied []string

	for _, other := range s.Managed() {
		if other.Name == node.Name || other.Kube == nil {
			continue
		}

		_, busy := s.others[other.Name]

		switch room := roomOn(*other.Kube, s.run, busy); {
		case room == roomNow:
			return nil
		case room == roomLater:
			later = append(later, other.Name)
		case busy && !other.Kube.ExcludesWorkloads:
			emptied = append(emptied, other.Name)
		}
	}

	slices.Sort(later)
	slices.Sort(emptied)

	switch {
	case len(later) > 0:
		return newFinding(checkRoom, node.Name,
			fmt.Sprintf("its pods could only go to nodes that this run has taken out of service: %s", strings.Join(later, ", ")),
			"They come back by themselves; one more node that takes pods would let them move at the same time.", nil)
	case len(emptied) > 0 && node.Available():
		return newFinding(checkRoom, node.Name,
			fmt.Sprintf("it is the last node that takes pods, and this run is at work on others that somebody else has cordoned: %s", strings.Join(emptied, ", ")),
			"Take their cordons away (kubectl uncordon), so that its pods have somewhere to go.", nil)
	default:
		return nil
	}
}
