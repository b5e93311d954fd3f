// SPDX-License-Identifier: MPL-2.0

package harness

import (
	"slices"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/checker"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Judge keeps a history and has a checker judge each of its events.
type Judge struct {
	mu      sync.Mutex
	checker *checker.Checker
	world   *model.World
	events  []history.Event
}

// Record implements [history.Recorder].
func (j *Judge) Record(node string, kind history.Kind, detail map[string]string) {
	j.mu.Lock()
	defer j.mu.Unlock()

	event := history.Event{Node: node, Kind: kind, Detail: detail}
	if j.world != nil {
		event.Sim = j.world.Now().Seconds()
	}

	j.events = append(j.events, event)
	j.checker.Add(event)
}

// Verdict returns the verdict so far.
func (j *Judge) Verdict() checker.Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()

	return j.checker.Verdict()
}

// Of returns the events of the given kinds, in order.
func (j *Judge) Of(kinds ...history.Kind) []history.Event {
	j.mu.Lock()
	defer j.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(j.events), func(e history.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

// Text returns the end of the history, for the message of a test that failed.
func (j *Judge) Text() string {
	j.mu.Lock()
	defer j.mu.Unlock()

	const most = 150

	told := slices.DeleteFunc(slices.Clone(j.events), history.Event.Idle)

	return history.Table(told[max(0, len(told)-most):])
}
