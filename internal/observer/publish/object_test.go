// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
)

func TestOnlyOurAnnotationsAreWritten(t *testing.T) {
	shelf := newShelf()
	shelf.annotate(map[string]any{protocol.KeyFailedNodes: "cp-9", "upgrade.vitistack.io/talos-target": "1.13.4"})

	store := publish.NewObjectStore(shelf, published())
	if got := store.String(); got != "KubernetesCluster tenant-a/prod" {
		t.Errorf("it is called %q", got)
	}

	status := "idle"
	if err := store.Patch(t.Context(), map[string]*string{protocol.KeyTalosStatus: &status, protocol.KeyFailedNodes: nil}); err != nil {
		t.Fatal(err)
	}

	const want = ` {"metadata":{"annotations":{"upgrade.vitistack.io/failed-nodes":null,"upgrade.vitistack.io/talos-status":"idle"}}}`
	if len(shelf.calls) != 1 || shelf.calls[0] != want {
		t.Errorf("it sent %q, want %q", shelf.calls, want)
	}

	found, err := store.Read(t.Context())
	if err != nil || len(found) != 3 || found["theirs"] != "yes" || found["upgrade.vitistack.io/talos-target"] != "1.13.4" || found[protocol.KeyTalosStatus] != "idle" {
		t.Errorf("there is %v, %v", found, err)
	}
}

func TestAnObjectThatIsNotThereIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		there := shelf.found
		shelf.found = nil

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		time.Sleep(time.Minute)
		synctest.Wait()

		if len(shelf.calls) > 0 {
			t.Errorf("it sent %q", shelf.calls)
		}

		if tries := shelf.reads; tries < 5 || tries > 40 {
			t.Errorf("it looked %d times in a minute, want with a back-off", tries)
		}

		// It may come.
		shelf.mutex.Lock()
		shelf.found = there
		shelf.mutex.Unlock()

		time.Sleep(15 * time.Second)
		synctest.Wait()

		if got := shelf.get(protocol.KeyTalosStatus); got != "in-progress" {
			t.Errorf("status %q of an object that came later", got)
		}

		if got := shelf.status()["phase"]; got != "UpgradingTalos" {
			t.Errorf("phase %v of an object that came later", got)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatWaitingDoesNotCureIsSaidSoon: an apply is not held up at its end.
func TestWhatWaitingDoesNotCureIsSaidSoon(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*shelf)
		says  string
	}{
		"no object": {func(s *shelf) { s.found = nil }, "no such object"},
		"no permission": {func(s *shelf) {
			s.answer = func(string) error { return fmt.Errorf("forbidden: %w", cluster.ErrDenied) }
		}, "forbidden"},
		"being deleted": {func(s *shelf) { s.metadata()["deletionTimestamp"] = "2026-01-01T00:00:00Z" }, "being deleted"},
		"no status": {func(s *shelf) {
			s.answer = func(call string) error {
				if call == "patch status" {
					return fmt.Errorf("forbidden: %w", cluster.ErrDenied)
				}

				return nil
			}
		}, "the status of KubernetesCluster tenant-a/prod could not"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf("phase", "conditions")
				test.spoil(shelf)

				publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
				for _, event := range story() {
					publisher.Observe(event)
				}

				begun := time.Now()
				err := publisher.Close(t.Context())

				if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), published().String()) {
					t.Errorf("closing: %v, want %q", err, test.says)
				}

				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}

				if name == "no status" && shelf.get(protocol.KeyTalosStatus) != "completed" {
					t.Error("without a status there are no annotations")
				}
			})
		})
	}
}

func TestAnObjectOnItsWayOutIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		publisher.Observe(story()[0])
		synctest.Wait()
		shelf.write(map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}})

		// With the next heartbeat it is noticed.
		time.Sleep(15 * time.Second)
		synctest.Wait()

		sent := len(shelf.calls)

		publisher.Observe(story()[1])
		time.Sleep(time.Minute)
		synctest.Wait()

		if got := len(shelf.calls); got != sent {
			t.Errorf("it was written %d times more: %q", got-sent, shelf.calls[sent:])
		}

		if err := publisher.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "being deleted") {
			t.Errorf("closing: %v", err)
		}
	})
}

// TestOneThatReplacesItIsWritten: it has the name that was asked for.
func TestOneThatReplacesItIsWritten(t *testing.T) {
	shelf := newShelf()
	shelf.write(map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}})

	store, status := publish.NewObjectStore(shelf, published()), "idle"
	if _, err := store.Read(t.Context()); err == nil {
		t.Error("it was read")
	}

	change := map[string]*string{protocol.KeyTalosStatus: &status}
	if err := store.Patch(t.Context(), change); err == nil || len(shelf.calls) > 0 {
		t.Errorf("it was written: %q, %v", shelf.calls, err)
	}

	shelf.write(map[string]any{"metadata": map[string]any{"deletionTimestamp": nil}})

	if err := store.Patch(t.Context(), change); err != nil || shelf.get(protocol.KeyTalosStatus) != "idle" {
		t.Errorf("the new one: %v", err)
	}
}

// TestTheStatusOfWhatComesWithKubernetesIsLeftAlone: a phase is something else
// there.
func TestTheStatusOfWhatComesWithKubernetesIsLeftAlone(t *testing.T) {
	shelf := newShelf("phase", "conditions")

	for version, want := range map[string]bool{
		"v1": false, "apps/v1": false, "policy/v1": false, "networking.k8s.io/v1": false,
		"cluster.x-k8s.io/v1beta1": true, "vitistack.io/v1alpha1": true,
	} {
		of := published()
		of.APIVersion = version

		_, _, err := publish.NewObjectStore(shelf, of).Status(t.Context())
		if ours := !errors.Is(err, cluster.ErrUnsupported); ours != want {
			t.Errorf("the status of a kind of %s is ours to write: %t, want %t (%v)", version, ours, want, err)
		}
	}
}
