// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// record is what the events of the upgrades show about what a cluster can lose.
type record struct {
	// mostOut is how many nodes were out of service at a time, leastUp how many members of etcd were up, both at
	// worst.
	mostOut, leastUp int
	// cordoned counts control planes, unsafe those of them that were cordoned while a
	// member of etcd was down, or had not been asked since the last node was done.
	cordoned, unsafe int
	// refused counts evictions that a budget did not allow.
	evicted, refused, deleted int
	// overwritten counts installs over the system that ran.
	installs, overwritten int
	// unleased counts what was done to nodes without the lease.
	unleased int
	// fellBack are the nodes that fell back, insisted counts installs after that in the
	// same apply.
	fellBack []string
	insisted int
	stopped  bool
}

// before counts an event before the node has followed it.
func (r *record) before(s *story, node *character, event history.Event) {
	detail := event.Detail
	ours := detail["by"] == "client" || detail["by"] == "legacy"

	switch event.Kind {
	case history.KindCordon:
		if detail["unschedulable"] == "true" && node.role != "worker" {
			r.cordoned++

			if s.membersUp() < s.members() || len(s.asked) < s.members() {
				r.unsafe++
			}
		}

		if detail["unschedulable"] != "true" {
			clear(s.asked)
		}
	case history.KindRead:
		if detail["what"] == "etcd" {
			s.asked[event.Node] = true
		}
	case history.KindEvict:
		switch detail["outcome"] {
		case "evicted":
			r.evicted++
		case "blocked":
			r.refused++
		}
	case history.KindDelete:
		if ours {
			r.deleted++
		}
	case history.KindInstall:
		r.installs++

		if detail["slot"] == node.slot {
			r.overwritten++
		}

		if r.stopped {
			r.insisted++
		}
	case history.KindBoot:
		if detail["fallback"] == "true" {
			r.fellBack, r.stopped = append(r.fellBack, event.Node), true
		}
	}

	if ours && !s.applying && slices.Contains([]history.Kind{history.KindCordon, history.KindInstall, history.KindDown}, event.Kind) {
		r.unleased++
	}
}

// after counts the nodes that are out of service, once a node has followed an event.
func (r *record) after(s *story) {
	if !s.applying {
		return
	}

	out := 0

	for _, node := range s.nodes {
		if node.out() {
			out++
		}
	}

	r.leastUp = min(r.leastUp, s.membersUp())
	r.mostOut = max(r.mostOut, out)
}

// members returns the number of etcd members.
func (s *story) members() int { return s.count(func(*character) bool { return true }) }

func (s *story) membersUp() int { return s.count(func(c *character) bool { return !c.etcdDown }) }

// count counts control planes.
func (s *story) count(matches func(*character) bool) int {
	count := 0

	for _, node := range s.nodes {
		if node.role != "worker" && matches(node) {
			count++
		}
	}

	return count
}

// protected returns the record in words: a subject and what was seen of it.
func (s *story) protected() []entry {
	r, quorum := s.kept, s.members()/2+1

	say := func(subject string, held bool, fine, broken string) entry {
		if !held {
			return entry{node: subject, what: broken, mood: bad}
		}

		return entry{node: subject, what: fine, mood: good}
	}

	lines := []entry{
		say("availability", r.mostOut <= 1,
			fmt.Sprintf("never more than %d of %d nodes out of service: the next one waits until this one is Ready again", r.mostOut, len(s.nodes)),
			fmt.Sprintf("%d of %d nodes were out of service at a time", r.mostOut, len(s.nodes))),
		say("etcd quorum", r.unsafe == 0 && r.leastUp >= quorum,
			fmt.Sprintf("all %d members asked and healthy before each control plane; never fewer than %d up, quorum is %d", s.members(), r.leastUp, quorum),
			fmt.Sprintf("%d of %s of a control plane without all members asked and healthy; %d of %d up at the least, and quorum is %d",
				r.unsafe, several(r.cordoned, "cordon"), r.leastUp, s.members(), quorum)),
		say("workloads", r.deleted == 0,
			fmt.Sprintf("%s evicted, none deleted; %s refused by a PodDisruptionBudget and tried again",
				several(r.evicted, "pod"), several(r.refused, "eviction")),
			fmt.Sprintf("%s deleted without eviction", several(r.deleted, "pod"))),
		say("a way back", r.overwritten == 0,
			fmt.Sprintf("%s, each into the boot slot that was not running: every node can still boot %s",
				several(r.installs, "install"), strings.Join(s.versionsBefore(), ", ")),
			fmt.Sprintf("%s over the system that ran", several(r.overwritten, "install"))),
		say("one run", r.unleased == 0,
			"no node was touched without the Lease kube-system/talosupgrade, which keeps other runs out",
			fmt.Sprintf("without the Lease kube-system/talosupgrade: %d of the cordons, installs and reboots", r.unleased)),
	}

	if len(r.fellBack) > 0 {
		fell := strings.Join(r.fellBack, ", ")

		lines = append(lines, say("fallback", r.insisted == 0,
			"after "+fell+" fell back, nothing was installed on any node until another try was allowed",
			fmt.Sprintf("%s after %s fell back, before anybody allowed another try", several(r.insisted, "install"), fell)))
	}

	return lines
}

// versionsBefore returns what the nodes ran when they were introduced.
func (s *story) versionsBefore() []string {
	var versions []string

	for _, node := range s.nodes {
		versions = append(versions, node.before)
	}

	slices.Sort(versions)

	return slices.Compact(versions)
}
