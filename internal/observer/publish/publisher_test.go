// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

func TestPublisher_TellsARunInTheWordsOfTheProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{found: map[string]string{protocol.KeyFailedNodes: "cp-2", "upgrade.vitistack.io/talos-target": "1.13.4"}}
		publisher := publish.New(store, publish.Options{})

		const current, status, message, progress = protocol.KeyTalosCurrent, protocol.KeyTalosStatus, protocol.KeyTalosMessage, protocol.KeyTalosProgress

		wanted := []map[string]string{
			{current: "1.12.6", status: "in-progress", message: "Talos upgrade started: 1.12.6 → 1.13.4", progress: "0/2", protocol.KeyFailedNodes: "absent"},
			{current: "1.12.6", status: "in-progress", message: "Upgrading node worker-0 (0/2)", progress: "0/2"},
			{message: "Upgrading node worker-0 (0/2)"},
			{status: "in-progress", message: "Node worker-0 upgraded", progress: "0/2"},
			{current: "1.12.6", message: "Upgrading node cp-0 (1/2)", progress: "1/2"},
			{status: "in-progress", message: "Node cp-0 upgraded"},
			{current: "1.13.4", status: "completed", message: "Talos upgrade completed: now running 1.13.4", progress: "2/2"},
		}

		for i, event := range story() {
			publisher.Observe(event)
			synctest.Wait()

			for key, want := range wanted[i] {
				if got := store.get(key); got != want {
					t.Errorf("after %s: %s is %q, want %q", event.Kind, key, got, want)
				}
			}

			if got, want := store.get(protocol.KeyLastUpdate), time.Now().UTC().Format(time.RFC3339); got != want {
				t.Errorf("after %s: last update %q, want %q", event.Kind, got, want)
			}
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := store.get("upgrade.vitistack.io/talos-target"); got != "1.13.4" {
			t.Errorf("the target, which is not ours, became %q", got)
		}
	})
}

func TestPublisher_FailureNamesNodeAndReasonInOneLine(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}

	for name, test := range map[string]struct {
		event         cluster.Event
		message, node string
	}{
		"told by the engine": {
			cluster.Event{Text: "node cp-1 did not come back online\n\nmore", Node: "cp-1", Err: errDown},
			"Talos upgrade failed: node cp-1 did not come back online", "cp-1",
		},
		"only an error": {cluster.Event{Err: errDown}, "Talos upgrade failed: the API server is down", "absent"},
		"nothing":       {cluster.Event{}, "Talos upgrade failed: the reason is not known", "absent"},
		"a long story":  {cluster.Event{Text: strings.Repeat("é", 2000)}, "Talos upgrade failed: " + strings.Repeat("é", 499) + "…", "absent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &memory{}
			publisher := publish.New(store, publish.Options{})

			test.event.Kind, test.event.Target = cluster.EventRunFailed, target
			publisher.Observe(test.event)

			if err := publisher.Close(t.Context()); err != nil {
				t.Error(err)
			}

			for key, want := range map[string]string{
				protocol.KeyTalosStatus: "failed", protocol.KeyTalosMessage: test.message, protocol.KeyFailedNodes: test.node,
			} {
				if got := store.get(key); got != want {
					t.Errorf("%s: %s is %q, want %q", name, key, got, want)
				}
			}
		})
	}
}

// TestPublisher_VersionOnTheWayIsNotTheTarget: where the way has more than one
// hop, a node that finished the first is not said to be upgraded.
func TestPublisher_VersionOnTheWayIsNotTheTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		publisher := publish.New(store, publish.Options{})
		event := cluster.Event{
			Node: "cp-0", Talos: progress(0, 3, ""),
			To: version.MustParse("1.13.4"), Target: cluster.Target{Talos: version.MustParse("1.14.1")},
		}

		for kind, want := range map[cluster.EventKind]string{
			cluster.EventNodeStarted: "Upgrading node cp-0 to 1.13.4 (0/3)",
			cluster.EventNodeDone:    "Node cp-0 upgraded to 1.13.4 (0/3)",
		} {
			event.Kind = kind
			publisher.Observe(event)
			synctest.Wait()

			if got := store.get(protocol.KeyTalosMessage); got != want {
				t.Errorf("%s: message %q, want %q", kind, got, want)
			}
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPublisher_HeartbeatOnlyWhileTheRunLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		publisher := publish.New(store, publish.Options{})
		events := story()

		publisher.Observe(events[0])
		time.Sleep(65 * time.Second)
		synctest.Wait()

		if got := len(store.patches); got != 7 {
			t.Errorf("%d patches in 65 seconds, want the first and six heartbeats", got)
		}

		for _, beat := range store.patches[1:] {
			if len(beat) != 1 || beat[protocol.KeyLastUpdate] == nil {
				t.Errorf("a heartbeat changed %v", beat)
			}
		}

		publisher.Observe(events[len(events)-1])
		synctest.Wait()

		before := len(store.patches)

		time.Sleep(time.Hour)
		synctest.Wait()

		if got := len(store.patches); got != before {
			t.Errorf("%d patches after the run had ended", got-before)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPublisher_StoreThatIsDownGetsTheLatestLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{until: time.Now().Add(2 * time.Minute), takes: 3 * time.Second}
		publisher := publish.New(store, publish.Options{})
		started := time.Now()

		for _, event := range story() {
			publisher.Observe(event)
		}

		if took := time.Since(started); took > 0 {
			t.Errorf("observing took %s", took)
		}

		time.Sleep(3 * time.Minute)
		synctest.Wait()

		if got := store.get(protocol.KeyTalosStatus); got != "completed" || len(store.patches) != 1 {
			t.Errorf("status %q after %d patches, want the latest in one", got, len(store.patches))
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPublisher_LostReplyMayHaveTakenEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{loses: 1}
		publisher := publish.New(store, publish.Options{})
		events := story()

		// The first word takes effect and its reply is lost, and then the
		// run fails at once.
		publisher.Observe(events[0])
		synctest.Wait()
		publisher.Observe(cluster.Event{Kind: cluster.EventRunFailed, Target: events[0].Target, Node: "cp-0", Text: "why"})

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if status, nodes := store.get(protocol.KeyTalosStatus), store.get(protocol.KeyFailedNodes); status != "failed" || nodes != "cp-0" {
			t.Errorf("status %q, failed nodes %q", status, nodes)
		}
	})
}

func TestPublisher_CloseMakesTheLastWordStand(t *testing.T) {
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

		if err := publisher.Close(ctx); err != nil {
			t.Error(err)
		}

		if got := store.get(protocol.KeyTalosStatus); got != "completed" {
			t.Errorf("status %q after Close", got)
		}

		publisher.Observe(story()[0])
		synctest.Wait()

		if got := store.get(protocol.KeyTalosStatus); got != "completed" {
			t.Errorf("status %q after an event that came too late", got)
		}

		if err := publisher.Close(ctx); err != nil {
			t.Errorf("closing again: %v", err)
		}
	})
}

func TestPublisher_CloseGivesUpInTimeAndSaysSo(t *testing.T) {
	for name, limit := range map[string]time.Duration{"the caller's deadline": 4 * time.Second, "its own": 0} {
		synctest.Test(t, func(t *testing.T) {
			store := &memory{until: time.Now().Add(time.Hour), takes: 7 * time.Second}
			publisher := publish.New(store, publish.Options{})
			publisher.Observe(story()[0])

			ctx, want := t.Context(), 15*time.Second

			if limit > 0 {
				var cancel context.CancelFunc

				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()

				want = limit
			}

			started := time.Now()
			err := publisher.Close(ctx)

			if took := time.Since(started); took > want {
				t.Errorf("%s: closing took %s, want %s", name, took, want)
			}

			if err == nil || !strings.Contains(err.Error(), "the memory") || errors.Is(err, errDown) == errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v, want object and reason", name, err)
			}
		})
	}
}

func TestPublisher_WithoutEventsTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		if err := publish.New(store, publish.Options{}).Close(t.Context()); err != nil || len(store.patches) != 0 {
			t.Errorf("%d patches, %v", len(store.patches), err)
		}
	})
}

// TestPublisher_RunThatLostItsLeaseSaysNothingMore: what stands now belongs to the run
// that took over.
func TestPublisher_RunThatLostItsLeaseSaysNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		publisher := publish.New(store, publish.Options{})

		publisher.Observe(cluster.Event{Kind: cluster.EventRunStarted, Talos: progress(0, 2, "1.12.6"), Target: cluster.Target{Talos: version.MustParse("1.13.4")}})
		synctest.Wait()

		before := len(store.patches)

		// The winner writes; the loser must not take it back.
		store.found[protocol.KeyTalosMessage] = "written by the winner"

		publisher.Observe(cluster.Event{Kind: cluster.EventRunLost, Text: "taken over"})

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if before == 0 || len(store.patches) != before || store.found[protocol.KeyTalosMessage] != "written by the winner" {
			t.Errorf("%d patches before and %d after the lease was lost: %v", before, len(store.patches), store.found)
		}
	})
}

var _ cluster.Flusher = (*publish.Publisher)(nil)

// TestFlush_MakesTheLastWordStand: it is the time in which the annotations are ours.
func TestFlush_MakesTheLastWordStand(t *testing.T) {
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

// TestFlush_NothingIsWrittenAfterIt: the next run may have begun.
func TestFlush_NothingIsWrittenAfterIt(t *testing.T) {
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

// TestFlush_EndsInTime also where an attempt hangs, and where nothing was said.
func TestFlush_EndsInTime(t *testing.T) {
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

// TestFlush_OfALostRunSaysNothing: what it wanted to say is somebody else's to say.
func TestFlush_OfALostRunSaysNothing(t *testing.T) {
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

// TestFlush_NoAttemptOutlivesTheRun: what is under way when the run ends, or is not ours
// any more, does not take effect afterwards.
func TestFlush_NoAttemptOutlivesTheRun(t *testing.T) {
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

// TestFlush_LostRunIsSilentForGood, also of turns that are still being ended, and is
// closed at once where nothing can be written.
func TestFlush_LostRunIsSilentForGood(t *testing.T) {
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
