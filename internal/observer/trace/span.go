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
	// notesMost is how many events of one name a span carries, the last one not
	// counted: a wait says every 30 seconds what it waits for.
	notesMost = 16
	// textMost and failureMost bound texts, in bytes.
	textMost    = 1 << 10
	failureMost = 4 << 10
)

// span is one with notes.
type span struct {
	oteltrace.Span

	notes map[string]*notes
}

// notes are the events of one name.
type notes struct {
	count, written int
	last           string
	// held is the last one where there was no room for it.
	held *note
}

type note struct {
	at         time.Time
	attributes []attribute.KeyValue
}

// note adds an event with the text, unless it is what was said last, or there were
// enough of them.
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

// end ends the span, with the last of what there was no room for.
func (s *span) end(at time.Time) {
	for name, n := range s.notes {
		if n.held != nil {
			s.add(name, *n.held)
		}

		s.SetAttributes(attribute.Int(prefix+name+".count", n.count))
	}

	s.End(oteltrace.WithTimestamp(at))
}

// shortened is the text with so many bytes at most.
func shortened(text string, most int) string {
	const ellipsis = "…"

	// An exporter takes nothing else.
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
