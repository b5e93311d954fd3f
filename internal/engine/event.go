// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"strings"
	"unicode"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// emit passes the event to the observers, one event at a time.
func (e *Engine) emit(event cluster.Event) {
	e.telling <- struct{}{}
	defer e.telling.leave()

	e.notify(event)
}

// emitOnce emits the event unless one with the same key was emitted before.
func (e *Engine) emitOnce(key string, event cluster.Event) {
	e.telling <- struct{}{}
	defer e.telling.leave()

	if !e.told[key] {
		e.told[key] = true
		e.notify(event)
	}
}

// notify passes the event to the observers. The caller holds telling.
func (e *Engine) notify(event cluster.Event) {
	event.Time = e.clock.Now()
	for _, observer := range e.observers {
		observer.Observe(event)
	}
}

// tell emits a warning for each skipped finding, once.
func (e *Engine) tell(findings []cluster.Finding) {
	for _, finding := range findings {
		if finding.Skipped {
			e.emitOnce(finding.Check+" "+withoutNumbers(finding.Found)+" "+finding.Node,
				cluster.Event{Kind: cluster.EventWarning, Node: finding.Node, Text: finding.String()})
		}
	}
}

// withoutNumbers returns the text without its digits, because numbers change while the finding stays the same.
func withoutNumbers(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}

		return c
	}, text)
}
