// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

// TestWhatSomebodyElseWritesIsCorrectedWithTheHeartbeat, and not in a race with the
// other writer; who reads the notes learns of it.
func TestWhatSomebodyElseWritesIsCorrectedWithTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf()
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		publisher.Observe(story()[0])
		synctest.Wait()

		// An operator that was not held writes every 5 seconds, in its own words.
		const minutes = 5

		meddling := map[string]any{protocol.KeyTalosStatus: "idle", protocol.KeyTalosMessage: "I do nothing", protocol.KeyTalosProgress: nil, "theirs": "no"}

		corrected := 0

		for range minutes * 12 {
			shelf.annotate(meddling)
			time.Sleep(5 * time.Second)
			synctest.Wait()

			if shelf.get(protocol.KeyTalosStatus) == "in-progress" {
				corrected++
			}
		}

		if corrected < minutes*6-1 || corrected > minutes*6+1 {
			t.Errorf("what was written 60 times was seen corrected %d times, want with every heartbeat", corrected)
		}

		if got := len(shelf.calls); got > 1+minutes*6 {
			t.Errorf("it wrote %d times in %d minutes", got, minutes)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := shelf.get(protocol.KeyTalosStatus) + shelf.get("theirs"); got != "in-progressno" {
			t.Errorf("in the end there is %q", got)
		}

		notes := publisher.Notes()
		if len(notes) != 1 {
			t.Fatalf("it has the notes %q, want one", notes)
		}

		for _, part := range []string{"KubernetesCluster tenant-a/prod", protocol.KeyTalosMessage + " (3", protocol.KeyTalosProgress, protocol.KeyTalosStatus, "Somebody else"} {
			if !strings.Contains(notes[0], part) {
				t.Errorf("the note is %q, want it to name %q", notes[0], part)
			}
		}

		if strings.Contains(notes[0], protocol.KeyTalosCurrent) {
			t.Errorf("the note names what nobody else wrote: %q", notes[0])
		}
	})
}

// TestAnObjectThatIsMadeAgainIsNotWrittenBySomebodyElse: all of it is told to the
// new one, and nobody is blamed.
func TestAnObjectThatIsMadeAgainIsNotWrittenBySomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		shelf.write(map[string]any{"metadata": map[string]any{"uid": "first"}})

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		synctest.Wait()

		fresh := newShelf()
		fresh.write(map[string]any{"metadata": map[string]any{"uid": "second"}})

		shelf.mutex.Lock()
		shelf.found = fresh.found
		shelf.mutex.Unlock()

		// What is told of the next turn is not all that the new one lacks.
		publisher.Observe(story()[2])
		time.Sleep(25 * time.Second)
		synctest.Wait()

		expect(t, shelf, map[string]string{
			talosStatus: "in-progress", talosMessage: "Talos upgrade started: 1.12.6 → 1.13.4", talosCurrent: "1.12.6", "phase": "UpgradingTalos",
		})

		if notes := publisher.Notes(); len(notes) > 0 {
			t.Errorf("it has notes: %q", notes)
		}

		// On the new one somebody else may write as on the old one.
		shelf.annotate(map[string]any{talosStatus: "idle"})

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if notes := publisher.Notes(); len(notes) != 1 {
			t.Errorf("it has the notes %q, want one", notes)
		}
	})
}

// TestAFightAtTheEndIsLostInTime, and the error names what is fought for.
func TestAFightAtTheEndIsLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{after: func(found map[string]string) { found[protocol.KeyTalosStatus] = "idle" }}

		publisher := publish.New(store, publish.Options{})
		for _, event := range story() {
			publisher.Observe(event)
		}

		begun := time.Now()
		err := publisher.Close(t.Context())

		if err == nil || !strings.Contains(err.Error(), "somebody else") || !strings.Contains(err.Error(), protocol.KeyTalosStatus) || strings.Contains(err.Error(), protocol.KeyTalosMessage) {
			t.Errorf("closing: %v", err)
		}

		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it took %s", took)
		}

		if got := len(store.patches); got > 10 {
			t.Errorf("it wrote %d times", got)
		}
	})
}

// TestAnAttemptThatArrivesLateIsNobodyElse: it was given up, and took effect after
// what was written next.
func TestAnAttemptThatArrivesLateIsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{loses: 1}
		publisher := publish.New(store, publish.Options{})

		publisher.Observe(story()[0])
		synctest.Wait()
		time.Sleep(time.Second)
		publisher.Observe(story()[1])
		synctest.Wait()

		store.mutex.Lock()
		store.found[protocol.KeyTalosMessage] = "Talos upgrade started: 1.12.6 → 1.13.4"
		store.mutex.Unlock()

		time.Sleep(15 * time.Second)
		synctest.Wait()

		if got := store.get(protocol.KeyTalosMessage); got != "Upgrading node worker-0 (0/2)" {
			t.Errorf("the message is %q after the heartbeat", got)
		}

		if notes := publisher.Notes(); len(notes) > 0 {
			t.Errorf("it has notes: %q", notes)
		}

		// It cannot arrive again.
		store.mutex.Lock()
		store.found[protocol.KeyTalosMessage] = "All is well"
		store.mutex.Unlock()

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := store.get(protocol.KeyTalosMessage); got != "Upgrading node worker-0 (0/2)" {
			t.Errorf("the message is %q", got)
		}

		if notes := publisher.Notes(); len(notes) != 1 || !strings.Contains(notes[0], protocol.KeyTalosMessage+" (once)") {
			t.Errorf("it has the notes %q, want one of the message", notes)
		}
	})
}
