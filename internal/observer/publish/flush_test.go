// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

var _ cluster.Flusher = (*publish.Publisher)(nil)

// TestFlushMakesTheLastWordStand: it is the time in which the annotations are ours.
func TestFlushMakesTheLastWordStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meddling := 2
		store := &memory{until: time.Now().Add(5 * time.Second)}
		store.after = func(found map[string]string) {
			if meddling--; meddling >= 0 {
				found[protocol.KeyTalosStatus] = "idle"
			}
		}

		publisher := publish.New(store, publish.Options{})
		for _, event := range story() {
			publisher.Observe(event)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		publisher.Flush(ctx)

		if got := store.get(protocol.KeyTalosStatus); got != "completed" {
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

				publisher := publish.New(store, publish.Options{})
				for _, event := range story() {
					publisher.Observe(event)
				}

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()

				publisher.Flush(ctx)

				store.mutex.Lock()
				store.until = time.Time{}
				store.found = map[string]string{protocol.KeyTalosStatus: "in-progress"}
				store.mutex.Unlock()

				if err := publisher.Close(t.Context()); (err != nil) != test.fail {
					t.Errorf("closing: %v", err)
				}

				if got := store.get(protocol.KeyTalosStatus); got != "in-progress" {
					t.Errorf("status %q, want that of the next run", got)
				}
			})
		})
	}
}

// TestFlushEndsInTime also where an attempt hangs, and where nothing was said.
func TestFlushEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		publisher := publish.New(&memory{takes: time.Hour}, publish.Options{})
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

		publisher := publish.New(store, publish.Options{})
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

// TestNoAttemptOutlivesTheRun: what is under way when the run ends, or is not ours
// any more, does not take effect afterwards.
func TestNoAttemptOutlivesTheRun(t *testing.T) {
	for name, end := range map[string]func(*publish.Publisher){
		"it ends": func(publisher *publish.Publisher) {
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
			defer cancel()

			publisher.Flush(ctx)
		},
		"it is lost": func(publisher *publish.Publisher) { publisher.Observe(cluster.Event{Kind: cluster.EventRunLost}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &memory{takes: 8 * time.Second}
				publisher := publish.New(store, publish.Options{})
				publisher.Observe(story()[0])
				time.Sleep(time.Second)
				end(publisher)

				time.Sleep(time.Minute)
				synctest.Wait()

				if len(store.patches) > 0 {
					t.Errorf("it wrote %q afterwards", store.get(protocol.KeyTalosStatus))
				}

				if err := publisher.Close(t.Context()); (err != nil) != (name == "it ends") {
					t.Errorf("closing: %v", err)
				}
			})
		})
	}
}

// TestALostRunIsSilentForGood, also of turns that are still being ended, and is
// closed at once where nothing can be written.
func TestALostRunIsSilentForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		publisher := publish.New(store, publish.Options{})
		publisher.Observe(story()[0])
		synctest.Wait()

		written := len(store.patches)

		publisher.Observe(cluster.Event{Kind: cluster.EventRunLost})

		for _, event := range story() {
			publisher.Observe(event)
			time.Sleep(time.Minute)
			synctest.Wait()
		}

		publisher.Observe(cluster.Event{Kind: cluster.EventRunFailed, Node: "cp-0", Target: story()[0].Target})

		store.mutex.Lock()
		store.until = time.Now().Add(time.Hour)
		store.mutex.Unlock()

		begun := time.Now()

		publisher.Flush(t.Context())

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if took := time.Since(begun); took > 0 {
			t.Errorf("closing took %s", took)
		}

		if len(store.patches) != written {
			t.Errorf("it wrote %v", store.patches[written:])
		}
	})
}
