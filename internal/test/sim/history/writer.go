// SPDX-License-Identifier: MPL-2.0

package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Writer records events as lines of JSON, each complete before Record returns. Most calls of an upgrade change
// nothing and are made again and again: what the lines so far say already is omitted.
type Writer struct {
	now func() time.Duration

	mu   sync.Mutex
	out  io.Writer
	err  error
	each []func(Event)
	// looks are the observations of nodes that were written since any other event.
	looks map[string]bool
}

// NewWriter writes to out and stamps events with the simulated time that now
// returns, to the millisecond.
func NewWriter(out io.Writer, now func() time.Duration) *Writer {
	return &Writer{out: out, now: now, looks: map[string]bool{}}
}

// OnEvent calls fn with every further event, written or not, in order, while it is
// recorded; fn must not block and must not record.
func (w *Writer) OnEvent(fn func(Event)) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.each = append(w.each, fn)
}

// Record implements [Recorder].
func (w *Writer) Record(node string, kind Kind, detail map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	event := Event{Sim: float64(w.now().Milliseconds()) / 1000, Node: node, Kind: kind, Detail: detail}

	if !w.repeats(event) {
		w.write(event)
	}

	for _, fn := range w.each {
		fn(event)
	}
}

// repeats reports whether the lines so far say as much as the event: it is a call that was answered and changes
// nothing, for which there is an event of the observation; or it is an observation of a node, or such a call that
// failed, like one since any other event. An observation of the Node objects counts by its time too, so each is
// written.
func (w *Writer) repeats(event Event) bool {
	reading := event.Kind == KindRPC && event.Detail["mutating"] == "false"

	switch code := event.Detail["code"]; {
	case reading && (code == "OK" || code == "NotFound"):
		return true
	case reading, event.Kind == KindRead && event.Node != "":
	default:
		clear(w.looks)

		return false
	}

	look := fmt.Sprint(event.Node, event.Kind, event.Detail)
	told := w.looks[look]
	w.looks[look] = true

	return told
}

func (w *Writer) write(event Event) {
	line, err := json.Marshal(event)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}

	if w.err == nil && err != nil {
		w.err = fmt.Errorf("recording the history: %w", err)
	}
}

// Err returns the first error of a write; nil if every event was recorded.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.err
}

// fixed has the fields that every line has.
type fixed Event

// MarshalJSON implements [json.Marshaler].
func (e Event) MarshalJSON() ([]byte, error) {
	line, err := json.Marshal(fixed(e))
	if err != nil || len(e.Detail) == 0 {
		return line, err
	}

	detail, err := json.Marshal(e.Detail)

	return append(append(line[:len(line)-1], ','), detail[1:]...), err
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Event) UnmarshalJSON(line []byte) error {
	var all map[string]any

	err := errors.Join(json.Unmarshal(line, (*fixed)(e)), json.Unmarshal(line, &all))

	e.Detail = map[string]string{}

	for key, value := range all {
		if text, is := value.(string); is && key != "node" && key != "kind" {
			e.Detail[key] = text
		}
	}

	return err
}

// lineMost bounds one event; a journal entry with an installer's output is the longest.
const lineMost = 1 << 20

// Read calls each with every event of a history, in order. It omits a last line that is still being written.
func Read(in io.Reader, each func(Event)) error {
	reader := bufio.NewReaderSize(in, lineMost)

	for number := 1; ; number++ {
		line, err := reader.ReadSlice('\n')

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("history line %d: %w", number, err)
		}

		var event Event
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("history line %d: %w", number, err)
		}

		each(event)
	}
}
