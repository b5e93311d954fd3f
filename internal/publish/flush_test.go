// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/publish"
)

var _ cluster.Flusher = (*publish.Publisher)(nil)

// TestFlushMakesTheLastWordStand: it is the time in which the annotations are ours.
func TestFlushMakesTheLastWordStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meddling := 2
		store := &memory{until: time.Now().Add(5 * time.Second)}
		store.after = func(found map[string]string) {
			if meddling--; meddling >= 0 {
				found[publish.KeyStatus] = "idle"
			}
		}

		publisher := publish.New(store)
		for _, event := range story() {
			publisher.Observe(event)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		publisher.Flush(ctx)

		if got := store.get(publish.KeyStatus); got != "completed" {
			t.Errorf("status %q after Flush", got)
		}

		if err := publisher.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestNothingIsWrittenAfterAFlush: the next run may have begun.
func TestNothingIsWrittenAfterAFlush(t *testing.T) {
	for name, test := range map[string]struct {
		away time.Duration
		fail bool
	}{
		"said": {0, false}, "not said": {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memory{until: time.Now().Add(test.away)}

				publisher := publish.New(store)
				for _, event := range story() {
					publisher.Observe(event)
				}

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()

				publisher.Flush(ctx)

				store.mutex.Lock()
				store.until = time.Time{}
				store.found = map[string]string{publish.KeyStatus: "in-progress"}
				store.mutex.Unlock()

				if err := publisher.Close(t.Context()); (err != nil) != test.fail {
					t.Errorf("closing: %v", err)
				}

				if got := store.get(publish.KeyStatus); got != "in-progress" {
					t.Errorf("status %q, want that of the next run", got)
				}
			})
		})
	}
}

// TestFlushEndsInTime also where an attempt hangs, and where nothing was said.
func TestFlushEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		publisher := publish.New(&memory{takes: time.Hour})
		publisher.Flush(t.Context())
		publisher.Observe(story()[0])

		const most = 4 * time.Second

		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()

		begun := time.Now()

		publisher.Flush(ctx)

		if took := time.Since(begun); took > most {
			t.Errorf("it took %s", took)
		}

		if err := publisher.Close(t.Context()); err == nil {
			t.Error("nothing was said of what does not stand")
		}
	})
}

// TestFlushOfALostRunSaysNothing: what it wanted to say is somebody else's to say.
func TestFlushOfALostRunSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{until: time.Now().Add(time.Second)}

		publisher := publish.New(store)
		publisher.Observe(story()[0])
		publisher.Observe(cluster.Event{Kind: cluster.EventRunLost})
		publisher.Flush(t.Context())

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if len(store.patches) > 0 {
			t.Errorf("it wrote %v", store.patches)
		}
	})
}
