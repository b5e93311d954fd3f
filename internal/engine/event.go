// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"strings"
	"unicode"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// emit tells the observers, one event after the other whoever emits it.
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

// notify tells the observers. The caller holds telling.
func (e *Engine) notify(event cluster.Event) {
	event.Time = e.clock.Now()
	for _, observer := range e.observers {
		observer.Observe(event)
	}
}

// tell says aloud what is skipped, each finding once.
func (e *Engine) tell(findings []cluster.Finding) {
	for _, finding := range findings {
		if finding.Skipped {
			e.emitOnce(finding.Check+" "+withoutNumbers(finding.Found)+" "+finding.Node,
				cluster.Event{Kind: cluster.EventWarning, Node: finding.Node, Text: finding.String()})
		}
	}
}

// withoutNumbers is a text without its digits: numbers change while the finding stays.
func withoutNumbers(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}

		return c
	}, text)
}
