// SPDX-License-Identifier: MPL-2.0

package rule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// CheckRoom is the name of the check of whether the pods of a node have somewhere to go.
const CheckRoom = "room-for-pods"

// Room is whether a node can take the pods of another one.
type Room int

const (
	// NoRoom: it takes no pods, whatever this run does.
	NoRoom Room = iota
	// RoomLater: it takes pods once this run is done with it.
	RoomLater
	// RoomNow: it takes pods.
	RoomNow
)

// RoomOn returns whether a node can take pods. Busy is true if an upgrade of this run is taking it out of
// service.
func RoomOn(node cluster.KubeNode, run string, busy bool) Room {
	switch {
	case node.ExcludesWorkloads, node.Unschedulable && node.CordonedBy == "":
		return NoRoom
	case busy:
		return RoomLater
	case !node.Ready:
		return NoRoom
	case !node.Unschedulable:
		return RoomNow
	case node.CordonedBy == run:
		return RoomLater
	default:
		return NoRoom
	}
}

// roomForPods keeps a node in service while other upgrades of this run occupy every node that could take its
// pods, which would have nowhere to go. It also keeps the last node that takes pods in service while another
// upgrade drains a node, whether or not that one takes pods afterwards. If there is no other such node anyway, as
// in a cluster with one worker, it does not wait.
func roomForPods(s View) []cluster.Finding {
	node, found := s.Node(s.Step.Node)
	if !s.Cordoning || !found || node.Kube == nil || !node.Kube.Ready {
		// Moving a node that is not Ready may bring it back.
		return nil
	}

	var later, emptied []string

	for other := range s.EachManaged {
		if other.Name == node.Name || other.Kube == nil {
			continue
		}

		_, busy := s.Others[other.Name]

		switch room := RoomOn(*other.Kube, s.Run, busy); {
		case room == RoomNow:
			return nil
		case room == RoomLater:
			later = append(later, other.Name)
		case busy && !other.Kube.ExcludesWorkloads:
			emptied = append(emptied, other.Name)
		}
	}

	slices.Sort(later)
	slices.Sort(emptied)

	switch {
	case len(later) > 0:
		return NewFinding(CheckRoom, node.Name,
			fmt.Sprintf("its pods could only go to nodes that this run has taken out of service: %s", strings.Join(later, ", ")),
			"They come back by themselves; one more node that takes pods would let them move at the same time.", nil)
	case len(emptied) > 0 && node.Available():
		return NewFinding(CheckRoom, node.Name,
			fmt.Sprintf("it is the last node that takes pods, and this run is at work on others that somebody else has cordoned: %s", strings.Join(emptied, ", ")),
			"Take their cordons away (kubectl uncordon), so that its pods have somewhere to go.", nil)
	default:
		return nil
	}
}
