// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// entry is something that happened and is worth a line.
type entry struct {
	// node is empty if the entry concerns the cluster as a whole.
	node string
	// took is how long the node was out of service, as text; empty if that is not known.
	took string
	what string
	mood mood
}

// story turns events of the simulator into lines for people. It depends only on the events.
type story struct {
	target string
	nodes  map[string]*character
	// names is the order in which the nodes were introduced.
	names []string
	kept  record
	// asked are the members of etcd that were asked since the last node was done.
	asked map[string]bool
	// applying is true while the lease is held, which was acquired at begun: what happens without a lease is not
	// shown.
	applying bool
	begun    float64
	now      float64
	// moving is true once a node was cordoned since the lease was acquired.
	moving bool
}

func newStory(target string) *story {
	return &story{target: target, nodes: map[string]*character{}, asked: map[string]bool{}}
}

// tell follows one event and returns the entries about it.
func (s *story) tell(event history.Event) []entry {
	s.now = event.Sim

	switch node, known := s.nodes[event.Node]; {
	case event.Kind == history.KindNode:
		s.introduce(event)

		return nil
	case event.Node == "":
		return s.cluster(event)
	case !known:
		return nil
	default:
		entries := s.opening(event)
		s.kept.before(s, node, event)
		entries = append(entries, node.act(event)...)
		s.kept.after(s)

		if !s.applying {
			return nil
		}

		for index := range entries {
			if entries[index].mood != quiet {
				entries[index].node = event.Node
			}
		}

		return entries
	}
}

func (s *story) introduce(event history.Event) {
	s.nodes[event.Node] = &character{
		role: event.Detail["role"], before: event.Detail["talos"], talos: event.Detail["talos"], target: s.target, slot: "A", ready: true,
	}
	s.names = append(s.names, event.Node)
}

// opening returns what was prepared, when the first node of an apply is cordoned.
func (s *story) opening(event history.Event) []entry {
	if !s.applying || s.moving || event.Kind != history.KindCordon {
		return nil
	}

	s.moving = true

	return []entry{{
		what: "the Lease kube-system/talosupgrade is held: no other run interferes; " + s.pulled() + " have pulled the image",
		mood: quiet,
	}}
}

// pulled returns how many nodes have the image.
func (s *story) pulled() string {
	count := 0

	for _, node := range s.nodes {
		if node.pulled {
			count++
		}
	}

	return fmt.Sprintf("%d of %d nodes", count, len(s.nodes))
}

// cluster returns the entries about the cluster as a whole.
func (s *story) cluster(event history.Event) []entry {
	switch {
	case event.Kind == history.KindLease && event.Detail["action"] == "acquire":
		if s.begun == 0 {
			s.kept.leastUp = s.members()
		}

		s.applying, s.begun, s.moving, s.kept.stopped = true, event.Sim, false, false

		clear(s.asked)

		return nil
	case event.Kind == history.KindLease && event.Detail["action"] == "release":
		entries := s.unfinished()
		s.applying = false

		return append(entries, entry{what: "the Lease is released after " + short(event.Sim-s.begun), mood: quiet})
	case event.Kind == history.KindFault:
		return []entry{fault(event.Detail)}
	default:
		return nil
	}
}

// unfinished returns the nodes that the run leaves in their turn.
func (s *story) unfinished() []entry {
	var entries []entry

	for _, name := range s.sorted() {
		if node := s.nodes[name]; node.turn != nil {
			left := node.end(s.now)
			left.node, left.mood, left.what = name, bad, left.what+", still cordoned"
			entries = append(entries, left)
		}
	}

	return entries
}

// fault returns the entry of a scripted fault that struck or is over.
func fault(detail map[string]string) entry {
	what := detail["step"] + ", " + detail["effect"]
	if detail["step"] == "boot" && detail["effect"] == "fallback" {
		what = "the new system does not come up"
	}

	if detail["outcome"] == "over" {
		return entry{took: "-", what: "the planted fault is over: " + what, mood: busy}
	}

	return entry{took: "-", what: "the planted fault: " + what, mood: bad}
}

// status returns what happens now, on one line.
func (s *story) status() string {
	done, doing := 0, ""

	for _, name := range s.sorted() {
		switch node := s.nodes[name]; {
		case node.turn != nil:
			doing = name + " " + node.turn.doing
		case node.talos == s.target:
			done++
		}
	}

	switch {
	case doing != "":
	case !s.applying:
		doing = "reading the cluster"
	case !s.moving:
		doing = "pulling the image: " + s.pulled() + " have it"
	case done == len(s.nodes):
		doing = "looking at the cluster once more"
	default:
		doing = "looking at etcd and all nodes before the next one"
	}

	clock := 0
	if s.applying {
		clock = int(s.now - s.begun)
	}

	return fmt.Sprintf("[%d/%d] %02d:%02d  %s", done, len(s.nodes), clock/60, clock%60, doing)
}

// sorted returns the names of the nodes, workers last.
func (s *story) sorted() []string {
	names := slices.Clone(s.names)
	slices.Sort(names)

	return names
}

// short returns seconds as text, such as 6m58s.
func short(seconds float64) string {
	whole := int(seconds)
	if whole < 60 {
		return fmt.Sprintf("%ds", whole)
	}

	return fmt.Sprintf("%dm%02ds", whole/60, whole%60)
}

// several returns "1 pod" or "2 pods".
func several(count int, what string) string {
	if count == 1 {
		return "1 " + what
	}

	return fmt.Sprintf("%d %ss", count, what)
}
