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

// roomOn tells what room a node has. Busy are those that a turn of this run is
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

// guardRoom keeps a node in service while other turns of this run have every
// node that could take its pods: these would have nowhere to go. Where there is
// no such node anyway, as in a cluster of one worker, waiting is of no use.
func guardRoom(s situation) []cluster.Finding {
	node, found := s.Node(s.step.Node)
	if !s.cordoning || !found || !node.Available() {
		// A node that takes no pods itself takes no room away.
		return nil
	}

	var later []string

	for _, other := range s.Managed() {
		if other.Name == node.Name || other.Kube == nil {
			continue
		}

		_, busy := s.others[other.Name]

		switch roomOn(*other.Kube, s.run, busy) {
		case roomNow:
			return nil
		case roomLater:
			later = append(later, other.Name)
		case noRoom:
		}
	}

	if len(later) == 0 {
		return nil
	}

	slices.Sort(later)

	return unsafe(checkRoom, node.Name,
		fmt.Sprintf("its pods could only go to nodes that this run has taken out of service: %s", strings.Join(later, ", ")),
		"They come back by themselves; one more node that takes pods would let them move at the same time.", nil)
}
