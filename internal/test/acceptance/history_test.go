// SPDX-License-Identifier: MPL-2.0

package acceptance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// history returns all events so far.
func (s *simulated) history() []history.Event {
	s.t.Helper()

	// The verdict completes the history.
	s.verdict()

	var events []history.Event

	if err := sim.ReadHistory(s.Dir(), func(event history.Event) { events = append(events, event) }); err != nil {
		s.t.Fatal(err)
	}

	return events
}

// changes returns the events so far in which a client of ours changed something.
func (s *simulated) changes() []history.Event {
	s.t.Helper()

	return slices.DeleteFunc(s.history(), func(event history.Event) bool { return !changing(event) })
}

// installs returns the successful runs of installers so far, in order.
func (s *simulated) installs() []history.Event {
	s.t.Helper()

	return slices.DeleteFunc(s.history(), func(event history.Event) bool {
		return event.Kind != history.KindInstall || event.Detail["exit"] != "0"
	})
}

func changing(event history.Event) bool {
	switch event.Kind {
	case history.KindRPC:
		return event.Detail["mutating"] == "true"
	case history.KindEvict:
		return event.Detail["by"] == "client" && event.Detail["outcome"] != "dry-run"
	case history.KindCordon, history.KindDelete, history.KindLease, history.KindJournal, history.KindAnnotation, history.KindWrite:
		return event.Detail["by"] == "client"
	default:
		return false
	}
}

// unchanged fails the test if anything was changed.
func (s *simulated) unchanged() {
	s.t.Helper()

	for _, event := range s.changes() {
		s.t.Errorf("changed: %s %s %v", event.Kind, event.Node, event.Detail)
	}
}

// onlyOursSince fails the test unless there are changes after the first count, all of them to the objects that an
// upgrade leaves behind.
func (s *simulated) onlyOursSince(count int) {
	s.t.Helper()

	ours := []string{"talosupgrade", "talosupgrade-journal"}

	changes := s.changes()[count:]
	if len(changes) == 0 {
		s.t.Error("nothing was removed")
	}

	for _, event := range changes {
		switch {
		case event.Kind == history.KindLease, event.Kind == history.KindJournal:
		case event.Kind == history.KindWrite && slices.Contains(ours, event.Detail["name"]):
		case event.Kind == history.KindAnnotation && strings.HasPrefix(event.Detail["object"], "ConfigMap/kube-system/talosupgrade"):
		default:
			s.t.Errorf("touched what is not ours: %s", fmt.Sprint(event))
		}
	}
}

// turn returns a predicate for events of worker-0 of the kind that have the value under the key; an empty key matches
// all.
func turn(kind history.Kind, key, value string) func(history.Event) bool {
	return func(e history.Event) bool {
		return e.Kind == kind && e.Node == "worker-0" && (key == "" || e.Detail[key] == value)
	}
}

// installed and cordoned are two such predicates.
func installed(e history.Event) bool { return turn(history.KindInstall, "", "")(e) }
func cordoned(e history.Event) bool  { return turn(history.KindCordon, "unschedulable", "true")(e) }
