// SPDX-License-Identifier: MPL-2.0

package trace

import (
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/readable"
)

const (
	// notesMost is how many events of one name a span carries, not counting the last one: a wait has an event
	// every 30 seconds.
	notesMost = 16
	// textMost and failureMost bound texts, in bytes.
	textMost    = 1 << 10
	failureMost = 4 << 10
)

// span is a span that counts its events by name.
type span struct {
	oteltrace.Span

	notes map[string]*notes
}

// notes are the events of one name.
type notes struct {
	count, written int
	last           string
	// held is the last event if there was no room for it.
	held *note
}

type note struct {
	at         time.Time
	attributes []attribute.KeyValue
}

// note adds an event with the text, unless the last event of that name had the same text or the span has enough
// of them.
func (s *span) note(name, text string, at time.Time, more ...attribute.KeyValue) {
	if s.notes == nil {
		s.notes = map[string]*notes{}
	}

	if s.notes[name] == nil {
		s.notes[name] = &notes{}
	}

	n := s.notes[name]
	n.count++

	if n.count > 1 && n.last == text {
		return
	}

	n.last = text

	if text != "" {
		more = append(more, keyMessage.String(shortened(text, textMost)))
	}

	one := note{at: at, attributes: more}

	if n.written >= notesMost {
		n.held = &one

		return
	}

	n.written++
	s.add(name, one)
}

func (s *span) add(name string, one note) {
	s.AddEvent(name, oteltrace.WithTimestamp(one.at), oteltrace.WithAttributes(one.attributes...))
}

// end ends the span and adds the events that were held.
func (s *span) end(at time.Time) {
	for name, n := range s.notes {
		if n.held != nil {
			s.add(name, *n.held)
		}

		s.SetAttributes(attribute.Int(prefix+name+".count", n.count))
	}

	s.End(oteltrace.WithTimestamp(at))
}

// shortened returns the text escaped and cut to at most so many bytes.
func shortened(text string, most int) string {
	const ellipsis = "…"

	// Exporters accept valid UTF-8 only.
	text = readable.Escaped(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= most {
		return text
	}

	end := most - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end] + ellipsis
}
