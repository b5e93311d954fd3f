// SPDX-License-Identifier: MPL-2.0

package engine

import (
	"strings"
	"sync"
	"unicode"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// emit tells the observers, one event after the other whoever emits it.
func (e *Engine) emit(event cluster.Event) {
	e.telling <- struct{}{}
	defer e.telling.leave()

	event.Time = e.clock.Now()
	for _, observer := range e.observers {
		observer.Observe(event)
	}
}

// notices are the findings that people were told of although they stop nothing:
// each once, however often it is found.
type notices struct {
	mu   sync.Mutex
	told map[string]bool
}

func newNotices() *notices { return &notices{told: map[string]bool{}} }

// fresh tells whether nobody was told yet.
func (n *notices) fresh(finding cluster.Finding) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	// Numbers change while the finding stays.
	key := strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}

		return c
	}, finding.Check+" "+finding.Found) + " " + finding.Node
	told := n.told[key]
	n.told[key] = true

	return !told
}

// tell says aloud what is skipped.
func (e *Engine) tell(findings []cluster.Finding) {
	for _, finding := range findings {
		if finding.Skipped && e.notices.fresh(finding) {
			e.emit(cluster.Event{Kind: cluster.EventWarning, Node: finding.Node, Text: finding.String()})
		}
	}
}
