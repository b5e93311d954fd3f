// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func writeFile(t *testing.T, path, content string) {
	t.Helper()

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeyDependsOnEachPartAndOnTheirBorders(t *testing.T) {
	parts := [][][]byte{
		{[]byte("ab"), []byte("c")},
		{[]byte("a"), []byte("bc")},
		{[]byte("abc")},
		{[]byte("ab"), []byte("d")},
		{[]byte("c"), []byte("ab")},
	}

	seen := map[string]int{}

	for i, some := range parts {
		if other, exists := seen[key(some...)]; exists {
			t.Errorf("parts %d and %d have the same key", i, other)
		}

		seen[key(some...)] = i
	}

	if first, second := key([]byte("x")), key([]byte("x")); first != second {
		t.Errorf("the same part has the keys %s and %s", first, second)
	}
}

func TestEntryIsMadeOnceWhoeverAsks(t *testing.T) {
	e := entry{cache: t.TempDir(), name: "thing"}

	var (
		made  atomic.Int32
		group sync.WaitGroup
	)

	for range 8 {
		group.Go(func() {
			dir, err := e.ensure(t.Context(), io.Discard, func(_ context.Context, dir string) error {
				made.Add(1)

				return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o600)
			})
			if err != nil {
				t.Error(err)

				return
			}

			content, err := os.ReadFile(filepath.Join(dir, "file"))
			if err != nil || string(content) != "whole" {
				t.Errorf("the entry holds %q (%v)", content, err)
			}
		})
	}

	group.Wait()

	if made.Load() != 1 {
		t.Errorf("made %d times, want once", made.Load())
	}
}

func TestFailedEntryLeavesNothingAndIsTriedAgain(t *testing.T) {
	e := entry{cache: t.TempDir(), name: "thing"}
	broken := errors.New("out of paper")

	_, err := e.ensure(t.Context(), io.Discard, func(_ context.Context, dir string) error {
		writeFile(t, filepath.Join(dir, "half"), "ha")

		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("error %v, want %v", err, broken)
	}

	for _, path := range []string{e.path(), e.path() + ".partial"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there (%v)", filepath.Base(path), err)
		}
	}

	dir, err := e.ensure(t.Context(), io.Discard, func(context.Context, string) error { return nil })
	if err != nil || dir != e.path() {
		t.Errorf("the second attempt gave %q, %v", dir, err)
	}
}

func TestWhatAnInterruptedProcessLeftIsCleared(t *testing.T) {
	e := entry{cache: t.TempDir(), name: "thing"}

	if err := os.MkdirAll(e.path()+".partial", 0o755); err != nil {
		t.Fatal(err)
	}

	writeFile(t, filepath.Join(e.path()+".partial", "half"), "ha")

	dir, err := e.ensure(t.Context(), io.Discard, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}

	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 0 {
		t.Errorf("the entry holds %v (%v), want nothing", files, err)
	}
}

func TestEntryIsInvisibleUntilItIsComplete(t *testing.T) {
	e := entry{cache: t.TempDir(), name: "thing"}

	_, err := e.ensure(t.Context(), io.Discard, func(_ context.Context, dir string) error {
		if e.complete() || dir == e.path() {
			t.Error("the entry has its name while it is being made")
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWaitingForAnotherProcessEndsWithTheContext(t *testing.T) {
	e := entry{cache: t.TempDir(), name: "thing"}

	unlock, err := lock(t.Context(), e.path()+".lock", e.name, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()

	var said bytes.Buffer

	_, err = e.ensure(ctx, &said, func(context.Context, string) error {
		t.Error("made without the lock")

		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the context's", err)
	}

	if said.Len() == 0 {
		t.Error("nothing was said about the wait")
	}
}
