// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// tailPoll is how often a growing file is read.
const tailPoll = 50 * time.Millisecond

// tail follows a history file as it grows.
type tail struct {
	file *os.File
	cut  follower
}

func openTail(path string) (*tail, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}

	return &tail{file: file}, nil
}

func (t *tail) close() { _ = t.file.Close() }

// follow calls each for every event from where the last call ended, until the
// context ends and all that was written before is read.
func (t *tail) follow(ctx context.Context, each func(history.Event)) error {
	ticker := time.NewTicker(tailPoll)
	defer ticker.Stop()

	t.cut.each = each

	for {
		// The context is checked before reading, so that nothing written before the end is lost.
		ended := ctx.Err() != nil

		if err := t.cut.read(t.file); err != nil {
			return err
		}

		if ended {
			return nil
		}

		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// follower cuts a growing file into events; the last line may be incomplete.
type follower struct {
	rest []byte
	each func(history.Event)
}

func (f *follower) read(from io.Reader) error {
	added, err := io.ReadAll(from)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the history: %w", err)
	}

	f.rest = append(f.rest, added...)

	for {
		line, rest, whole := bytes.Cut(f.rest, []byte("\n"))
		if !whole {
			return nil
		}

		f.rest = rest

		var event history.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("reading the history: %q is no event: %w", line, err)
		}

		f.each(event)
	}
}
