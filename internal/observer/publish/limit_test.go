// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// many are so many names of nodes of 63 characters.
func many(count int) []string {
	names := make([]string, 0, count)
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%04d", strings.Repeat("n", 58), i))
	}

	return names
}

// TestALongListOfFailedNodesIsCutBetweenTwoNames, so that nobody takes what is left
// of one for a node, and what is cut is told from what is whole.
func TestALongListOfFailedNodesIsCutBetweenTwoNames(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}

	for count, want := range map[int]int{1: 1, 127: 127, 128: 128, 129: 127, 1000: 127} {
		store := told(t, target, cluster.Event{Kind: cluster.EventRunFailed, Text: "why", Node: strings.Join(many(count), ",")})

		got := store.get(protocol.KeyFailedNodes)
		if len(got) > 8<<10 {
			t.Errorf("%d nodes: %d bytes", count, len(got))
		}

		names, cut := strings.CutSuffix(got, ",...")
		if cut != (want < count) {
			t.Errorf("%d nodes: the list is said to be cut: %t", count, cut)
		}

		if wanted := strings.Join(many(want), ","); names != wanted {
			t.Errorf("%d nodes: the list is %d bytes long, want that of %d nodes", count, len(names), want)
		}
	}
}

// TestAnObjectWithoutRoomGetsWhatFits: somebody else has filled it.
func TestAnObjectWithoutRoomGetsWhatFits(t *testing.T) {
	target := cluster.Target{Talos: version.MustParse("1.13.4")}
	begun := cluster.Event{Kind: cluster.EventRunStarted, Talos: left(5, 0, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"), Target: target}
	failed := cluster.Event{
		Kind: cluster.EventRunFailed, Text: strings.Repeat("é", 400), Node: strings.Join(many(100), ","), Talos: left(3, 2, 5, "1.12.6"), Kubernetes: aside(5, "1.34.2"), Target: target,
	}

	for name, test := range map[string]struct {
		room   int
		fits   bool
		events []cluster.Event
	}{
		"enough":             {20_000, true, []cluster.Event{begun, failed}},
		"for short ones":     {1_500, true, []cluster.Event{begun, failed}},
		"for none":           {100, false, []cluster.Event{begun, failed}},
		"a failure at once":  {1_500, true, []cluster.Event{failed}},
		"none for it at all": {0, false, []cluster.Event{failed}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf("phase", "conditions")
				shelf.annotate(map[string]any{"filler": strings.Repeat("x", annotationsMost-test.room-len("filler")-len("theirs")-len("yes"))})

				publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{Available: newest})

				for _, event := range test.events {
					publisher.Observe(event)
					synctest.Wait()
				}

				begun := time.Now()

				if err := publisher.Close(t.Context()); (err == nil) != test.fits {
					t.Errorf("closing: %v", err)
				}

				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}

				notes := strings.Join(publisher.Notes(), "\n")
				if short := test.room < 20_000; short != strings.Contains(notes, "did not take all annotations") || strings.Contains(notes, "ééé") {
					t.Errorf("it has the notes %q", notes)
				}

				if !test.fits {
					return
				}

				want := map[string]string{
					talosStatus: "failed", talosCurrent: "1.12.6", protocol.KeyTalosProgress: "2/5", kubernetesStatus: "idle",
					talosMessage: "Talos upgrade failed: " + strings.Repeat("é", 57) + "…", protocol.KeyFailedNodes: "absent", talosAvailable: "absent", "phase": "UpgradeFailed",
				}
				if test.room >= 20_000 {
					want[talosMessage], want[talosAvailable] = "Talos upgrade failed: "+strings.Repeat("é", 400), "1.13.4"
					want[protocol.KeyFailedNodes] = strings.Join(many(100), ",")
				}

				expect(t, shelf, want)
			})
		})
	}
}

// TestTheHeartBeatsOnAnObjectWithoutRoom: it is how a reader tells a run that lives.
func TestTheHeartBeatsOnAnObjectWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf()
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		shelf.annotate(map[string]any{"filler": strings.Repeat("x", annotationsMost-700)})

		event := story()[0]
		event.Kind, event.Text, event.Node = cluster.EventRollingBack, strings.Repeat("y", 499), "cp-0"
		event.To = version.MustParse("1.12.6")

		publisher.Observe(event)
		synctest.Wait()

		before := shelf.get(protocol.KeyLastUpdate)

		time.Sleep(time.Minute)
		synctest.Wait()

		if got := shelf.get(protocol.KeyLastUpdate); got == before || before == "absent" {
			t.Errorf("the last update was at %s, and is at %s", before, got)
		}

		if got := shelf.get(talosMessage); len(got) != 79+len("…") || !strings.HasPrefix(got, "Rolling back node cp-0 to 1.12.6: yyy") {
			t.Errorf("the message is %q", got)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
