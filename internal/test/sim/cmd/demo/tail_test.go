// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

func TestTailFollowsAFileToItsEndAndNoFurther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte(`{"node":"a","kind":"down"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()

	var seen []string

	// Each event appends the next one, so reading has to continue.
	events, err := openTail(path)
	if err != nil {
		t.Fatal(err)
	}
	defer events.close()

	err = events.follow(ctx, func(event history.Event) {
		seen = append(seen, event.Node)

		switch event.Node {
		case "a":
			appendTo(t, path, `{"node":"b","kind":"down"}`+"\n")
		case "b":
			// What was written before the end is still read.
			appendTo(t, path, `{"node":"c","kind":"down"}`+"\n"+`{"no`)
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}

	// The next call continues where this one ended, in the middle of a line.
	appendTo(t, path, `de":"d","kind":"down"}`+"\n")

	if err := events.follow(ctx, func(event history.Event) { seen = append(seen, "then "+event.Node) }); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"a", "b", "c", "then d"}, seen); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()

	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}

	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFollowerPutsALineTogetherFromItsParts(t *testing.T) {
	var seen []string

	cut := follower{each: func(event history.Event) { seen = append(seen, event.Node) }}

	for _, part := range []string{`{"no`, `de":"a"}`, "\n{\"node\":\"b\"}\n"} {
		if err := cut.read(strings.NewReader(part)); err != nil {
			t.Fatal(err)
		}
	}

	if diff := cmp.Diff([]string{"a", "b"}, seen); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestFollowerRefusesWhatIsNoEvent(t *testing.T) {
	cut := follower{each: func(history.Event) {}}

	if err := cut.read(strings.NewReader("not JSON\n")); err == nil {
		t.Error("a line that is no event was accepted")
	}
}
