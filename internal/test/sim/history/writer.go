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

// Writer records events as lines of JSON, each complete before Record returns.
type Writer struct {
	now func() time.Duration

	mu   sync.Mutex
	seq  int64
	out  io.Writer
	err  error
	each []func(Event)
}

// NewWriter writes to out and stamps events with the simulated time that now
// returns.
func NewWriter(out io.Writer, now func() time.Duration) *Writer {
	return &Writer{out: out, now: now}
}

// OnEvent calls fn with every further event, in order, while it is recorded;
// fn must not block and must not record.
func (w *Writer) OnEvent(fn func(Event)) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.each = append(w.each, fn)
}

// Record implements [Recorder].
func (w *Writer) Record(node string, kind Kind, detail map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.seq++
	event := Event{Seq: w.seq, Real: time.Now().UTC(), Sim: w.now().Seconds(), Node: node, Kind: kind, Detail: detail}

	line, err := json.Marshal(event)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}

	if w.err == nil && err != nil {
		w.err = fmt.Errorf("recording the history: %w", err)
	}

	for _, fn := range w.each {
		fn(event)
	}
}

// Err is the first error of a write, nil when every event was recorded.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.err
}

// lineMost bounds one event; a journal entry with an installer's output is the
// longest there is.
const lineMost = 1 << 20

// Read calls each with every event of a history, in order. A last line that is
// still being written is left out.
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
