// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// entry is one line of the story of an upgrade.
type entry struct {
	// sim is the simulated time in seconds since the upgrade began.
	sim  float64
	node string
	what string
	mood mood
	// overview tells that a node's state changed with it.
	overview bool
}

// String is "03:12  worker-0  cordoned".
func (e entry) String() string {
	return fmt.Sprintf("%s  %-9s %s", clock(e.sim), e.node, e.what)
}

// clock is seconds as mm:ss.
func clock(seconds float64) string {
	whole := int(seconds)

	return fmt.Sprintf("%02d:%02d", whole/60, whole%60)
}

// story turns events of the simulator into lines for people. It is a function
// of the events alone.
type story struct {
	target string
	nodes  map[string]*character
	// cast is the order in which the nodes were introduced.
	cast []string
	// upgrade is false until the lease is taken, which happens at begun: what
	// happens before that is not told.
	upgrade bool
	begun   float64
}

func newStory(target string) *story { return &story{target: target, nodes: map[string]*character{}} }

// tell follows one event and returns what is worth a line.
func (s *story) tell(event history.Event) []entry {
	if event.Kind == history.KindNode {
		s.introduce(event)

		return nil
	}

	if event.Node == "" {
		return s.chorus(event)
	}

	node, known := s.nodes[event.Node]
	if !known {
		return nil
	}

	before := node.state(s.target)
	entries := node.act(event)

	if !s.upgrade {
		return nil
	}

	for index := range entries {
		entries[index].node = event.Node
		entries[index].sim -= s.begun
	}

	if len(entries) > 0 && node.state(s.target) != before {
		entries[len(entries)-1].overview = true
	}

	return entries
}

func (s *story) introduce(event history.Event) {
	s.nodes[event.Node] = &character{role: event.Detail["role"], before: event.Detail["talos"], talos: event.Detail["talos"], ready: true}
	s.cast = append(s.cast, event.Node)
}

// chorus is what happens to the cluster as a whole.
func (s *story) chorus(event history.Event) []entry {
	line := func(as mood, format string, args ...any) []entry {
		return []entry{{sim: event.Sim - s.begun, node: "cluster", what: fmt.Sprintf(format, args...), mood: as}}
	}

	switch {
	case event.Kind == history.KindLease && event.Detail["action"] == "acquire":
		if !s.upgrade {
			s.upgrade, s.begun = true, event.Sim
		}

		return line(quiet, "lease taken: nobody else upgrades now")
	case event.Kind == history.KindLease && event.Detail["action"] == "release":
		return line(quiet, "lease given back")
	case event.Kind == history.KindAnnotation && event.Detail["key"] == "talos-progress" && s.upgrade && event.Detail["value"] != "":
		return line(quiet, "talos-progress is %s", event.Detail["value"])
	case event.Kind == history.KindFault:
		text, as := fault(event.Detail)

		return line(as, "%s", text)
	case event.Kind == history.KindSnapshot && event.Detail["whole"] == "true":
		return line(good, "snapshot of etcd taken: %s bytes", event.Detail["bytes"])
	default:
		return nil
	}
}

// fault says that a scripted fault struck, or that it is over.
func fault(detail map[string]string) (string, mood) {
	text := strings.TrimSpace("fault: " + detail["step"] + " " + detail["effect"])
	if detail["outcome"] == "over" {
		return text + " is over", quiet
	}

	return text, bad
}

// overview is the state of every node on one line.
func (s *story) overview() string {
	states := make([]string, 0, len(s.cast))
	for _, name := range s.sorted() {
		states = append(states, name+" "+s.nodes[name].state(s.target))
	}

	return strings.Join(states, " | ")
}

// sorted is the cast, workers last.
func (s *story) sorted() []string {
	names := slices.Clone(s.cast)
	slices.Sort(names)

	return names
}
